"""The form in the middle of the kernel compiler: what is wrong with a function; its text reads back the same."""

import math

import pytest

import hcq
from hcq import dtypes
from hcq.errors import InvalidProgram
from hcq.kernels import ir, types
from hcq.kernels.ir import Block, Builder, Function, Location, Op, Value
from hcq.kernels.text import parse, print_function
from hcq.kernels.types import bool_, f16, f32, f64, i8, i32, i64, pointer, u8, u64, vector
from hcq.kernels.verify import verify


def saxpy():
    """if i < n: y[i] = a * x[i] + y[i], and a loop with every way to leave it."""
    a, x, y, n = (Value(t, s) for s, t in (("a", f32), ("x", pointer(f32)), ("y", pointer(f32)), ("n", i32)))
    function = Function("saxpy", [a, x, y, n], file='a "b".py')
    b = Builder(function.body)
    b.location = Location("k.py", 3, 5, Location("m.py", 9, 1))
    i = b.id("global_id", 0)
    i.name = "i"
    tile = b.op("local", (), (pointer(f32, "local"),), name="tile", count=64).result
    b.op("barrier")
    start = b.const(0, i32)
    less = b.binary("lt", i, n)
    then, other = Builder(Block()), Builder(Block())
    value = then.binary("add", then.binary("mul", a, then.load(x, i)), then.load(tile, i))
    then.store(y, i, value)
    then.op("yield", (value,))
    other.op("yield", (a,))
    chosen = b.op("if", (less,), (f32,), (then.block, other.block)).result
    index, total = Value(i32, "k"), Value(f32, "total")
    inner = Builder(Block([index, total]))
    leave = Builder(Block())
    leave.op("break", (total,))
    stay = Builder(Block())
    stay.op("yield")
    inner.op("if", (inner.binary("gt", index, n),), (), (leave.block, stay.block))
    inner.op("continue", (inner.binary("add", total, chosen),))
    done = b.op("for", (start, n, chosen), (f32,), (inner.block,), step=2).result
    forever, back = Builder(Block([Value(f32, "total")])), Block()
    forever.op("return")
    b.op("loop", (done,), (f64, i8), (forever.block,))
    wide = b.op("load", (x, i), (vector(f32, 4),)).result
    b.op("store", (y, i, wide))
    for number in (math.nan, -math.inf, 0.1 + 0.2, -0.0):
        b.const(number, f64)
    b.op("return")
    assert not back.ops
    return function


def test_text_reads_back_to_the_same_function():
    text = print_function(saxpy())
    again = parse(text)
    assert print_function(again) == text
    assert again.file == 'a "b".py'
    first = next(again.walk())
    assert str(first.location) == "k.py:3:5" and str(first.location.inlined_at) == "m.py:9:1"
    constants = [op.attributes["value"] for op in again.walk() if op.code == "const" and op.result.type is f64]
    assert math.isnan(constants[0]) and constants[1] == -math.inf and constants[2] == 0.1 + 0.2
    assert math.copysign(1, constants[3]) == -1


def test_names_that_are_taken_get_a_number():
    function = Function("f", [Value(i32, "x")])
    b = Builder(function.body)
    for _ in range(3):
        b.binary("add", function.parameters[0], function.parameters[0]).name = "x"
    b.op("return")
    assert [line.split(" =")[0].strip() for line in print_function(function).splitlines()[2:5]] == [
        "%x_1",
        "%x_2",
        "%x_3",
    ]


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("hcq.ir 1", "hcq.ir 2", "expected hcq.ir 1"),
        ("if %less", "if %nothing", "not defined"),
        ("lt %i, %n : bool", "lt %i, %n : f32", "must be bool"),
        ("lt %i, %n", "lt %i, %a", "its operands must be i32, i32"),
        ("lt %i", "almost %i", "no such operation"),
        ("  return\n}", "}", "must end by return"),
        ("  return\n}", "  yield\n}", "must end by return"),
        ("  return\n}\n", "  return\n", "ends too early"),
        ("id : i32", "id : i33", "no kernel type"),
        ("dim=0", "dim=3", "no such id"),
        ("dim=0", "dim=", "expected NAME=VALUE"),
        ("x: ptr<f32, global>", "x: ptr<f32, local>", "pointers to global"),
        ("x: ptr<f32, global>", "x: ptr<f32, moon>", "global, local or private"),
        ("%less = lt", "%i = lt", "defined twice"),
        ("yield\n  }", "  }", "must end by"),
    ],
)
def test_a_damaged_text_is_refused_with_its_line(old, new, why):
    text = """hcq.ir 1 "k.py"
kernel f(a: f32, x: ptr<f32, global>, n: i32) {
  %i = id : i32 {kind="global_id", dim=0}
  %less = lt %i, %n : bool
  if %less {
    store %x, %i, %a
    yield
  } else {
    yield
  }
  return
}
"""
    parse(text)
    assert old in text
    with pytest.raises(InvalidProgram, match=why):
        parse(text.replace(old, new))


