"""Operations that some targets lack, written from those that all have: the same results as ir.OPS defines."""

import math
import random

import numpy as np
import pytest
from kernel_helpers import there
from kernel_makers import Maker, items
from test_kernels_lower import edges, loaded, run, runner, same, stored

import hcq
from hcq.kernels import arithmetic, probe, types
from hcq.kernels.lower import fused, quotient, remainder
from hcq.kernels.types import f32, f64, pointer, scalar


@pytest.fixture(params=["LLVM", "CLANG"], scope="module")
def dev(request):
    return runner(request.param)


def compute(dev, code, type_, operands, expand, lanes=1):
    """The operation on lists of values, by a kernel that was made of others."""
    m = Maker(code, out=pointer(type_), **{f"x{at}": pointer(type_) for at in range(len(operands))})
    at = m.b.binary("mul", items(m), m.const(lanes))
    given = [m.b.load(m[f"x{place}"], at, lanes) for place in range(len(operands))]
    m.b.store(m["out"], at, m.b.op(code, given, (given[0].type,)).result)
    function = expand(m.end())
    assert all(op.code != code for op in function.walk())
    arrays = [stored(each, type_) for each in operands]
    out = np.zeros_like(arrays[0])
    run(dev, function, [out, *arrays], groups=len(out) // lanes)
    return loaded(out, type_)


def any_float(chance, type_):
    """A float by its bits, or one of those whose digits are few; near the edges of the exponent often."""
    kind = chance.randrange(4)
    if kind == 0:
        return chance.choice(edges(type_))
    if kind == 1:
        return arithmetic.rounder(type_)(chance.randrange(-64, 64) * 2.0 ** chance.randrange(-20, 20))
    raw = chance.getrandbits(type_.bits)
    if kind == 2:  # very small or very large
        digits = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}[type_.name]
        top = (1 << type_.bits - 1 - digits) - 1
        raw = chance.choice([chance.randrange(0, 60), top - chance.randrange(1, 60)]) % top << digits | (
            raw & (1 << digits) - 1 | (raw & 1 << type_.bits - 1)
        )
    return arithmetic.decode(raw.to_bytes(type_.itemsize, "little"), type_)


def check(dev, code, type_, rows, expand, lanes=1):
    got = compute(dev, code, type_, list(zip(*rows, strict=True)), expand, lanes)
    define = arithmetic.evaluator(code, type_, type_)
    for row, value in zip(rows, got, strict=True):
        assert same(value, define(*row)), (code, row, value, define(*row))


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("lanes", [1, 4])
def test_remainders_by_integers_are_exact(dev, name, lanes):
    type_, chance = scalar(name), random.Random(1)
    rows = [(any_float(chance, type_), any_float(chance, type_)) for _ in range(2000)]
    rows += [(a, b) for a in edges(type_) for b in edges(type_)]
    check(dev, "rem", type_, rows[: len(rows) // lanes * lanes], remainder.expand, lanes)


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("lanes", [1, 4])
def test_fused_products_from_other_operations_are_rounded_once(dev, name, lanes):
    type_, chance = scalar(name), random.Random(2)
    narrow = arithmetic.rounder(type_)
    rows = [tuple(any_float(chance, type_) for _ in range(3)) for _ in range(2000)]
    for _ in range(2000):  # sums that cancel, wholly, all but a few digits, or in the last one
        a, b = any_float(chance, type_), any_float(chance, type_)
        product = a * b
        if not math.isfinite(narrow(product)):
            continue
        c = narrow(-product) * (1 + chance.choice([0.0, 0.0, 2.0**-10, -(2.0**-12), 2.0**-23, 2.0**-52]))
        rows.append((a, b, narrow(c)))
        rows.append((a, b, narrow(c) * chance.choice([2.0**-23, 2.0**-24, 2.0**-25, 2.0**-53, 2.0**-54, 2.0**-106])))
    rows = [(a, b, narrow(c)) for a, b, c in rows]
    check(dev, "fma", type_, rows[: len(rows) // lanes * lanes], lambda f: fused.expand(f, (f32, f64)), lanes)


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("code", ["div", "sqrt"])
def test_quotients_and_roots_by_integers_are_rounded_correctly(dev, name, code):
    type_, chance = scalar(name), random.Random(3)
    rows = [tuple(any_float(chance, type_) for _ in range(2)) for _ in range(2000)]
    rows += [(a, b) for a in edges(type_) for b in edges(type_)]
    narrow = arithmetic.rounder(type_)
    for _ in range(500):  # exact ones, and those next to them
        a, b = (float(chance.randrange(1, 1 << 12)) for _ in range(2))
        near = narrow(a * b * (1 + chance.choice([0, 2.0**-10, 2.0**-23, -(2.0**-24), 2.0**-52])))
        rows.append((near, a) if code == "div" else (narrow(a * a), a))
    rows = [tuple(map(narrow, row[: 1 + (code == "div")])) for row in rows[: len(rows) // 4 * 4]]
    check(dev, code, type_, rows, lambda f: quotient.expand(f, ()), 4)


def test_what_has_them_itself_is_left_as_it_is():
    m = Maker("f", out=pointer(f32), big=pointer(f64))
    for name in ("out", "big"):
        x = m.b.load(m[name], items(m))
        m.b.store(m[name], items(m), m.b.op("fma", (x, x, x), (x.type,)).result)
    function = m.end()
    assert remainder.expand(function) is function and fused.expand(function, ()) is function
    left = [types.element_of(op.result.type) for op in fused.expand(function, (f32,)).walk() if op.code == "fma"]
    assert left == [f64]


@pytest.mark.parametrize("code", probe.CODES)
@pytest.mark.parametrize("name", ["LLVM", "VULKAN"])
def test_launches_tell_which_operations_are_exact(name, code):
    if name not in there(name):
        pytest.skip(f"no {name} here")
    device = hcq.Device[name]
    if name == "VULKAN" and "llvmpipe" not in device.kernel_target:
        pytest.skip("what a GPU has is not known beforehand")
    lacks = name == "VULKAN" and code == "fma"
    with hcq.capture() as graph:  # which is not told of it
        for type_ in (f32, f64):
            assert probe.is_exact(device, code, type_) != lacks
    assert len(graph.nodes) == 0


def test_a_device_is_asked_once_and_only_for_what_a_kernel_has(monkeypatch):
    class Device:
        kernel_target = "rte32 div32"

    asked = []
    monkeypatch.setattr(probe, "is_exact", lambda device, code, element: asked.append((code, element)) or code == "fma")
    device, plain, more = Device(), Maker("f", out=pointer(f32)), Maker("g", out=pointer(f32))
    x = more.b.load(more["out"], more.const(0))
    for code in ("fma", "div", "sqrt"):
        count = {"fma": 3, "div": 2, "sqrt": 1}[code]
        more.b.store(more["out"], more.const(0), more.b.op(code, (x,) * count, (f32,)).result)
    assert probe.target(device, plain.end()) == "rte32 div32" and not asked
    assert [probe.target(device, more.function) for _ in range(2)] == ["rte32 div32 fma32"] * 2
    assert sorted(asked, key=str) == [("fma", f32), ("sqrt", f32)]
