"""Random kernels with barriers: each as LLVM IR, and as a plain Python model that runs a work-group item by item.

Variables are i32 and wrap. In the model a barrier is a yield: items that haven't returned go on in rounds, as the
contract's items do. `exchange` is the only way in which items see each other, with barriers on both sides of it.
"""

from __future__ import annotations

import itertools

from hypothesis import strategies as st

VARIABLES = 3
ARRAY = 4  # elements of the private array
MASK = 0xFFFFFFFF

leaves = st.one_of(
    st.tuples(st.just("const"), st.integers(-3, 40)),
    st.tuples(st.just("var"), st.integers(0, VARIABLES - 1)),
    st.tuples(st.just("id"), st.sampled_from(["local", "group", "size", "groups"]), st.integers(0, 2)),
    st.tuples(st.just("n")),
)
expressions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(st.just("op"), st.sampled_from(["add", "sub", "mul", "xor", "and"]), inner, inner),
        st.tuples(st.just("array"), inner),
    ),
    max_leaves=4,
)
conditions = st.tuples(st.sampled_from(["eq", "ne", "slt", "ult", "sge", "ugt"]), expressions, expressions)
# The same for all items: of numbers and the argument alone.
uniform_conditions = st.tuples(
    st.sampled_from(["eq", "slt", "ult"]),
    st.tuples(st.just("op"), st.just("and"), st.tuples(st.just("n")), st.just(("const", 3))),
    st.tuples(st.just("const"), st.integers(0, 3)),
)
counts = st.one_of(
    st.tuples(st.just("const"), st.integers(0, 3)),
    st.tuples(st.just("op"), st.just("and"), st.tuples(st.just("n")), st.just(("const", 3))),
)
# Which items of a row have work: compilers run only those.
some = st.one_of(
    st.tuples(st.just("const"), st.integers(-2, 20)),
    st.tuples(st.just("n")),
    st.tuples(
        st.just("op"), st.just("sub"), st.tuples(st.just("id"), st.just("size"), st.just(0)), st.tuples(st.just("n"))
    ),
)
first_items = st.tuples(
    st.sampled_from(["eq", "ne", "ult", "ule", "ugt", "uge", "slt", "sle", "sgt", "sge"]),
    st.just(("id", "local", 0)),
    some,
) | st.tuples(
    st.sampled_from(["eq", "ne", "ult", "ule", "ugt", "uge", "slt", "sle", "sgt", "sge"]),
    some,
    st.just(("id", "local", 0)),
)
varying_counts = st.tuples(st.just("op"), st.just("and"), expressions, st.just(("const", 3)))

put = st.tuples(st.just("put"), expressions, expressions)
simple = st.one_of(st.tuples(st.just("set"), st.integers(0, VARIABLES - 1), expressions), put)
puts = st.lists(put, min_size=1, max_size=2)


def statements(together: bool) -> st.SearchStrategy:
    """Lists of statements. `together`: all items that are left reach the same barriers, and may exchange values."""
    barrier = st.just(("barrier",))
    exchange = st.tuples(
        st.just("exchange"), st.integers(0, VARIABLES - 1), st.integers(0, VARIABLES - 1), st.integers(0, 5)
    )
    partly = st.one_of(
        st.tuples(st.just("if"), first_items, puts, st.just([])),
        st.tuples(st.just("if"), first_items, st.just([]), puts),
    )
    base = st.one_of(
        simple, barrier, exchange if together else barrier, st.tuples(st.just("return"), conditions), partly
    )

    def nest(inner: st.SearchStrategy) -> st.SearchStrategy:
        body = st.lists(inner, min_size=1, max_size=3)
        quiet = st.lists(simple, min_size=0, max_size=2)
        if together:
            return st.one_of(
                st.tuples(st.just("if"), uniform_conditions, body, body),
                st.tuples(st.just("if"), conditions, quiet, quiet),
                st.tuples(st.just("loop"), counts, body),
                st.tuples(st.just("loop"), varying_counts, quiet),
            )
        return st.one_of(
            st.tuples(st.just("if"), conditions, body, st.lists(inner, max_size=2)),
            st.tuples(st.just("loop"), varying_counts, body),
        )

    return st.lists(st.recursive(base, nest, max_leaves=6), min_size=1, max_size=5)


