"""Approximate float instructions are as near as the PTX manual says, and give its tables' results at the edges."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest
from opcodes import ROOM, Opcodes

INF, NAN = math.inf, math.nan
NUMPY = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}


@dataclass(frozen=True)
class Case:
    """An approximation of `function`; `bound` gives the error that is allowed around the right values."""

    opcode: str
    function: Callable[..., np.ndarray]
    bound: Callable[[np.ndarray], np.ndarray]
    low: float
    high: float
    count: int = 1
    spread: bool = False  # exponents are spread evenly between low and high, which are powers of two

    @property
    def d(self) -> str:
        return self.opcode.rsplit(".", 1)[1]

    @property
    def sources(self) -> tuple[str, ...]:
        return (self.d,) * self.count

    @property
    def text(self) -> str:
        return f"{self.opcode} {{d}}, {', '.join(f'{{{each}}}' for each in 'abc'[: self.count])}"


def ulps(n: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda right: n * np.spacing(np.abs(right).astype(np.float32)).astype(np.float64)


def relative(bits: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda right: np.abs(right) * 2.0**-bits


def absolute(bits: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda right: np.full(right.shape, 2.0**-bits)


CASES = [
    Case("ex2.approx.f32", np.exp2, ulps(2), -149, 128), Case("ex2.approx.ftz.f32", np.exp2, ulps(2), -125, 128),
    Case("lg2.approx.f32", np.log2, absolute(22), 0.5, 2), Case("lg2.approx.ftz.f32", np.log2, relative(22), 2, 1e38),
    Case("lg2.approx.f32", np.log2, relative(22), -140, -2, spread=True),
    Case("sin.approx.f32", np.sin, absolute(20.5), -2 * math.pi, 2 * math.pi),
    Case("cos.approx.f32", np.cos, absolute(20.5), -2 * math.pi, 2 * math.pi),
    Case("sin.approx.ftz.f32", np.sin, absolute(14.7), -100 * math.pi, 100 * math.pi),
    Case("cos.approx.ftz.f32", np.cos, absolute(14.7), -100 * math.pi, 100 * math.pi),
    Case("sin.approx.f32", np.sin, relative(20), -20, 0, spread=True),
    Case("tanh.approx.f32", np.tanh, relative(11), -12, 12),
    Case("tanh.approx.f32", np.tanh, relative(11), -140, 3, spread=True),
    Case("rcp.approx.f32", lambda x: 1 / x, ulps(1), -120, 120, spread=True),
    Case("sqrt.approx.f32", np.sqrt, relative(23), -148, 127, spread=True),
    Case("rsqrt.approx.f32", lambda x: 1 / np.sqrt(x), relative(22.9), -140, 127, spread=True),
    Case("rsqrt.approx.f64", lambda x: 1 / np.sqrt(x), relative(51), -1000, 1000, spread=True),
    Case("rcp.approx.ftz.f64", lambda x: 1 / x, relative(19), -1000, 1000, spread=True),
    Case("rsqrt.approx.ftz.f64", lambda x: 1 / np.sqrt(x), relative(19), -1000, 1000, spread=True),
    Case("div.approx.f32", np.divide, ulps(2), -60, 60, 2, spread=True),
    Case("div.full.f32", np.divide, ulps(2), -60, 60, 2, spread=True),
    Case("ex2.approx.f16", np.exp2, relative(9.9), -14, 15.9),
    Case("tanh.approx.f16", np.tanh, absolute(10.987), -8, 8),
    Case("ex2.approx.ftz.bf16", np.exp2, relative(7), -125, 127),
    Case("tanh.approx.bf16", np.tanh, relative(8), -8, 8),
]  # fmt: skip

EDGES = {
    "ex2.approx.f32": [(-INF, 0.0), (INF, INF), (NAN, NAN), (0.0, 1.0), (-0.0, 1.0), (1e-40, 1.0), (128.0, INF)],
    "lg2.approx.f32": [(-INF, NAN), (-1.0, NAN), (0.0, -INF), (-0.0, -INF), (INF, INF), (NAN, NAN), (1.0, 0.0)],
    "lg2.approx.ftz.f32": [(1e-40, -INF), (-1e-40, -INF)],
    "sin.approx.f32": [(INF, NAN), (-INF, NAN), (NAN, NAN), (0.0, 0.0), (-0.0, -0.0)],
    "sin.approx.ftz.f32": [(1e-40, 0.0), (-1e-40, -0.0)],
    "cos.approx.f32": [(INF, NAN), (-INF, NAN), (NAN, NAN), (0.0, 1.0), (-0.0, 1.0), (1e-40, 1.0)],
    "tanh.approx.f32": [(INF, 1.0), (-INF, -1.0), (NAN, NAN), (0.0, 0.0), (-0.0, -0.0), (1e-40, 1e-40)],
    "rcp.approx.f32": [(INF, 0.0), (-INF, -0.0), (0.0, INF), (-0.0, -INF), (NAN, NAN)],
    "sqrt.approx.f32": [(-1.0, NAN), (-0.0, -0.0), (0.0, 0.0), (INF, INF), (-INF, NAN), (NAN, NAN)],
    "rsqrt.approx.f32": [(-1.0, NAN), (-0.0, -INF), (0.0, INF), (INF, 0.0), (-INF, NAN), (NAN, NAN)],
    "rcp.approx.ftz.f64": [(INF, 0.0), (-0.0, -INF), (5e-324, INF), (-5e-324, -INF), (NAN, NAN), (2.0**1023, 0.0)],
    "rsqrt.approx.ftz.f64": [(INF, 0.0), (-0.0, -INF), (5e-324, INF), (-1.0, NAN), (NAN, NAN)],
    "ex2.approx.f16": [(-INF, 0.0), (INF, INF), (NAN, NAN), (16.0, INF)],
    "tanh.approx.bf16": [(INF, 1.0), (-INF, -1.0), (NAN, NAN), (-0.0, -0.0)],
}
HUGE = [(3e38, 3e38, 0.0), (-1.0, 2.0**127, -0.0), (INF, 2.0**127, NAN), (1.0, INF, 0.0), (1.0, 2.0**126, 2.0**-126)]


@pytest.fixture(scope="module")
def opcodes() -> Opcodes:
    return Opcodes(CASES)


def bits_of(values: np.ndarray, kind: str) -> list[int]:
    array = np.ascontiguousarray(values.astype(NUMPY[kind]))
    return [int(x) for x in array.view(f"u{array.itemsize}")]


def run(opcodes: Opcodes, case: Case, *columns: np.ndarray) -> np.ndarray:
    tuples = list(zip(*(bits_of(each, case.d) for each in columns), strict=True))
    out = []
    for n in range(0, len(tuples), ROOM):
        out += opcodes.run(case, tuples[n : n + ROOM])
    kind = np.dtype(NUMPY[case.d])
    return np.array(out, f"u{kind.itemsize}").view(kind).astype(np.float64)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.opcode} {case.low:.3g} to {case.high:.3g}")
def test_an_approximation_is_as_near_as_the_manual_says(opcodes: Opcodes, case: Case) -> None:
    draw = np.random.default_rng(6)
    columns = []
    for _ in range(case.count):
        values = draw.uniform(case.low, case.high, 4 * ROOM)
        if case.spread:
            values = np.exp2(values)
        columns.append(values.astype(NUMPY[case.d]).astype(np.float64))
    found = run(opcodes, case, *columns)
    with np.errstate(over="ignore"):
        right = case.function(*columns)
    error = np.abs(found - right) - case.bound(right)
    worst = int(np.argmax(error))
    assert error[worst] <= 0, f"of {[c[worst] for c in columns]}: {found[worst]!r}, not {right[worst]!r}"


@pytest.mark.parametrize("opcode", EDGES)
def test_an_approximation_has_the_manuals_results_at_the_edges(opcodes: Opcodes, opcode: str) -> None:
    case = next(each for each in CASES if each.opcode == opcode)
    given, wanted = np.array(EDGES[opcode]).T
    found = run(opcodes, case, given)
    expected = wanted.astype(NUMPY[case.d]).astype(np.float64)
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found)[~np.isnan(found)], np.signbit(expected)[~np.isnan(found)])


def test_div_approx_gives_zero_for_divisors_whose_reciprocal_underflows(opcodes: Opcodes) -> None:
    case = next(each for each in CASES if each.opcode == "div.approx.f32")
    a, b, wanted = np.array(HUGE).T
    found = run(opcodes, case, a, b)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found)[~np.isnan(found)], np.signbit(wanted)[~np.isnan(found)])


@pytest.mark.parametrize("opcode", ["rcp.approx.ftz.f64", "rsqrt.approx.ftz.f64"])
def test_gross_approximations_are_of_and_to_the_upper_32_bits(opcodes: Opcodes, opcode: str) -> None:
    case = next(each for each in CASES if each.opcode == opcode)
    upper = bits_of(np.linspace(1, 9, ROOM), "f64")
    without, with_lower = ([(x >> 32 << 32 | low,) for x in upper] for low in (0, 0xFFFFFFFF))
    found = opcodes.run(case, without)
    assert found == opcodes.run(case, with_lower)
    assert not any(x & 0xFFFFFFFF for x in found)


def test_sines_of_huge_angles_stay_between_minus_one_and_one(opcodes: Opcodes) -> None:
    for name in ("sin.approx.f32", "cos.approx.f32"):
        case = next(each for each in CASES if each.opcode == name)
        found = run(opcodes, case, np.exp2(np.linspace(10, 127.9, ROOM)))
        assert (np.abs(found) <= 1).all()
