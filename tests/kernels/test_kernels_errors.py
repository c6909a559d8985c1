"""Mistakes in kernels: each is a CompileError at the user's line and column that says what to write instead."""

from __future__ import annotations

import importlib.util
import math
import pickle
import re

import pytest

import hcq

HEAD = """import math
import numpy as np
import hcq
SETTINGS = {"a": 1}
NAME = "text"
def looped(x, n):
    for i in range(n):
        if x[i] > 0:
            return i
        if x[i] < 0:
            return
    return n
def recursive(x):
    return recursive(x)
def sometimes(c):
    if c:
        return 1.0
def two(n):
    for i in range(n):
        if i > 3:
            return i
        if i > 2:
            return 0.5
    return 1
def many(*values):
    return values[0]
square = lambda x: x * x
@hcq.kernel
def f(o: hcq.ptr[hcq.f32], x: hcq.ptr[hcq.i32], n: hcq.i32, a: hcq.f32, c: hcq.constexpr = 4):
"""

# § stands before what is at fault; then what the message and what the hint say.
CASES = [
    # Statements that are not part of the language, by name
    ("§with open(NAME): pass", "'with' is not part", "barrier"),
    ("§try:\n    o[0] = 1\nfinally:\n    o[0] = 2", "'try' is not part", ""),
    ("§raise ValueError", "'raise' is not part", "flag"),
    ("§del n", "'del' is not part", ""),
    ("§import os", "'import' is not part", "outside"),
    ("§global NAME", "'global' is not part", "memory"),
    ("§def g(): pass", "'a function inside a kernel'", "outside"),
    ("§class G: pass", "'a class' is not part", ""),
    ("§match n:\n    case 1: pass", "'match' is not part", "if and elif"),
    ("for i in range(n):\n    pass\nelse:\n    §o[0] = 1", "'else' of a loop", ""),
    ("while n > 0:\n    n -= 1\nelse:\n    §o[0] = 1", "'else' of a loop", ""),
    ("§return n", "a kernel returns nothing", "out\\[i\\]"),
    ("§n + 1", "computes a value and drops it", "assign"),
    ("§assert n > 0", "'assert' of what is known only", ""),
    ("§assert c == 5, 'c must be 5'", "assertion failed: c must be 5", ""),
    # Expressions
    ("o[0] = §[1, 2]", "a list is not part", "private"),
    ("o[0] = sum(§[i for i in range(3)])", "a list comprehension is not part", "loop"),
    ("o[0] = (§lambda v: v)(1)", "a lambda is not part", "def"),
    ("o[0] = §square(n)", "a lambda can't be part", "def"),
    ("o[0] = §{}[0]", "a dict is not part", ""),
    ("o[0] = §f'{n}'", "an f-string is not part", ""),
    ("o[0] = §1j", "complex", ""),
    ("o[0] = o[§1:2]", "a slice is not part", "lanes=4"),
    ("o[0] = §n @ n", "the operator @ is not part", ""),
    # Names
    ("o[0] = §nowhere", "there is no name nowhere", ""),
    ("o[0] = §v\nv = 1", "v has no value here", "before this line"),
    ("if n > 0:\n    v = 1.0\no[0] = §v", "v may have no value here", "before the condition"),
    ("for i in range(n):\n    v = 1.0\no[0] = §v", "v is set only in the loop", "before the loop"),
    ("for i in range(n):\n    pass\no[0] = §i", "i is the index of a loop", "another variable"),
    ("o[0] = §SETTINGS['a']", "has no elements", ""),
    ("o[0] = §np.linalg.norm(n)", "can't call", "builtins of hcq"),
    ("o[0] = §print(n)", "can't call", "prints nothing"),
    ("o[0] = §math.nothing", "nothing", ""),
    ("o[0] = §n.real", "i32 has no real", ""),
    ("o[0] = §o.shape", "has no shape", "load"),
    # Types
    ("o[0] = n\n§x[0] = a", "f32 can't be stored as i32", "hcq.i32"),
    ("§x[0] = a", "f32 can't be stored as i32", "hcq.i32"),
    ("§x[0] = 1.5", "the float 1.5 is no i32", "hcq.i32"),
    ("§x[0] = 1 << 40", "1099511627776 does not fit: i32", ""),
    ("v = §hcq.u8(1) + 300", "300 does not fit: u8 holds 0 to 255", "convert"),
    ("o[§a] = 1", "an index is an integer, not f32", "hcq.i32"),
    ("o[§0.0] = 1", "an index is an integer, not the float 0.0", ""),
    ("o[§0, 1] = 1", "one dimension", "row \\* columns"),
    ("o[0] = §(n > 0) + (a > 0)", "\\+ of two conditions", "hcq.i32"),
    ("o[0] = §-(n > 0)", "- of a condition", "not c"),
    ("o[0] = §a & 1", "& works on integers", "bitcast"),
    ("o[0] = §~a", "~ works on integers", "bitcast"),
    ("o[0] = §n and 1.0", "'and' joins conditions", "n != 0"),
    ("o[0] = §o + o", "two pointers", "indices"),
    ("o[0] = §o * 2", "\\* works on numbers, not on ptr", ""),
    ("if §o:\n    o[0] = 1", "a condition must be a number", ""),
    ("o[0] = §n ** -1", "an integer to a negative power", "hcq.f32"),
    ("o[0] = §1 // 0", "division by zero|modulo by zero", ""),
    ("o[0] = a if §o.load(0, 4) > 0 else 1.0", "a condition is one bool", "hcq.where"),
    ("§o[0] = o.load(0, lanes=4)", "one element can't hold f32x4", "store"),
    ("o[0] = §o.load(0, lanes=3)", "1, 2, 4, 8 or 16 lanes, not 3", ""),
    ("v = hcq.vec[hcq.f32, 4](1.0)\n§v[0] = 1.0", "an element of a vector can't be set", "new one"),
    ("v = hcq.vec[hcq.f32, 4](1.0)\no[0] = v[§4]", "there is no element 4", ""),
    ("o[0] = §hcq.vec[hcq.f32, 3](1.0)[0]", "2, 4, 8 or 16", ""),
    ("o[0] = §hcq.vec[hcq.f32, 4](1.0, 2.0)[0]", "takes 1 or 4 values", ""),
    ("v: §int = 1", "a variable's type is a scalar", ""),
    # Values that ways bring together
    ("if n > 0:\n    v = n\nelse:\n    v = a\no[0] = §v", "v is i32 and f32, depending on a condition", "convert"),
    ("if n > 0:\n    p = x\nelse:\n    p = o\no[0] = §p[0]", "p is ptr<i32, global> and ptr<f32, global>", "one type"),
    (
        "p = §x if n > 0 else hcq.local(hcq.i32, 4)\no[0] = p[0]",
        "this is ptr<i32, global> and ptr<i32, local>",
        "memory",
    ),
    ("if n > 0:\n    p = x\nelse:\n    p = 1\no[0] = §p[0]", "p depends on a condition", "outside"),
    (
        "s = hcq.i32(0)\nfor i in range(n):\n    s = §s + a\no[0] = s",
        "s is i32 where the loop begins and f64",
        "hcq.i32",
    ),
    ("p = x\nfor i in range(n):\n    p = o\no[0] = §p[0]", "p changes in the loop", "unroll"),
    ("v = two(n)§", "what the function returns is i32 where the loop begins", "return hcq.i32"),
    ("v = §sometimes(n > 0)\no[0] = v", "what sometimes returns", ""),
    ("§v = looped(x, n)", "a 'return' without a value", ""),
    # Loops
    ("for i in §o:\n    pass", "a loop goes over range", "range\\(n\\)"),
    ("for i in range(§a):\n    pass", "range takes integers", ""),
    ("for i in range(0, n, §n):\n    pass", "the step of a range must be a whole number that is known", "constexpr"),
    ("for i in range(0, n, §0):\n    pass", "must not be 0", ""),
    ("for i in hcq.static_range(§n):\n    pass", "must be a whole number that is known", "constexpr"),
    ("for i in hcq.static_range(4):\n    if n > i:\n        §break", "'break' of an unrolled loop", "range"),
    ("§for i in hcq.static_range(1000000):\n    o[i] = 1", "longer than 100000 operations", ""),
    ("o[0] = len(§range(3))", "can't call|the length of", ""),
    # Calls
    ("o[0] = §hcq.fma(a, a)", "fma: missing a required argument", "hcq.fma\\(a, b, c\\)"),
    ("o[0] = §hcq.global_id(n)", "a dimension must be a whole number that is known", ""),
    ("o[0] = §hcq.global_id(3)", "there is no dimension 3", ""),
    ("t = §hcq.local(hcq.f32, n)", "the size of an array must be a whole number that is known", ""),
    ("t = §hcq.local(hcq.f32, 0)", "has no elements", ""),
    ("t = §hcq.local(hcq.f32, 1 << 20)", "4194304 bytes of local memory", "1 MiB"),
    ("t = hcq.local(hcq.f32, 4)\nt[§4] = 1", "there is no element 4", ""),
    ("t = hcq.local(hcq.f32, (4, 4))\nt[§1] = 1", "2 dimensions", ""),
    ("§hcq.atomic_add(o, 0)", "atomic_add: missing", "hcq.atomic_add\\(pointer, index, value\\)"),
    ("§hcq.atomic_or(o, 0, 1)", "atomic_or works on integers", ""),
    ("§hcq.atomic_add(n, 0, 1)", "works on a pointer", ""),
    ("o[0] = §hcq.bitcast(a, hcq.u16)", "bitcast from f32 to u16", "as many bits"),
    ("o[0] = §hcq.popcount(a)", "integers", "bitcast"),
    ("o[0] = §math.floor(a)", "can't call", "hcq.floor"),
    ("o[0] = §recursive(a)", "recursive calls itself", ""),
    ("o[0] = §many(a)", "takes \\*values", "fixed"),
    ("o[0] = §f[1, 2](o)", "has no elements", ""),
    ("o[0] = §hcq.exp(a, a)", "exp takes 1 number", ""),
    ("o[0] = f(§*(1, 2))", "with a star", ""),
    ("§a = None", "None has no place", ""),
    ("§a, b = n", "2 values are expected", ""),
    ("§a, b = 1, 2, 3", "3 values for 2 names", ""),
    ("n = §NAME + 1", "works on numbers", ""),
]


