"""Kernels mean what Python and NumPy mean: random expressions and programs, run by both, have the same results."""

from __future__ import annotations

import random
import warnings

import ml_dtypes  # noqa: F401  bfloat16 among NumPy's types
import numpy as np
import pytest
from test_kernels_errors import load

import hcq

TYPES = ("bool_", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "f32", "f64")
EXPRESSIONS = 30
FLOATS = (0.0, -0.0, 1.0, -2.5, 0.1, 3.0, 1e4, -7.75, float("inf"), float("nan"))
CONSTANTS = {
    "i": (0, 1, 2, 3, -1, 100),
    "u": (0, 1, 2, 3, 100),
    "f": (0, 1, -2, 3, 0.5, -1.25, 2.0),
    "b": (True, False),
}


class Writer:
    """Writes expressions over typed parameters as text that is a kernel's and Python's alike."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.values = {}
        for name in TYPES:
            type_ = getattr(hcq, name)
            for number in range(2):
                self.values[f"{name.rstrip('_')}{number}"] = self.value(type_)

    def value(self, type_):
        if type_.kind == "b":
            return np.bool_(self.random.random() < 0.5)
        if type_.is_float:
            return type_.dtype.numpy.type(self.random.choice(FLOATS))
        low, high = type_.range
        return type_.dtype.numpy.type(self.random.choice([low or 0, high, 1, 3, 0, high // 3, -5 if low else 5]))

    def evaluate(self, text):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return eval(text, {"np": np, "abs": abs, "float": float}, dict(self.values))

    def kind(self, text):
        value = self.evaluate(text)
        return np.asarray(value).dtype.kind

    def expression(self, depth):
        """A typed expression."""
        if depth == 0 or self.random.random() < 0.1:
            return self.random.choice(list(self.values))
        x = self.expression(depth - 1)
        kind = self.kind(x)
        if self.random.random() < 0.25:
            return self.of_one(x, kind)
        if self.random.random() < 0.3:  # a weak constant on either side
            constant = repr(self.random.choice(CONSTANTS[kind]))
            a, b = self.random.choice([(x, constant), (constant, x)])
        else:
            a, b = x, self.expression(depth - 1)
        kinds = {self.kind(a), self.kind(b)}
        if kinds == {"b"}:
            return self.random.choice([f"({a} {op} {b})" for op in ("&", "|", "^", "==", "!=")])
        choices = [f"({a} {op} {b})" for op in ("+", "-", "*", "/", "//", "%", "<", "<=", "==", "!=", ">", ">=")]
        choices += [f"np.minimum({a}, {b})", f"np.maximum({a}, {b})", f"np.where({a} < {b}, {a}, {b})"]
        if kinds <= {"i", "u"}:
            choices += [f"({a} {op} {b})" for op in ("&", "|", "^", "<<", ">>")]
        if kinds == {"f"}:
            choices += [f"np.copysign({a}, {b})", f"np.fmod({a}, {b})"]
        return self.random.choice(choices)

    def of_one(self, x, kind):
        """A function of one typed expression."""
        if kind == "b":
            return self.random.choice([f"({x} ^ True)", f"(~{x})", f"np.float32({x})", f"np.int64({x})"])
        choices = [f"(-{x})", f"abs({x})", f"np.float64({x})", f"np.float32({x})"]
        if kind == "f":
            choices += [f"np.{name}({x})" for name in ("sqrt", "floor", "ceil", "trunc", "rint", "isnan", "isinf")]
        else:
            choices += [f"(~{x})", f"np.int64({x})"] if kind == "i" else [f"(~{x})"]
        return self.random.choice(choices)

    def good(self):
        """An expression whose types both sides have, and its value."""
        while True:
            try:
                text = self.expression(self.random.randint(1, 4))
                value = np.asarray(self.evaluate(text))
            except (OverflowError, TypeError):  # a constant that does not fit, or an operation that NumPy lacks
                continue
            if value.dtype.name in {getattr(hcq, name).dtype.name for name in TYPES}:
                return text, value


@pytest.mark.parametrize("device", ["PYTHON", "LLVM", "CLANG"])
@pytest.mark.parametrize("seed", range(6))
def test_expressions_have_numpys_types_and_values(seed, device, tmp_path):
    writer = Writer(seed)
    made = [writer.good() for _ in range(EXPRESSIONS)]
    parameters = [f"{name}: hcq.{name[:-1] if name[:-1] != 'bool' else 'bool_'}" for name in writer.values]
    outputs = [f"o{at}: hcq.ptr" for at in range(EXPRESSIONS)]
    lines = [f"    o{at}[0] = {text}\n    assert o{at}.dtype == ({text}).dtype\n" for at, (text, _) in enumerate(made)]
    source = f"import hcq\nimport numpy as np\n@hcq.kernel\ndef f({', '.join(outputs + parameters)}):\n{''.join(lines)}"
    module = load(tmp_path / "expressions.py", source, "expressions")
    results = [np.zeros(1, value.dtype) for _, value in made]
    module.f[1, 1](*results, *writer.values.values(), device=device)
    for (text, value), result in zip(made, results, strict=True):
        same = result[0] == value or (value != value and result[0] != result[0])
        if value.dtype.kind == "f" and value == 0 and "imum" not in text:  # of two zeros the smaller is either
            same = same and np.signbit(value) == np.signbit(result[0])
        assert same, f"{text} is {value!r}, and {result[0]!r} on {device}: {writer.values}"


# Control flow


class Program:
    """Writes functions of 32-bit integers with branches, loops, calls and early returns."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.helpers = [self.helper(number) for number in range(3)]
        self.body = self.block(3, loops=0, depth=1)

    def number(self):
        return self.random.choice(["a", "b", "c", "d", "n", "x[at % 8]"])

    def expression(self, depth=2):
        if depth == 0 or self.random.random() < 0.2:
            return self.number()
        a, b = self.expression(depth - 1), self.expression(depth - 1)
        if self.random.random() < 0.15:
            return f"help{self.random.randrange(3)}({a}, {b})"
        if self.random.random() < 0.15:
            return f"({a} if {self.condition(1)} else {b})"
        op = self.random.choice(["+", "-", "*", "//", "%", "&", "|", "^"])
        return f"({a} {op} {self.random.choice([b, str(self.random.randint(1, 9))])})"

    def condition(self, depth=1):
        if depth and self.random.random() < 0.3:
            return f"({self.condition(0)} {self.random.choice(['and', 'or'])} {self.condition(0)})"
        if self.random.random() < 0.2:
            return f"{self.number()} < {self.number()} <= {self.number()}"
        return f"{self.expression(1)} {self.random.choice(['<', '>=', '==', '!='])} {self.expression(1)}"

    def block(self, length, loops, depth):
        lines = [line for _ in range(self.random.randint(1, length)) for line in self.statement(loops, depth)]
        return ["    " * depth + line if not line.startswith("    " * depth) else line for line in lines]

    def statement(self, loops, depth):
        pad = "    " * depth
        kind = self.random.random()
        name = self.random.choice("abcd")
        if kind < 0.35 or depth > 4:
            sign = self.random.choice(["=", "=", "+=", "-=", "*=", "^="])
            return [f"{pad}{name} {sign} {self.expression()}"]
        if kind < 0.42:
            return [f"{pad}a, {name} = {name} + 0, a - 1" if name != "a" else f"{pad}x[at % 8] = {self.expression()}"]
        if kind < 0.65:
            lines = [f"{pad}if {self.condition()}:", *self.block(3, loops, depth + 1)]
            if self.random.random() < 0.3:
                lines += [f"{pad}elif {self.condition()}:", *self.block(2, loops, depth + 1)]
            if self.random.random() < 0.5:
                lines += [f"{pad}else:", *self.block(2, loops, depth + 1)]
            return lines
        if kind < 0.78:
            bounds = self.random.choice(["4", "1, 6, 2", "5, 0, -1", "n % 5", "(n ^ a) % 6"])
            return [
                f"{pad}for i{depth} in range({bounds}):",
                f"{pad}    at = at + 1",
                *self.block(3, loops + 1, depth + 1),
            ]
        if kind < 0.88:
            guard = f"{pad}    steps{depth} = steps{depth} + 1"
            head = f"{pad}while steps{depth} < 5 and {self.condition(0)}:"
            return [f"{pad}steps{depth} = n - n", head, guard, *self.block(3, loops + 1, depth + 1)]
        if kind < 0.94 and loops:
            return [f"{pad}if {self.condition()}:", f"{pad}    {self.random.choice(['break', 'continue'])}"]
        if kind < 0.97:
            return [f"{pad}if {self.condition()}:", *self.store(depth + 1), f"{pad}    return"]
        return [f"{pad}{name} = {self.expression(3)}"]

    def store(self, depth):
        return [f"{'    ' * depth}o[{at}] = {name}" for at, name in enumerate("abcd")]

    def helper(self, number):
        r = self.random
        tests = [f"a {r.choice(['<', '>', '=='])} {r.choice(['b', 'a % 3', 'b // 2'])}" for _ in range(3)]
        return f"""
def help{number}(a, b):
    if {tests[0]}:
        c = a + {r.randint(1, 5)}
        if {tests[1]}:
            return c - b
        c = c * 3
    elif {tests[2]}:
        return b ^ a
    else:
        c = b - a
    for k in range(3):
        if k == 2:
            break
        if c % 4 == {number}:
            return c - k
        c = c + a
    return c | {r.randint(1, 7)}
"""

    def text(self):
        body = "\n".join([*self.body, *self.store(1)])
        head = "    a = n * 3\n    b = n - 7\n    c = x[0] + n\n    d = x[1] ^ n\n    at = n & 7\n"
        helpers = "".join(self.helpers)
        named = "o: hcq.ptr[hcq.i32], x: hcq.ptr[hcq.i32], n: hcq.i32"
        return (
            f"import hcq\n{helpers}\ndef plain(o, x, n):\n{head}{body}\n\n@hcq.kernel\ndef f({named}):\n{head}{body}\n"
        )


@pytest.mark.parametrize("device", ["PYTHON", "LLVM", "CLANG"])
@pytest.mark.parametrize("seed", [*range(5), 143, 192])
def test_programs_do_what_python_does(seed, device, tmp_path):
    module = load(tmp_path / "program.py", Program(seed).text(), "program")
    for n in (-9, 0, 3, 100):
        x, y = (np.arange(8, dtype=np.int32) * 5 - 11 for _ in range(2))
        expected, found = np.zeros(4, np.int32), np.zeros(4, np.int32)
        with np.errstate(all="ignore"):
            module.plain(expected, x, np.int32(n))
        module.f[1, 1](found, y, n, device=device)
        assert found.tolist() == expected.tolist(), (tmp_path / "program.py").read_text()
        assert y.tolist() == x.tolist()