numbers = st.recursive(
    leaves,
    lambda inner: st.tuples(st.just("op"), st.sampled_from(["add", "sub", "mul", "xor"]), inner, inner),
    max_leaves=4,
)


def loops() -> st.SearchStrategy:
    """Lists of statements without barriers and arrays: loops that all items go round alike, or not, and returns."""
    base = st.one_of(
        st.tuples(st.just("set"), st.integers(0, VARIABLES - 1), numbers),
        st.tuples(st.just("return"), st.tuples(st.sampled_from(["eq", "slt", "ugt"]), numbers, numbers)),
    )

    def nest(inner: st.SearchStrategy) -> st.SearchStrategy:
        body = st.lists(inner, min_size=1, max_size=3)
        return st.one_of(
            st.tuples(st.just("loop"), counts, body),
            st.tuples(st.just("loop"), st.tuples(st.just("op"), st.just("and"), numbers, st.just(("const", 3))), body),
            st.tuples(st.just("if"), st.tuples(st.sampled_from(["eq", "slt"]), numbers, numbers), body, body),
            st.tuples(st.just("if"), uniform_conditions, body, body),
        )

    return st.lists(st.recursive(base, nest, max_leaves=8), min_size=1, max_size=5)


# As LLVM IR


class Text:
    """Writes a program as a function; variables are allocas, as a simple front end would have them."""

    def __init__(self, program: list, locals_size: int, bare: bool) -> None:
        self.bare = bare
        self.lines: list[str] = []
        self.numbers = itertools.count()
        self.size = locals_size
        self.block(program)

    def new(self, text: str) -> str:
        name = f"%t{next(self.numbers)}"
        self.lines.append(f"  {name} = {text}")
        return name

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def expression(self, e: tuple) -> str:
        kind = e[0]
        if kind == "const":
            return str(e[1])
        if kind == "n":
            return "%n"
        if kind == "var":
            return self.new(f"load i32, ptr %v{e[1]}")
        if kind == "id":
            name = {"local": "local_id", "group": "group_id", "size": "local_size", "groups": "num_groups"}[e[1]]
            return self.new(f"call i32 @hcq.{name}(i32 {e[2]})")
        if kind == "array":
            return self.new(f"load i32, ptr {self.element(e[1])}")
        left, right = self.expression(e[2]), self.expression(e[3])
        return self.new(f"{e[1]} i32 {left}, {right}")

    def element(self, index: tuple) -> str:
        at = self.new(f"and i32 {self.expression(index)}, {ARRAY - 1}")
        return self.new(f"getelementptr i32, ptr %array, i32 {at}")

    def condition(self, c: tuple) -> str:
        left, right = self.expression(c[1]), self.expression(c[2])
        return self.new(f"icmp {c[0]} i32 {left}, {right}")

    def block(self, program: list) -> None:
        for statement in program:
            getattr(self, "do_" + statement[0])(*statement[1:])

    def do_set(self, variable: int, e: tuple) -> None:
        self.lines.append(f"  store i32 {self.expression(e)}, ptr %v{variable}")

    def do_put(self, index: tuple, e: tuple) -> None:
        value = self.expression(e)
        self.lines.append(f"  store i32 {value}, ptr {self.element(index)}")

    def do_barrier(self) -> None:
        self.lines.append("  call void @hcq.barrier()")

    def do_exchange(self, to: int, source: int, distance: int) -> None:
        value = self.new(f"load i32, ptr %v{source}")
        self.lines.append(f"  store i32 {value}, ptr addrspace(3) %mine")
        self.do_barrier()
        there = self.new(f"add i32 %linear, {distance}")
        there = self.new(f"urem i32 {there}, %items")
        there = self.new(f"getelementptr i32, ptr addrspace(3) @tile, i32 {there}")
        value = self.new(f"load i32, ptr addrspace(3) {there}")
        self.lines.append(f"  store i32 {value}, ptr %v{to}")
        self.do_barrier()

    def do_return(self, c: tuple) -> None:
        number = next(self.numbers)
        self.lines.append(f"  br i1 {self.condition(c)}, label %finish, label %on{number}")
        self.label(f"on{number}")

    def do_if(self, c: tuple, then: list, otherwise: list) -> None:
        n = next(self.numbers)
        self.lines.append(f"  br i1 {self.condition(c)}, label %then{n}, label %else{n}")
        for name, body in (("then", then), ("else", otherwise)):
            self.label(f"{name}{n}")
            self.block(body)
            self.lines.append(f"  br label %after{n}")
        self.label(f"after{n}")

    def do_loop(self, count: tuple, body: list) -> None:
        n = next(self.numbers)
        times = self.expression(count)
        self.lines += [f"  store i32 0, ptr %i{n}", f"  br label %head{n}"]
        self.label(f"head{n}")
        now = self.new(f"load i32, ptr %i{n}")
        more = self.new(f"icmp ult i32 {now}, {times}")
        self.lines.append(f"  br i1 {more}, label %body{n}, label %after{n}")
        self.label(f"body{n}")
        self.block(body)
        now = self.new(f"load i32, ptr %i{n}")
        self.lines += [f"  store i32 {self.new(f'add i32 {now}, 1')}, ptr %i{n}", f"  br label %head{n}"]
        self.label(f"after{n}")

    def module(self) -> str:
        body = "\n".join(self.lines)
        counters = "\n".join(
            f"  %i{line.split('%i')[1]} = alloca i32" for line in self.lines if line.startswith("  store i32 0, ptr %i")
        )
        ids = "\n".join(
            f"  %{short}{d} = call i32 @hcq.{name}(i32 {d})"
            for short, name in (("x", "local_id"), ("s", "local_size"), ("g", "group_id"), ("c", "num_groups"))
            for d in range(3)
        )
        allocas = "\n".join(f"  %v{v} = alloca i32\n  store i32 {v + 5}, ptr %v{v}" for v in range(VARIABLES))
        clear = "\n".join(
            f"  %a{k} = getelementptr i32, ptr %array, i32 {k}\n  store i32 {k}, ptr %a{k}" for k in range(ARRAY)
        )
        results = "\n".join(
            f"""  %r{v} = load i32, ptr %v{v}
  %o{v} = getelementptr i32, ptr %mineout, i32 {v}
  store i32 %r{v}, ptr %o{v}"""
            for v in range(VARIABLES)
        )
        array, meet = f"%array = alloca [{ARRAY} x i32]", "call void @hcq.barrier()"
        mine = """%mine = getelementptr i32, ptr addrspace(3) @tile, i32 %linear
  store i32 77, ptr addrspace(3) %mine"""
        if self.bare:
            array = meet = mine = clear = ""
        return f"""
@tile = internal addrspace(3) global [{self.size} x i32] undef
declare i32 @hcq.group_id(i32)
declare i32 @hcq.local_id(i32)
declare i32 @hcq.local_size(i32)
declare i32 @hcq.num_groups(i32)
declare void @hcq.barrier()
define void @f(ptr %out, i32 %n) {{
{allocas}
  {array}
{counters}
{clear}
{ids}
  %zy0 = mul i32 %x2, %s1
  %zy = add i32 %zy0, %x1
  %row = mul i32 %zy, %s0
  %linear = add i32 %row, %x0
  %s01 = mul i32 %s0, %s1
  %items = mul i32 %s01, %s2
  %gz = mul i32 %g2, %c1
  %gy = add i32 %gz, %g1
  %gr = mul i32 %gy, %c0
  %group = add i32 %gr, %g0
  %first = mul i32 %group, %items
  %global = add i32 %first, %linear
  %at = mul i32 %global, {VARIABLES}
  %mineout = getelementptr i32, ptr %out, i32 %at
  {mine}
  {meet}
{body}
  br label %finish
finish:
{results}
  ret void
}}
"""


