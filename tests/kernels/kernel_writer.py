"""Random kernels: text in the kernel language over all types, that is free of races and stays in bounds by its form.

`Kernel(random)` makes one: a tree of statements, `text()` its module. What does not live here: running them.
What it leaves out is what may differ: payloads and signs of NaN (a copysign takes its sign from no NaN, a bitcast
reads none), which of two zeros min and max give (0.0 is added), old values of atomics, the order of floats' atomics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

import hcq

if TYPE_CHECKING:
    import random

INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("f16", "bf16", "f32", "f64")
TYPES = ("bool_", *INTEGERS, *FLOATS)
INPUT = 32
"""Elements of each input."""
OWN = 8
"""Elements of each output that a work-item has of its own."""
MATH = ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "cbrt", "sin", "cos", "tan", "asin", "acos", "atan")
MATH += ("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc")
NAMES = ("a", "int", "double", "register", "größe", "select", "restrict", "i32", "λ", "const", "signed", "NAN", "x_1")
NAMES += (
    "volatile",
    "_0",
    "NULL",
    "linux",
    "main",
    "add",
    "ret",
    "define",
    "uint32_t",
    "memcpy",
    "hcq_kernel",
    "group",
    "auto",
    "bool",
)
SHARED = {"add": "u32", "sub": "i64", "min": "i32", "max": "u64", "and": "i64", "or": "u32", "xor": "i32"}
"""Each kind of atomic has a buffer of its own, of this type: their order then does not matter."""
FLOAT_VALUES = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 0.1, 7.75, -100.0, 6e4, 1e-5, 2.0**-24, 1e-40, 3e38, 1e300)
FLOAT_VALUES += (float("inf"), float("-inf"), float("nan"))


def is_float(name):
    return name in FLOATS


def bits(name):
    return 8 if name == "bool_" else int(name.lstrip("iufb"))


class Kernel:
    """A random kernel; `body`, its statements, may be taken apart: a statement is a line, or a head and a block."""

    def __init__(self, random: random.Random) -> None:
        self.random = random
        self.groups, self.items = self.pick([(1, 1), (1, 5), (2, 4), (3, 8), (1, 33), (2, 16)])
        names = list(NAMES)
        self.shuffle(names)
        self.inputs = {names.pop(): self.pick(TYPES) for _ in range(self.count(1, 3))}
        self.outputs = {names.pop(): self.pick(TYPES) for _ in range(self.count(1, 3))}
        self.numbers = {names.pop(): self.pick(TYPES) for _ in range(self.count(0, 2))}
        self.scalars = {names.pop(): self.pick(TYPES) for _ in range(self.count(2, 5))}
        self.vectors = {f"w{at}": (self.pick(TYPES), self.pick([2, 4, 8])) for at in range(self.count(0, 2))}
        self.tiles = {f"tile{at}": self.pick(TYPES) for at in range(self.count(0, 2))}
        self.arrays = {f"own{at}": self.pick(TYPES) for at in range(self.count(0, 2))}
        self.pointers: dict[str, str] = {}  # into inputs, with half of them in reach
        self.aliases: list[str] = []  # of private arrays, among self.arrays
        self.shared = {f"shared_{how}": how for how in SHARED if self.chance(0.15)}
        self.helpers: list[tuple[str, list[str], str, str]] = []
        self.loops: list[str] = []
        self.made = 0
        self.left = 12
        for at in range(self.count(0, 2)):
            self.helpers.append(self.helper(f"help{at}"))
        self.body = self.head()
        self.body += self.block(self.count(1, 4), depth=1, uniform=True, leave=False, loop=False)
        self.body += self.block(self.count(1, 6), depth=1, uniform=False, leave=True, loop=False)
        self.body += self.tail()

    # Choices

    def pick(self, of):
        return of[self.random.randrange(len(of))]

    def count(self, low, high):
        return low + self.random.randrange(high - low + 1)

    def chance(self, share):
        """True seldom: what hypothesis shrinks to is False."""
        return self.random.randrange(100) >= 100 - share * 100

    def shuffle(self, names):
        for at in range(len(names) - 1, 0, -1):
            other = self.random.randrange(at + 1)
            names[at], names[other] = names[other], names[at]

    def fresh(self, stem):
        self.made += 1
        return f"{stem}{self.made}"

    # Expressions: each gives exactly the type that is asked for

    def constant(self, name):
        """A weak constant of the type."""
        if name == "bool_":
            return self.pick(["True", "False"])
        if is_float(name):
            return self.pick(["0.5", "1.0", "-2.25", "3", "0.0", "-1.5", "100.0", "2", "0.1", "-0.0"])
        most = 2 ** (bits(name) - (name[0] == "i")) - 1
        values = [0, 1, 2, 3, 7, 100, most, most - 1, most // 3]
        return str(self.pick(values + ([-1, -2, -7, -most - 1] if name[0] == "i" else [])))

    def leaf(self, name):
        """Something of the type without operations, or a cast of what there is."""
        found = [each for each, type_ in {**self.scalars, **self.numbers}.items() if type_ == name]
        found += [f"{each}[{self.index(INPUT, 0)}]" for each, type_ in self.inputs.items() if type_ == name]
        if found and not self.chance(0.2):
            return self.pick(found)
        if self.chance(0.3):
            return f"hcq.{name}({self.constant(name)})"
        readable = [*self.scalars, *self.numbers, *self.loops, *self.ids()]
        return f"hcq.{name}({self.pick(readable)})"

    def ids(self):
        return ["hcq.global_id(0)", "hcq.local_id(0)", "hcq.group_id(0)", "hcq.num_groups(0)", "hcq.local_size(0)"]

    def index(self, size, depth=1):
        """An index below a power of two; & keeps what overflows out of it."""
        if self.chance(0.3):
            return str(self.random.randrange(size))
        readable = [each for each, type_ in self.scalars.items() if type_ in INTEGERS and type_ not in ("i8", "u8")]
        value = self.pick([*readable, *self.loops, *self.ids()])
        if depth and self.chance(0.4):
            value = self.expression(self.pick(["i32", "u32", "i64", "u16"]), depth - 1)
        return f"hcq.i32({value} & {size - 1})"

    def expression(self, name, depth):
        if depth <= 0:
            return self.leaf(name)
        kind = self.random.randrange(14)
        if kind == 0:
            return self.leaf(name)
        if kind == 1:
            return f"({self.expression(name, depth - 1)} if {self.condition(depth - 1)} else {self.leaf(name)})"
        if kind == 2:
            arguments = f"{self.condition(depth - 1)}, {self.expression(name, depth - 1)}, {self.leaf(name)}"
            return f"hcq.{name}(hcq.where({arguments}))"
        if kind == 3:
            other = self.pick(TYPES)
            return f"hcq.{name}({self.expression(other, depth - 1)})"
        if kind == 4:
            return self.mixed(name, depth)
        if kind == 5:
            return self.memory(name, depth)
        if kind == 6 and self.vectors:
            return self.of_vector(name, depth)
        if kind == 7 and self.helpers:
            return self.call(name, depth)
        if kind == 8:
            low, high = self.expression(name, depth - 1), self.expression(name, depth - 1)
            if is_float(name):
                return f"({self.pick(['min', 'max', 'hcq.minimum', 'hcq.maximum'])}({low}, {high}) + 0.0)"
            if name != "bool_":
                return f"{self.pick(['min', 'max'])}({low}, {high})"
        if kind == 9 and is_float(name):
            return self.of_floats(name, depth)
        if kind == 10 and name != "bool_":
            return self.of_bits(name, depth)
        return self.operation(name, depth)

    def operation(self, name, depth):
        """An operator on two of one type, or one and a constant."""
        if name == "bool_":
            return self.condition(depth)
        a, b = self.expression(name, depth - 1), self.expression(name, depth - 1)
        signs = ["+", "-", "*", "//", "%"]
        if is_float(name):
            signs += ["/", "/"]
        else:
            signs += ["&", "|", "^", "<<", ">>", "**"]
        sign = self.pick(signs)
        if sign == "**":
            return f"({a} ** {self.pick(['2', '3', '5', b])})"
        if self.chance(0.3):
            weak = self.constant(name)
            a, b = self.pick([(a, weak), (weak, b)])
        return f"({a} {sign} {b})"

    def mixed(self, name, depth):
        """An operator on two types, which promotes, converted to the type."""
        first, second = self.pick(TYPES), self.pick(TYPES)
        if first == second == "bool_":
            second = "i32"
        a, b = self.expression(first, depth - 1), self.expression(second, depth - 1)
        return f"hcq.{name}({a} {self.pick(['+', '-', '*', '/', '//', '%'])} {b})"

    def memory(self, name, depth):
        """An element of an input, through a pointer that was moved, or of a private array."""
        places = [
            (f"({each} + {self.index(INPUT // 2, 0)})[{self.index(INPUT // 2, depth - 1)}]", type_)
            for each, type_ in self.inputs.items()
        ]
        places += [(f"{each}[{self.index(INPUT, depth - 1)}]", type_) for each, type_ in self.inputs.items()]
        places += [(f"{each}[{self.index(OWN, depth - 1)}]", type_) for each, type_ in self.arrays.items()]
        places += [(f"{each}[{self.index(INPUT // 2, depth - 1)}]", type_) for each, type_ in self.pointers.items()]
        if not places:  # in a helper
            return self.leaf(name)
        text, type_ = self.pick(places)
        return text if type_ == name else f"hcq.{name}({text})"

    def of_floats(self, name, depth):
        x = self.expression(name, depth - 1)
        kind = self.random.randrange(8)
        if kind == 0:
            return f"hcq.{self.pick(MATH)}({x})"
        if kind == 1:
            return f"hcq.{self.pick(['pow', 'atan2', 'hypot', 'fmod'])}({x}, {self.leaf(name)})"
        if kind == 2:
            sign = self.expression(name, depth - 1)
            other = self.fresh("s")
            return f"hcq.copysign({x}, hcq.{name}(hcq.where(hcq.isnan({other} := {sign}), 1.0, {other})))"
        if kind == 3:
            return f"hcq.fma({x}, {self.leaf(name)}, {self.expression(name, depth - 1)})"
        if kind == 4:
            return f"(-{x})"
        return f"{self.pick(['abs', 'hcq.sqrt', 'hcq.floor', 'hcq.ceil', 'hcq.trunc', 'hcq.rint'])}({x})"

    def of_bits(self, name, depth):
        """Bits of a float as an integer, or those of an integer as a float; counts of bits."""
        width = bits(name)
        if is_float(name):
            return f"hcq.bitcast({self.expression(f'u{width}', depth - 1)}, hcq.{name})"
        kind = self.random.randrange(5)
        if kind == 0 and width > 8:
            other = self.pick([each for each in FLOATS if bits(each) == width])
            x = self.fresh("s")
            held = f"hcq.where(hcq.isnan({x} := {self.expression(other, depth - 1)}), 0.0, {x})"
            return f"hcq.bitcast({held}, hcq.{name})"
        x = self.expression(name, depth - 1)
        return [f"(~{x})", f"(-{x})", f"abs({x})", f"hcq.popcount({x})", f"hcq.clz({x})", f"hcq.ctz({x})"][kind]

    def of_vector(self, name, depth):
        """A lane of a vector, or something of all of them."""
        which = self.pick(list(self.vectors))
        type_, lanes = self.vectors[which]
        if type_ == "bool_" or self.chance(0.4):
            return f"hcq.{name}({which}[{self.random.randrange(lanes)}])"
        text = f"({self.vector(type_, lanes, depth - 1)}).{self.pick(['sum', 'min', 'max'])}()"
        return f"hcq.{name}({text} + 0.0)" if is_float(type_) else f"hcq.{name}({text})"

    def call(self, name, depth):
        which, given, gives, _ = self.pick(self.helpers)
        arguments = ", ".join(self.expression(each, depth - 2) for each in given)
        return f"hcq.{name}({which}({arguments}){'[0]' if gives == 'pair' else ''})"

    def condition(self, depth):
        kind = self.random.randrange(8)
        sign = self.pick(["<", "<=", ">", ">=", "==", "!="])
        if kind == 0 or depth <= 0:
            name = self.pick(TYPES[1:])
            return f"({self.leaf(name)} {sign} {self.constant(name)})"
        if kind == 1:
            joined = self.pick(["and", "or"])
            return f"({self.condition(depth - 1)} {joined} {self.condition(depth - 1)})"
        if kind == 2:
            return f"(not {self.condition(depth - 1)})"
        if kind == 3:
            name = self.pick(TYPES[1:])
            return f"({self.leaf(name)} <= {self.expression(name, depth - 1)} < {self.leaf(name)})"
        if kind == 4:
            return f"({self.condition(depth - 1)} {self.pick(['&', '|', '^'])} {self.condition(depth - 1)})"
        if kind == 5:
            return f"hcq.{self.pick(['isnan', 'isinf', 'isfinite'])}({self.expression(self.pick(FLOATS), depth - 1)})"
        if kind == 6:
            return f"hcq.bool_({self.expression(self.pick(TYPES[1:]), depth - 1)})"
        first, second = self.pick(TYPES), self.pick(TYPES)
        return f"({self.expression(first, depth - 1)} {sign} {self.expression(second, depth - 1)})"

    def vector(self, name, lanes, depth):
        """A vector of the type."""
        found = [each for each, type_ in self.vectors.items() if type_ == (name, lanes)]
        kind = self.random.randrange(9)
        if depth <= 0 or kind == 0:
            loads = [each for each, type_ in self.inputs.items() if type_ == name]
            if loads and self.chance(0.6):
                return f"{self.pick(loads)}.load({self.index(INPUT // 2, 0)}, lanes={lanes})"
            return self.pick(found) if found else f"hcq.vec[hcq.{name}, {lanes}]({self.leaf(name)})"
        if kind == 1:
            elements = ", ".join(self.expression(name, depth - 2) for _ in range(lanes))
            return f"hcq.vec[hcq.{name}, {lanes}]({elements})"
        a, b = self.vector(name, lanes, depth - 1), self.vector(name, lanes, depth - 1)
        sign = self.pick(["<", "<=", ">", ">=", "==", "!="])
        if kind == 2:
            return f"hcq.where({a} {sign} {b}, {a}, {b})"
        if kind == 3:
            other = self.pick(TYPES)
            return f"hcq.{name}({self.vector(other, lanes, depth - 1)})"
        if name == "bool_":
            other = self.pick(TYPES[1:])
            return f"({self.vector(other, lanes, depth - 1)} {sign} {self.vector(other, lanes, depth - 1)})"
        if kind == 4:
            return f"(-{a})"
        if is_float(name) and kind == 5:
            return f"{self.pick(['abs', 'hcq.sqrt', 'hcq.floor', 'hcq.exp', 'hcq.sin'])}({a})"
        if kind == 6:
            text = f"hcq.{self.pick(['minimum', 'maximum'])}({a}, {b})"
            return f"({text} + 0.0)" if is_float(name) else text
        if kind == 7:
            return f"({a} {self.pick(['+', '-', '*'])} {self.leaf(name)})"
        signs = ["+", "-", "*", "//", "%", "/"] if is_float(name) else ["+", "-", "&", "<<", ">>", "//", "%"]
        return f"({a} {self.pick(signs)} {b})"

    # Statements

    def assignment(self, depth):
        name = self.pick(list(self.scalars))
        type_ = self.scalars[name]
        value = self.expression(type_, self.count(1, 3))
        if type_ == "bool_":
            return f"{name} {self.pick(['=', '&=', '|=', '^='])} {value}"
        sign = self.pick(["=", "=", "+=", "-=", "*=", "//=", "%="] + ([] if is_float(type_) else ["^=", ">>=", "<<="]))
        return f"{name} {sign} {value}"

    def block(self, length, depth, uniform, leave, loop):
        """Statements. `uniform`: all work-items come here, so barriers may; `leave`: `return` may; `loop`: in one."""
        made = []
        for _ in range(length):
            self.left -= 1
            made += self.statement(depth, uniform, leave, loop) if self.left >= 0 else []
        return made

    def statement(self, depth, uniform, leave, loop):
        kind = self.random.randrange(20 if depth < 4 else 11)
        if kind < 4:
            return [self.assignment(depth)]
        if kind == 4 and self.vectors:
            name = self.pick(list(self.vectors))
            return [f"{name} = {self.vector(*self.vectors[name], self.count(1, 2))}"]
        if kind == 5:
            return [self.store()]
        if kind == 6 and self.arrays:
            name = self.pick(list(self.arrays))
            value = self.expression(self.arrays[name], 2)
            return [f"{name}[{self.index(OWN)}] = {value}"]
        if kind == 7 and self.shared:
            name = self.pick(list(self.shared))
            how = self.shared[name]
            return [f"hcq.atomic_{how}({name}, {self.index(4)}, {self.expression(SHARED[how], 2)})"]
        if kind == 8 and len(self.scalars) > 1:
            return [self.swap()]
        if kind == 9 and uniform and self.tiles:
            return self.exchange()
        if kind == 10 and (self.pointers or self.aliases) and self.chance(0.6):
            return [self.pointing()]
        if kind == 10 and loop:
            return [(f"if {self.condition(1)}:", [self.pick(["break", "continue"])])]
        if kind == 11 and leave:
            return [(f"if {self.condition(1)}:", [*self.block(1, depth + 1, False, True, loop), "return"])]
        if 11 < kind < 15:
            return self.branches(depth, leave, loop)
        if 15 <= kind < 19:
            return self.loop(depth, uniform, leave)
        return [self.assignment(depth)]

    def branches(self, depth, leave, loop):
        made = [(f"if {self.condition(2)}:", self.block(self.count(1, 3), depth + 1, False, leave, loop))]
        for _ in range(self.count(0, 1)):
            made.append((f"elif {self.condition(2)}:", self.block(self.count(1, 2), depth + 1, False, leave, loop)))
        if self.chance(0.5):
            made.append(("else:", self.block(self.count(1, 2), depth + 1, False, leave, loop)))
        return made

    def loop(self, depth, uniform, leave):
        kind = self.random.randrange(4)
        index = self.fresh("k")
        if kind == 0:  # all work-items take each round together
            bounds = self.pick(["3", "1, 6, 2", "5, 0, -2", "0"])
            head = f"for {index} in {self.pick(['range', 'hcq.static_range'])}({bounds}):"
            self.loops.append(index)
            body = self.block(self.count(1, 3), depth + 1, uniform, False, False)
            self.loops.pop()
            return [(head, body)]
        if kind == 3:
            test = f"while {index} < {self.count(1, 5)} and {self.condition(1)}:"
            body = [f"{index} += 1", *self.block(self.count(1, 3), depth + 1, False, leave, True)]
            return [f"{index} = hcq.i32(0)", (test, body)]
        start, stop, step = self.pick([("0", "4", "1"), ("7", "-1", "-3"), ("-2", "3", "2"), ("0", None, "1")])
        if stop is None or self.chance(0.4):
            stop = self.index(4)
        if self.chance(0.3):
            start = f"hcq.{self.pick(['i32', 'i64', 'u32'])}({self.index(4)})"
            stop, step = self.index(8), "1"
        self.loops.append(index)
        body = self.block(self.count(1, 3), depth + 1, False, leave, True)
        self.loops.pop()
        return [(f"for {index} in range({start}, {stop}, {step}):", body)]

    def swap(self):
        """Two variables at once; one may go through the other's type."""
        first, second = self.pick(list(self.scalars)), self.pick(list(self.scalars))
        if first == second:
            return self.assignment(1)
        a, b = f"hcq.{self.scalars[first]}({second})", f"hcq.{self.scalars[second]}({first})"
        return f"{first}, {second} = {a}, {b}"

    def pointing(self):
        """A pointer, or a name of a private array, comes to mean another; where, depends on conditions around."""
        if self.aliases and (not self.pointers or self.chance(0.4)):
            name = self.pick(self.aliases)
            return f"{name} = {self.pick([each for each in self.arrays if self.arrays[each] == self.arrays[name]])}"
        name = self.pick(list(self.pointers))
        return f"{name} = {self.place(self.pointers[name])}"

    def place(self, type_):
        """A place in the first half of an input of the type."""
        found = [each for each, of in self.inputs.items() if of == type_]
        moved = f"{self.pick(found)} + {self.index(INPUT // 2, 0)}"
        return f"({moved} if {self.condition(1)} else {self.pick(found)})" if self.chance(0.4) else moved

    def exchange(self):
        """Through local memory: each work-item writes its element, and reads another's after the barrier."""
        tile = self.pick(list(self.tiles))
        name = self.pick(list(self.scalars))
        other = f"(hcq.local_id(0) + {self.index(16)}) % {self.items}"
        return [
            f"{tile}[hcq.local_id(0)] = {self.expression(self.tiles[tile], 2)}",
            "hcq.barrier()",
            f"{name} = hcq.{self.scalars[name]}({tile}[{other}])",
            "hcq.barrier()",
        ]

    def store(self):
        """An element that is this work-item's own, or several."""
        name = self.pick(list(self.outputs))
        type_ = self.outputs[name]
        alike = [each for each, of in self.vectors.items() if of[0] == type_]
        if alike and self.chance(0.5):
            vector = self.pick(alike)
            return f"{name}.store(hcq.global_id(0) * {OWN} + {OWN - self.vectors[vector][1]}, {vector})"
        place = f"{name}[hcq.global_id(0) * {OWN} + {self.index(OWN)}]"
        return f"{place} {self.pick(['=', '=', '+=']) if type_ != 'bool_' else '='} {self.expression(type_, 3)}"

    def head(self):
        """Every variable and array has a value."""
        vectors, self.vectors = self.vectors, {}
        arrays, self.arrays = self.arrays, {}
        scalars, self.scalars = self.scalars, {}
        made = [f"{tile} = hcq.local(hcq.{type_}, {self.items})" for tile, type_ in self.tiles.items()]
        for name, type_ in arrays.items():
            made.append(f"{name} = hcq.private(hcq.{type_}, {OWN})")
            made.append((f"for k in range({OWN}):", [f"{name}[k] = {self.expression(type_, 1)}"]))
        for name, type_ in scalars.items():
            made.append(f"{name} = hcq.{type_}({self.expression(type_, 1)})")
            self.scalars[name] = type_
        for name, of in vectors.items():
            made.append(f"{name} = {self.vector(*of, 1)}")
            self.vectors[name] = of
        self.arrays = arrays
        for at in range(self.count(0, 2)):
            type_ = self.pick(list(self.inputs.values()))
            made.append(f"p{at} = {self.place(type_)}")
            self.pointers[f"p{at}"] = type_
        if arrays and self.chance(0.5):
            name = self.pick(list(arrays))
            made.append(f"alias = {name}")
            self.aliases = ["alias"]
            self.arrays = {**arrays, "alias": arrays[name]}
        return made

    def tail(self):
        """What the variables are in the end is in the outputs."""
        made = []
        outputs = list(self.outputs.items())
        for at, name in enumerate(self.scalars):
            output, type_ = outputs[at % len(outputs)]
            made.append(f"{output}[hcq.global_id(0) * {OWN} + {at}] = hcq.{type_}({name})")
        return made

    def helper(self, name):
        """A function that returns one number, or a pair: its name, parameters' types, what it gives, and its text."""
        given = [self.pick(TYPES) for _ in range(self.count(1, 2))]
        gives = self.pick(["pair", *TYPES])
        kept = self.inputs, self.numbers, self.scalars, self.vectors, self.arrays
        self.inputs, self.numbers, self.vectors, self.arrays = {}, {}, {}, {}
        self.scalars = {f"p{at}": type_ for at, type_ in enumerate(given)}
        self.scalars["v"] = self.pick(TYPES)
        type_ = self.scalars["v"]
        closing = "v, p0" if gives == "pair" else f"hcq.{gives}(v)"
        lines = [f"def {name}({', '.join(f'p{at}' for at in range(len(given)))}):"]
        lines.append(f"    v = hcq.{type_}(p0)")
        if self.chance(0.5):
            early = self.expression(type_, 1)
            lines.append(f"    if {self.condition(1)}:")
            early = f"hcq.{type_}({early})"
            lines.append(f"        return {early}, p0" if gives == "pair" else f"        return hcq.{gives}({early})")
        lines.append("    for j in range(3):")
        lines.append(f"        v = hcq.{type_}({self.expression(type_, 2)})")
        lines.append(f"    return {closing}")
        self.inputs, self.numbers, self.scalars, self.vectors, self.arrays = kept
        return name, given, gives, "\n".join(lines)

    # The module, and what it is called with

    def text(self):
        parameters = [f"{name}: hcq.ptr[hcq.{type_}]" for name, type_ in {**self.inputs, **self.outputs}.items()]
        parameters += [f"{name}: hcq.ptr[hcq.{SHARED[how]}]" for name, how in self.shared.items()]
        parameters += [f"{name}: hcq.{type_}" for name, type_ in self.numbers.items()]
        helpers = "".join(f"\n\n{text}\n" for *_, text in self.helpers)
        body = "\n".join(lines_of(self.body, 1))
        return f"import hcq\n{helpers}\n\n@hcq.kernel\ndef kernel({', '.join(parameters)}):\n{body}\n"

    def arguments(self):
        """What it is launched with: arrays, in the order of its parameters. The same ones each time."""
        rng = np.random.default_rng(0)
        made = [values(rng, type_, INPUT) for type_ in self.inputs.values()]
        made += [values(rng, type_, self.groups * self.items * OWN) for type_ in self.outputs.values()]
        made += [values(rng, SHARED[how], 4) for how in self.shared.values()]
        return made + [values(rng, type_, 1)[0] for type_ in self.numbers.values()]


def values(rng, name, count):
    """Values of a type, the awkward ones among them."""
    type_ = getattr(hcq, name)
    if name == "bool_":
        return rng.integers(0, 2, count).astype(bool)
    if type_.is_float:
        chosen = np.where(rng.random(count) < 0.5, rng.choice(FLOAT_VALUES, count), rng.normal(0, 3, count))
        with np.errstate(all="ignore"):
            return chosen.astype(type_.dtype.numpy)
    low, high = type_.range
    edges = np.array([low, high, 0, 1, 2, 3, high // 3, high - 1, low + 1], dtype=type_.dtype.numpy)
    small = rng.integers(0, 20, count).astype(type_.dtype.numpy)
    return np.where(rng.random(count) < 0.4, rng.choice(edges, count), small)


def lines_of(block, depth):
    """A block's lines; an empty one passes."""
    pad = "    " * depth
    if not block:
        return [f"{pad}pass"]
    made = []
    for each in block:
        if isinstance(each, str):
            made.append(pad + each)
        else:
            made += [pad + each[0], *lines_of(each[1], depth + 1)]
    return made
