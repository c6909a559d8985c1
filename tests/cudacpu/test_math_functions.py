"""CUDA's own math functions, as NVRTC compiles them, keep on the CPU the errors that CUDA's manual states for them.

They are long, and lean on every bit: fused sums in all modes, conversions, reciprocals that are near. The bounds are in
units in the last place (CUDA Programming Guide, Mathematical Functions). What does not live here: single instructions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from ptx_host import Loaded
from scipy import special

nvrtc = pytest.importorskip("cuda.bindings.nvrtc", reason="CUDA C needs cuda-bindings and nvidia-cuda-nvrtc")

COUNT = 512
wide = np.longdouble
Exact = Callable[..., np.ndarray]
PI = wide("3.14159265358979323846264338327950288")


@dataclass(frozen=True)
class Function:
    """`name` of numbers between low and high (the exponents of which are even spread if `spread`)."""

    name: str
    exact: Exact
    ulps: float
    low: float
    high: float
    count: int = 1
    spread: bool = False


def in_double(function: Exact) -> Exact:
    """A function that SciPy has in double only, which is near enough for f32."""
    return lambda *x: function(*(each.astype(np.float64) for each in x)).astype(wide)


SINGLE = [
    Function("expf", np.exp, 1, -86, 88), Function("exp2f", np.exp2, 2, -125, 127),
    Function("exp10f", lambda x: wide(10) ** x, 2, -37, 38), Function("expm1f", np.expm1, 1, -20, 80),
    Function("logf", np.log, 1, -120, 120, spread=True), Function("log2f", np.log2, 1, -120, 120, spread=True),
    Function("log10f", np.log10, 2, -120, 120, spread=True), Function("log1pf", np.log1p, 1, -0.9, 50),
    Function("sinf", np.sin, 2, -100, 100), Function("cosf", np.cos, 2, -100, 100),
    Function("sinf", np.sin, 2, 10, 50, spread=True), Function("cosf", np.cos, 2, 10, 50, spread=True),
    Function("tanf", np.tan, 4, -50, 50), Function("asinf", np.arcsin, 2, -1, 1),
    Function("acosf", np.arccos, 2, -1, 1), Function("atanf", np.arctan, 2, -20, 20),
    Function("sinhf", np.sinh, 3, -80, 80), Function("coshf", np.cosh, 2, -80, 80),
    Function("tanhf", np.tanh, 2, -10, 10), Function("asinhf", np.arcsinh, 3, -1e6, 1e6),
    Function("acoshf", np.arccosh, 4, 1, 1e6), Function("atanhf", np.arctanh, 3, -1, 1),
    Function("cbrtf", np.cbrt, 1, -1e6, 1e6), Function("erff", in_double(special.erf), 2, -4, 4),
    Function("erfcf", in_double(special.erfc), 4, -4, 8), Function("tgammaf", in_double(special.gamma), 5, 0.1, 33),
    Function("lgammaf", in_double(special.gammaln), 6, 3, 1e6),
    Function("rsqrtf", lambda x: 1 / np.sqrt(x), 2, -100, 100, spread=True),
    Function("sinpif", lambda x: np.sin(PI * x), 1, -1, 1), Function("normcdff", in_double(special.ndtr), 5, -5, 5),
    Function("powf", np.power, 4, 0.01, 20, 2), Function("atan2f", np.arctan2, 3, -5, 5, 2),
    Function("hypotf", np.hypot, 3, -1e4, 1e4, 2), Function("fmodf", np.fmod, 0, -500, 500, 2),
    Function("remainderf", lambda x, y: x - y * np.rint(x / y), 0, -500, 500, 2),
    Function("fdividef", np.divide, 2, 1, 100, 2), Function("__fdiv_rn", np.divide, 0.5, -50, 50, 2, spread=True),
]  # fmt: skip
DOUBLE = [
    Function("exp", np.exp, 1, -700, 700), Function("log", np.log, 1, -1000, 1000, spread=True),
    Function("sin", np.sin, 2, -100, 100), Function("cos", np.cos, 2, 20, 200, spread=True),
    Function("tan", np.tan, 2, -50, 50), Function("atan", np.arctan, 2, -20, 20), Function("tanh", np.tanh, 2, -10, 10),
    Function("cbrt", np.cbrt, 1, -1e6, 1e6), Function("asin", np.arcsin, 2, -1, 1),
    Function("sqrt", np.sqrt, 0.5, -1000, 1000, spread=True),
    Function("rsqrt", lambda x: 1 / np.sqrt(x), 1, -1000, 1000, spread=True),
    Function("pow", np.power, 2, 0.01, 20, 2), Function("fmod", np.fmod, 0, -500, 500, 2),
    Function("hypot", np.hypot, 2, -1e4, 1e4, 2), Function("__ddiv_rn", np.divide, 0.5, -500, 500, 2, spread=True),
]  # fmt: skip


def compiled(functions: list[Function], kind: str) -> Loaded:
    source = ""
    for n, each in enumerate(functions):
        arguments = ", ".join(("a[i]", "b[i]")[: each.count])
        source += (
            f'extern "C" __global__ void k{n}(const {kind}* a, const {kind}* b, {kind}* out) '
            f"{{ int i = threadIdx.x; out[i] = {each.name}({arguments}); }}\n"
        )
    error, program = nvrtc.nvrtcCreateProgram(source.encode(), b"functions.cu", 0, [], [])
    assert not error
    options = [b"--gpu-architecture=compute_80"]
    (error,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    assert not error
    ptx = bytearray(nvrtc.nvrtcGetPTXSize(program)[1])
    nvrtc.nvrtcGetPTX(program, ptx)
    nvrtc.nvrtcDestroyProgram(program)
    return Loaded(ptx.rstrip(b"\0 ").decode(), 1)


def check(loaded: Loaded, functions: list[Function], function: Function, kind: type) -> None:
    draw = np.random.default_rng(12)
    columns = []
    for _ in range(2):
        values = draw.uniform(function.low, function.high, COUNT)
        columns.append((np.exp2(values) if function.spread else values).astype(kind))
    out = np.zeros(COUNT, kind)
    loaded.launch(f"k{functions.index(function)}", *columns, out, block=(COUNT,))
    exact = function.exact(*(each.astype(wide) for each in columns[: function.count]))
    unit = np.spacing(np.abs(exact.astype(kind))).astype(wide)
    error = np.abs(out.astype(wide) - exact) / unit
    worst = int(np.argmax(error))
    # The manual counts from the rounded value, which is half an ulp away at most; and the reference has an error.
    allowed = function.ulps + 0.5 if function.ulps > 0.5 else function.ulps
    assert error[worst] <= allowed * 1.01, (
        f"{function.name} of {[float(each[worst]) for each in columns[: function.count]]}: {error[worst]:.2f} ulp"
    )


@pytest.fixture(scope="module")
def single() -> Loaded:
    return compiled(SINGLE, "float")


@pytest.fixture(scope="module")
def double() -> Loaded:
    return compiled(DOUBLE, "double")


@pytest.mark.parametrize("function", SINGLE, ids=lambda each: f"{each.name} {each.low:g}")
def test_single_precision_keeps_the_stated_error(single: Loaded, function: Function) -> None:
    check(single, SINGLE, function, np.float32)


@pytest.mark.parametrize("function", DOUBLE, ids=lambda each: f"{each.name} {each.low:g}")
def test_double_precision_keeps_the_stated_error(double: Loaded, function: Function) -> None:
    check(double, DOUBLE, function, np.float64)
