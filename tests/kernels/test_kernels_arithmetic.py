"""The definition of the pure operations: beside NumPy where NumPy defines them, and by its own rules elsewhere."""

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcq.kernels import types
from hcq.kernels.arithmetic import decode, encode, evaluator, round_exact, rounder
from hcq.kernels.types import bf16, bool_, f16, f32, f64, i8, i32, i64, u8, u32, vector

INTEGERS = [each for each in types.SCALARS if each.is_integer]
FLOATS = [each for each in types.SCALARS if each.is_float]


def values(type_):
    """Values of a type, with its edges."""
    if type_.kind == "b":
        return st.booleans()
    if type_.is_integer:
        low, high = type_.range
        edges = [each for each in (low, low + 1, -1, 0, 1, 2, type_.bits, high - 1, high) if low <= each <= high]
        return st.sampled_from(edges) | st.integers(low, high)
    narrow = rounder(type_)
    edges = [0.0, -0.0, 1.0, -1.5, 0.5, 2.5, 65504.0, 65520.0, 1e30, 5e-324, 6e-8, 1e-40, math.inf, -math.inf, math.nan]
    return st.sampled_from(edges).map(narrow) | st.floats().map(narrow) | st.floats(-100, 100).map(narrow)


def same(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))
    return type(a) is type(b) and a == b


def in_numpy(compute, type_, *operands):
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arrays = [np.array([each], type_.dtype.numpy) for each in operands]
        result = compute(*arrays)
        assert result.dtype == type_.dtype.numpy or result.dtype == bool
        return result[0].item() if result.dtype.kind != "V" and type_ is not bf16 else float(result[0])