def load(path, text, name):
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("body", "message", "hint"), CASES, ids=[body[:40].replace("§", "") for body, _, _ in CASES])
def test_a_mistake_is_shown_where_it_stands(body, message, hint, tmp_path):
    text = HEAD + "".join(f"    {line}\n" for line in body.splitlines())
    before = text[: text.index("§")]
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    module = load(tmp_path / "case.py", text.replace("§", ""), "case")
    with pytest.raises(hcq.CompileError, match=message) as caught:
        module.f.ir()
    error = caught.value
    place = f"{tmp_path / 'case.py'}:{line}:{column}: "
    if body.startswith("§v = looped"):
        place = f"{tmp_path / 'case.py'}:11:13: "  # the return inside the loop, and where it was called
        assert f"called at {tmp_path / 'case.py'}:{line}:" in error.log
    elif "two(n)" in body:
        place = f"{tmp_path / 'case.py'}:21:13: "
    elif "recursive" in body:
        place = f"{tmp_path / 'case.py'}:14:12: "
    assert error.message.startswith(place)
    assert error.source.lstrip().startswith(("@hcq.kernel", "def "))
    assert re.search(hint, error.log)
    assert "^" in error.log


PARAMETERS = [
    ("def f(§x): pass", "the parameter x has no type", "hcq.ptr"),
    ("def f(§x: int): pass", "is no type of a kernel's parameter", "hcq.f32"),
    ("def f(§x: nowhere): pass", "the type of x, nowhere, is not known", ""),
    ("def f(*§x: hcq.f32): pass", "a kernel has a fixed number", ""),
    ("def f(§x: hcq.ptr[hcq.f32, 'local']): pass", "global memory", ""),
    ("def f(a: hcq.f32, §x: hcq.ptr = 1): pass", "a buffer has no default", ""),
]