def broken(build, results=(), parameters=()):
    function = Function("f", list(parameters))
    b = Builder(function.body)
    build(b)
    b.op("return")
    with pytest.raises(InvalidProgram) as caught:
        verify(function)
    return str(caught.value)


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (lambda b: b.const(1.0, i32), "i32 has no value 1.0"),
        (lambda b: b.const(256, u8), "u8 has no value 256"),
        (lambda b: b.const(True, i8), "no value True"),
        (lambda b: b.const(0.1, f16), "f16 has no value 0.1"),
        (lambda b: b.const(1, bool_), "bool has no value 1"),
        (lambda b: b.binary("div", b.const(1, i32), b.const(1, i32)), "does not take i32"),
        (lambda b: b.binary("floordiv", b.const(1.0, f32), b.const(1.0, f32)), "does not take f32"),
        (lambda b: b.binary("add", b.const(True, bool_), b.const(True, bool_)), "does not take bool"),
        (lambda b: b.op("fma", [b.const(1.0, f32)] * 2, (f32,)), "takes 3 operands"),
        (lambda b: b.op("add", [b.const(1, i32)] * 2, (i64,)), "its result must be i32"),
        (lambda b: b.op("bitcast", [b.const(1, i32)], (f64,)), "differ in bits"),
        (lambda b: b.op("pack", [b.const(1, i32)] * 3, (i32,)), "2, 4, 8 or 16"),
        (lambda b: b.op("load", [b.const(1, i32)] * 2, (i32,)), "must point to"),
        (lambda b: b.op("local", (), (pointer(f32, "private"),), name="t", count=1), "must point to local"),
        (lambda b: b.op("local", (), (pointer(f32, "local"),), name="t", count=0), "no array has 0"),
        (lambda b: b.op("barrier", (), (i32,)), "its results must be none"),
        (lambda b: b.op("yield"), "it must end its block"),
        (lambda b: b.op("for", [b.const(1, i32)] * 2, (), (Block([Value(i32)]),), step=0), "other than 0"),
        (lambda b: b.op("for", [b.const(1, i32)] * 2, (), (Block([Value(i64)]),), step=1), "arguments of its block"),
        (lambda b: b.op("if", [b.const(True, bool_)], (), (Block(),)), "wrong number of blocks"),
        (lambda b: b.op("subgroup", (), (i32,), kind="color"), "nothing of a sub-group"),
        (lambda b: b.block.ops.append(Op("add", [Value(i32, "stray")] * 2, [i32])), "not defined before it"),
    ],
)
def test_a_function_that_breaks_a_rule_is_refused(build, why):
    assert why in broken(build)


def test_a_value_is_out_of_reach_after_its_block():
    function = Function("f", [])
    b = Builder(function.body)
    then, other = Builder(Block()), Builder(Block())
    inside = then.const(1, i32)
    then.op("yield")
    other.op("yield")
    b.op("if", (b.const(True, bool_),), (), (then.block, other.block))
    b.unary("neg", inside)
    b.op("return")
    with pytest.raises(InvalidProgram, match="not defined before it"):
        verify(function)


def test_an_atomic_works_on_words_of_memory_that_is_shared():
    x = Value(pointer(f16), "x")
    zero = [0]

    def build(b):
        zero[0] = b.const(0, i32)
        b.op("atomic", (x, zero[0], b.const(0.0, f16)), (f16,), how="add")

    assert "no atomic operation works on f16" in broken(build, parameters=[x])


def test_promotion_is_numpys():
    import numpy as np

    for a in types.SCALARS:
        for b in types.SCALARS:
            if types.bf16 in (a, b):
                continue
            wanted = np.result_type(np.empty(0, a.dtype.numpy), np.empty(0, b.dtype.numpy))
            assert types.promote(a, b).dtype.numpy == wanted, (a, b)
            assert types.promote(a, b) is types.promote(b, a)


def test_a_python_number_takes_the_other_operands_type():
    assert types.of_weak(3, f16) is f16
    assert types.of_weak(3, u8) is u8
    assert types.of_weak(1.5, f16) is f16
    assert types.of_weak(1.5, i8) is f64
    assert types.of_weak(True, i8) is i8
    assert types.of_weak(3) is i32 and types.of_weak(1 << 40) is i64 and types.of_weak(1 << 63) is u64
    with pytest.raises(OverflowError, match="256 does not fit: u8 holds 0 to 255"):
        types.of_weak(256, u8)


def test_types_are_one_object_each_and_name_elements_of_buffers():
    assert vector(f32, 4) is vector(f32, 4) and pointer(f32) is pointer(f32, "global")
    assert types.of_dtype(dtypes.float32) is f32 and types.of_dtype("int8") is i8
    assert dtypes.of(f32) is dtypes.float32 and f32.itemsize == 4
    assert hcq.empty((2, 3), f32, "CPU").numpy().shape == (2, 3)
    with pytest.raises(TypeError, match="complex64"):
        types.of_dtype(dtypes.complex64)
    with pytest.raises(TypeError, match="2, 4, 8 or 16"):
        vector(f32, 3)


def test_every_operation_says_what_it_means():
    for code, info in ir.OPS.items():
        assert info.meaning, code
        assert (info.result is None) == (code in ("store", "barrier", *ir.TERMINATORS)), code