BOTH = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative, "abs": np.abs}
WHOLE = {"floordiv": np.floor_divide, "mod": np.mod, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
REAL = {"div": np.divide, "rem": np.fmod, "sqrt": np.sqrt, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc}
REAL |= {"round": np.rint, "copysign": np.copysign}


@given(st.data())
def test_integers_are_numpys(data):
    type_ = data.draw(st.sampled_from(INTEGERS))
    code = data.draw(st.sampled_from([*BOTH, *WHOLE]))
    compute = {**BOTH, **WHOLE}[code]
    operands = [data.draw(values(type_)) for _ in range(compute.nin)]
    assert same(evaluator(code, type_, type_)(*operands), in_numpy(compute, type_, *operands)), (code, type_, operands)


@given(st.data())
def test_floats_are_numpys(data):
    type_ = data.draw(st.sampled_from(FLOATS))
    code = data.draw(st.sampled_from([*BOTH, *REAL]))
    compute = {**BOTH, **REAL}[code]
    operands = [data.draw(values(type_)) for _ in range(compute.nin)]
    if type_ is bf16 and code == "rem":
        return  # ml_dtypes computes it in another way
    assert same(evaluator(code, type_, type_)(*operands), in_numpy(compute, type_, *operands)), (code, type_, operands)


@given(st.data())
def test_conversions_are_numpys_where_it_defines_them(data):
    source, target = data.draw(st.sampled_from(types.SCALARS)), data.draw(st.sampled_from(types.SCALARS))
    value = data.draw(values(source))
    got = evaluator("cast", source, target)(value)
    if source.is_float and not target.is_float and target.kind != "b":
        low, high = target.range
        if math.isnan(value):
            assert got == 0
        else:
            assert got == (low if value <= low else high if value >= high else math.trunc(value))
        return
    if bf16 in (source, target) and f32 not in (source, target):
        return  # ml_dtypes goes by way of f32
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = np.array([value], source.dtype.numpy).astype(target.dtype.numpy)[0]
    wanted = float(wanted) if target.is_float else wanted.item()
    assert same(got, wanted), (source, target, value)


@given(st.data())
def test_bits_read_as_another_type_and_back(data):
    source = data.draw(st.sampled_from([each for each in types.SCALARS if each.kind != "b"]))
    target = data.draw(
        st.sampled_from([each for each in types.SCALARS if each.bits == source.bits and each.kind != "b"])
    )
    value = data.draw(values(source).filter(lambda each: each == each))
    there = evaluator("bitcast", source, target)(value)
    if there == there:
        assert same(evaluator("bitcast", target, source)(there), value)
    assert decode(encode(value, source), source) == value
    assert encode(value, source) == np.array([value], source.dtype.numpy).tobytes()


@given(st.data())
def test_rounding_once_is_the_nearest_value(data):
    type_ = data.draw(st.sampled_from([f16, bf16, f32]))
    value = data.draw(st.floats(allow_nan=False, allow_infinity=False))
    got = rounder(type_)(value)
    assert same(got, round_exact(Fraction(value), type_)) or value == 0 or got == 0
    if type_ is not bf16:
        with np.errstate(over="ignore"):
            assert same(got, float(type_.dtype.numpy.type(value)))


@pytest.mark.parametrize(
    ("code", "type_", "operands", "wanted"),
    [
        ("floordiv", i32, (7, 0), 0),
        ("floordiv", i8, (-128, -1), -128),
        ("floordiv", i32, (-7, 2), -4),
        ("mod", i32, (-7, 2), 1),
        ("mod", i32, (7, -2), -1),
        ("mod", u8, (7, 0), 0),
        ("shl", u8, (1, 8), 0),
        ("shl", i32, (1, 31), -(2**31)),
        ("shl", i32, (1, -1), 0),
        ("shr", i32, (-8, 1), -4),
        ("shr", i32, (-8, 40), -1),
        ("shr", u32, (2**32 - 1, 32), 0),
        ("neg", i8, (-128,), -128),
        ("neg", u8, (1,), 255),
        ("abs", i64, (-(2**63),), -(2**63)),
        ("not", u8, (1,), 254),
        ("not", bool_, (True,), False),
        ("popcount", i8, (-1,), 8),
        ("clz", i32, (1,), 31),
        ("clz", i32, (-1,), 0),
        ("clz", u8, (0,), 8),
        ("min", f32, (math.nan, 1.0), math.nan),
        ("max", f32, (1.0, math.nan), math.nan),
        ("max", f32, (1.0, 2.0), 2.0),
        ("div", f32, (-1.0, 0.0), -math.inf),
        ("div", f32, (1.0, -0.0), -math.inf),
        ("div", f32, (0.0, 0.0), math.nan),
        ("sqrt", f64, (-1.0,), math.nan),
        ("sqrt", f64, (-0.0,), -0.0),
        ("round", f32, (2.5,), 2.0),
        ("round", f32, (-0.4,), -0.0),
        ("fma", f64, (1.0 + 2.0**-52, 1.0 - 2.0**-52, -1.0), -(2.0**-104)),
        ("fma", f32, (float(np.float32(1 / 3)), 3.0, -1.0), 2.0**-25),
        ("fma", f64, (-1.0, 0.0, 0.0), 0.0),
        ("fma", f64, (-1.0, 0.0, -0.0), -0.0),
        ("fma", f32, (-(2.0**-100), 2.0**-100, 0.0), -0.0),
        ("fma", f64, (5e-324, -5e-324, 0.0), -0.0),
        ("fma", f64, (math.inf, 1.0, -math.inf), math.nan),
        ("eq", f32, (math.nan, math.nan), False),
        ("ne", f32, (math.nan, math.nan), True),
        ("lt", u32, (1, 2), True),
    ],
)
def test_edges(code, type_, operands, wanted):
    result = bool_ if code in ("eq", "ne", "lt") else type_
    assert same(evaluator(code, type_, result)(*operands), wanted)


def test_vectors_are_computed_lane_by_lane():
    pair = vector(f32, 2)
    assert evaluator("add", pair, pair)((1.0, 2.0), (3.0, 4.0)) == (4.0, 6.0)
    choose = evaluator("select", pair, pair)
    assert choose((True, False), (1.0, 2.0), (3.0, 4.0)) == (1.0, 4.0)
    assert choose(False, (1.0, 2.0), (3.0, 4.0)) == (3.0, 4.0)
    assert evaluator("cast", pair, vector(i32, 2))((1.9, -1.9)) == (1, -1)
    with pytest.raises(KeyError):
        evaluator("load", types.pointer(f32), f32)