@pytest.mark.parametrize(("text", "message", "hint"), PARAMETERS, ids=[text for text, _, _ in PARAMETERS])
def test_a_parameter_that_is_none_of_a_kernels_is_refused(text, message, hint, tmp_path):
    full = f"from __future__ import annotations\nimport hcq\n@hcq.kernel\n{text}\n"
    with pytest.raises(hcq.CompileError, match=message) as caught:
        load(tmp_path / "case.py", full.replace("§", ""), "case")
    assert caught.value.message.startswith(f"{tmp_path / 'case.py'}:4:{text.index('§') + 1}: ")
    assert hint in caught.value.log


def test_an_option_of_launches_names_no_parameter(tmp_path):
    with pytest.raises(TypeError, match="'wait' is an option of launches"):
        load(tmp_path / "case.py", "import hcq\n@hcq.kernel\ndef f(wait: hcq.f32): pass\n", "case")


def test_what_is_no_function_with_a_text_is_no_kernel():
    with pytest.raises(TypeError, match="written with def"):
        hcq.kernel(len)
    with pytest.raises(hcq.CompileError, match="lambda"):
        hcq.kernel(lambda x: 1)
    names = {"hcq": hcq}
    exec("@hcq.kernel\ndef f(n: hcq.i32):\n    pass\n", names)
    with pytest.raises(hcq.CompileError, match="no source"):
        names["f"].ir()

    async def g(n: hcq.i32):
        pass

    with pytest.raises(hcq.CompileError, match="no plain function"):
        hcq.kernel(g).ir()


def test_the_error_shows_the_line_with_a_caret_and_can_be_pickled():
    @hcq.kernel
    def wrong(o: hcq.ptr[hcq.f32], n: hcq.i32):
        o[0] = math.sqrt(n) + undefined  # noqa: F821

    with pytest.raises(hcq.CompileError) as caught:
        wrong.ir()
    picture = caught.value.log.splitlines()
    assert picture[0].strip().startswith("o[0] = math.sqrt(n) + undefined")
    assert picture[0][picture[1].index("^") :].startswith("undefined")
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