def module(program: list, items: int, bare: bool = False) -> str:
    """The program as a module with kernel `f(ptr out, i32 n)`: three i32 an item, in order of global linear id.

    `bare`: without the private array, local memory and a first barrier.
    """
    return Text(program, items, bare).module()


# As a model


class _Returned(Exception):
    pass


class Item:
    """One work-item; `run` is a generator that yields at barriers."""

    def __init__(self, ids: dict, n: int, tile: list[int], linear: int) -> None:
        self.ids, self.n, self.tile, self.linear = ids, n, tile, linear
        self.v = [v + 5 for v in range(VARIABLES)]
        self.array = list(range(ARRAY))

    def run(self, program: list):
        self.tile[self.linear] = 77
        yield
        try:
            yield from self.block(program)
        except _Returned:
            pass

    def value(self, e: tuple) -> int:
        kind = e[0]
        if kind == "const":
            return e[1] & MASK
        if kind == "n":
            return self.n & MASK
        if kind == "var":
            return self.v[e[1]]
        if kind == "id":
            return self.ids[e[1]][e[2]]
        if kind == "array":
            return self.array[self.value(e[1]) % ARRAY]
        a, b = self.value(e[2]), self.value(e[3])
        return {"add": a + b, "sub": a - b, "mul": a * b, "xor": a ^ b, "and": a & b}[e[1]] & MASK

    def holds(self, c: tuple) -> bool:
        a, b = self.value(c[1]), self.value(c[2])
        sa, sb = (a ^ 1 << 31) - (1 << 31), (b ^ 1 << 31) - (1 << 31)
        signed = {"slt": sa < sb, "sle": sa <= sb, "sgt": sa > sb, "sge": sa >= sb}
        return {"eq": a == b, "ne": a != b, "ult": a < b, "ule": a <= b, "ugt": a > b, "uge": a >= b, **signed}[c[0]]

    def block(self, program: list):
        for kind, *rest in program:
            if kind == "set":
                self.v[rest[0]] = self.value(rest[1])
            elif kind == "put":
                value = self.value(rest[1])
                self.array[self.value(rest[0]) % ARRAY] = value
            elif kind == "barrier":
                yield
            elif kind == "exchange":
                to, source, distance = rest
                self.tile[self.linear] = self.v[source]
                yield
                self.v[to] = self.tile[(self.linear + distance) % len(self.tile)]
                yield
            elif kind == "return":
                if self.holds(rest[0]):
                    raise _Returned
            elif kind == "if":
                yield from self.block(rest[1] if self.holds(rest[0]) else rest[2])
            else:
                for _ in range(self.value(rest[0])):
                    yield from self.block(rest[1])


def run(program: list, groups: tuple, sizes: tuple, n: int) -> list[int]:
    """What the kernel leaves in `out`."""
    out = []
    for gz, gy, gx in itertools.product(*(range(g) for g in reversed(groups))):
        items, tile = [], [0] * (sizes[0] * sizes[1] * sizes[2])
        for linear, (z, y, x) in enumerate(itertools.product(*(range(s) for s in reversed(sizes)))):
            ids = {"local": (x, y, z), "group": (gx, gy, gz), "size": sizes, "groups": groups}
            items.append(Item(ids, n, tile, linear))
        going = [item.run(program) for item in items]
        while going:
            going = [g for g in going if next(g, "over") is None]
        out += [v for item in items for v in item.v]
    return out
