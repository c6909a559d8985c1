"""Random functions in the middle form give the same bits in every language, and on PYTHON, which defines them.

Built below the language, so that they have what no Python function becomes: any type beside any other, loops left from
anywhere, branches that give several values.
"""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_makers import NUMBERS, Maker, items, operations
from test_kernels_lower import edges, loaded, runner, same, stored

import hcq
from hcq.kernels import ir, lower, types
from hcq.kernels.types import bool_, i32, pointer

COUNT = 32  # items, in groups of 16
DEVICES = ("CLANG", "LLVM", "PYTHON")


class Program:
    """Draws a function. `values` are those in reach, by type; every block opens a scope of its own."""

    def __init__(self, data):
        self.data = data
        self.types = data.draw(st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=3, unique=True))
        self.types += [each for each in (i32, bool_) if each not in self.types]
        numbers = [each for each in self.types if each is not bool_]
        self.outs = {f"out_{each}": each for each in numbers}
        parameters = {name: pointer(each) for name, each in self.outs.items()}
        parameters |= {f"in_{each}": pointer(each) for each in numbers}
        self.m = Maker("random", **parameters, **{f"p_{each}": each for each in numbers})
        self.values = {each: [] for each in self.types}
        self.left = 24  # operations
        self.i = items(self.m)
        for each in numbers:
            self.values[each] += [self.m[f"p_{each}"], self.m.b.load(self.m[f"in_{each}"], self.i)]
        self.values[bool_].append(self.m.b.binary("lt", self.i, self.m.const(20)))
        self.tile = self.m.b.op("local", (), (pointer(i32, "local"),), name="tile", count=16).result

    def pick(self, type_):
        return self.data.draw(st.sampled_from(self.values[type_]))

    def operation(self):
        """One pure operation, on values in reach."""
        self.left -= 1
        type_ = self.data.draw(st.sampled_from(self.types))
        b = self.m.b
        if self.data.draw(st.integers(0, 4)) == 0:
            target = self.data.draw(st.sampled_from(self.types))
            self.values[target].append(b.cast(self.pick(type_), target))
            return
        # Which zero min and max give is left open, and the rest of a program would show it.
        codes = operations(type_).keys() - ({"min", "max"} if type_.is_float else set())
        code = self.data.draw(st.sampled_from(sorted(codes)))
        if code == "select":
            value = b.select(self.pick(bool_), self.pick(type_), self.pick(type_))
        elif code in ir.COMPARISONS:
            self.values[bool_].append(b.binary(code, self.pick(type_), self.pick(type_)))
            return
        else:
            value = b.op(code, [self.pick(type_) for _ in range(operations(type_)[code])], (type_,)).result
        self.values[type_].append(value)

    def constant(self):
        type_ = self.data.draw(st.sampled_from(self.types))
        value = self.data.draw(st.sampled_from(edges(type_)))
        self.values[type_].append(self.m.const(value, type_))

    def statements(self, depth, in_loop=None):
        """Some operations, branches and loops."""
        for _ in range(self.data.draw(st.integers(1, 4))):
            choice = self.data.draw(st.integers(0, 9))
            if self.left <= 0:
                return
            if choice < 5:
                self.operation()
            elif choice < 6:
                self.constant()
            elif choice < 8 and depth < 3:
                self.branch(depth, in_loop)
            elif depth < 3:
                self.loop(depth)

    def scope(self):
        return {each: list(values) for each, values in self.values.items()}

    def branch(self, depth, in_loop):
        results = self.data.draw(st.lists(st.sampled_from(self.types), max_size=2))

        def side():
            kept = self.values
            self.values = self.scope()
            self.statements(depth + 1, in_loop)
            given = None
            leave = self.data.draw(st.sampled_from(["", "", "", "break", "continue", "return"]))
            if leave == "return" and depth and self.may_return:
                self.m.b.op("return")
            elif leave in ("break", "continue") and in_loop is not None:
                self.m.b.op(leave, [self.pick(each) for each in in_loop])
            else:
                given = [self.pick(each) for each in results]
            self.values = kept
            return given

        made = self.m.when(self.pick(bool_), side, side, results)
        for type_, value in zip(results, made, strict=True):
            self.values[type_].append(value)

    def loop(self, depth):
        carried = self.data.draw(st.lists(st.sampled_from(self.types), max_size=2))
        initial = [self.pick(each) for each in carried]
        low, high = self.data.draw(st.integers(-3, 3)), self.data.draw(st.integers(-3, 3))
        step = self.data.draw(st.sampled_from([1, 2, -1, -3]))

        def body(index, *arguments):
            kept = self.values
            self.values = self.scope()
            self.values[i32].append(index)
            for type_, value in zip(carried, arguments, strict=True):
                self.values[type_].append(value)
            self.statements(depth + 1, carried)
            given = [self.pick(each) for each in carried]
            self.values = kept
            return given

        bounds = self.m.const(low), self.m.const(high)
        made = self.m.loop(initial, body, bounds=bounds, step=step)
        for type_, value in zip(carried, made, strict=True):
            self.values[type_].append(value)

    def exchange(self):
        """Items read what their neighbours wrote to local memory."""
        b = self.m.b
        mine = b.id("local_id", 0)
        b.store(self.tile, mine, self.pick(i32))
        b.op("barrier")
        other = b.binary("and", b.binary("add", mine, self.m.const(5)), self.m.const(15))
        self.values[i32].append(b.load(self.tile, other))
        b.op("barrier")

    def finish(self):
        meets = self.data.draw(st.booleans())
        self.may_return = not meets  # else not all items would come to the barrier
        self.statements(0)
        if meets:
            self.exchange()
            self.may_return = True
            self.statements(0)
        for name, type_ in self.outs.items():
            self.m.b.store(self.m[name], self.i, self.pick(type_))
        return self.m.end()


def on(name, function, arrays, values):
    """The arrays after a launch on a device."""
    copies = [each.copy() for each in arrays]
    found = runner(name)
    entry = function.name if found.language == "ir" else lower.entry_name(function.name)
    as_bits = {"c": ("f16", "bf16"), "ir": ("bf16",)}.get(found.language, ())
    given = []
    for value, each in zip(values, function.scalars, strict=True):
        one = each.type.dtype.numpy.type(value)
        given.append(one.view(np.uint16) if each.type.name in as_bits else one)
    found.launch(entry, lower.source(function, found.language), copies, given, 2, 16)
    return copies


@settings(max_examples=25)
@given(st.data())
def test_random_functions_give_the_same_bits_everywhere(data):
    program = Program(data)
    function = program.finish()
    seed = data.draw(st.integers(0, 1000))
    arrays, values = [], []
    for each in function.pointers:
        type_ = types.element_of(each.type)
        near = edges(type_)
        picked = [near[(at * 7 + seed) % len(near)] for at in range(COUNT)]
        arrays.append(stored(picked if each.name.startswith("in_") else [near[0]] * COUNT, type_))
    for each in function.scalars:
        values.append(edges(each.type)[seed % len(edges(each.type))])
    wanted = on("PYTHON", function, arrays, values)
    for name in DEVICES[:2]:
        got = on(name, function, arrays, values)
        for each, a, b in zip(function.pointers, got, wanted, strict=True):
            type_ = types.element_of(each.type)
            for at, pair in enumerate(zip(loaded(a, type_), loaded(b, type_), strict=True)):
                assert same(*pair), (name, each.name, at, pair, hcq.kernels.text.print_function(function))
