"""Kernels in the middle form that tests of several targets run or compile."""

from hcq.kernels import ir, types
from hcq.kernels.types import bool_, f32, i32, pointer, scalar
from hcq.kernels.verify import verify

SCALARS = types.SCALARS
NUMBERS = [each for each in SCALARS if each is not bool_]


class Maker:
    """A function under construction: `b` appends to the block that is open."""

    def __init__(self, name, **parameters):
        self.values = {key: ir.Value(type_, key) for key, type_ in parameters.items()}
        self.function = ir.Function(name, list(self.values.values()))
        self.b = ir.Builder(self.function.body)

    def __getitem__(self, name):
        return self.values[name]

    def const(self, value, type_=i32):
        return self.b.const(value, type_)

    def inside(self, block, write):
        """Runs `write` with the block open."""
        outer, self.b = self.b, ir.Builder(block)
        write()
        self.b = outer
        return block

    def when(self, condition, then, other=None, results=()):
        """An `if`; the branches are functions that return what they yield, or None if they left."""

        def branch(write):
            def run():
                given = write() if write is not None else ()
                if not (self.b.block.ops and self.b.block.ops[-1].code in ir.TERMINATORS):
                    self.b.op("yield", given or ())

            return self.inside(ir.Block(), run)

        blocks = [branch(then), branch(other)]
        return self.b.op("if", (condition,), results, blocks).results

    def loop(self, initial, body, results=None, bounds=None, step=1):
        """A `for` over bounds, or a `loop`; `body(index, values...)` returns the next values, or None if it left."""
        index = [ir.Value(bounds[0].type, "i")] if bounds else []
        arguments = [*index, *(ir.Value(each.type, "carried") for each in initial)]

        def run():
            given = body(*arguments)
            if not (self.b.block.ops and self.b.block.ops[-1].code in ir.TERMINATORS):
                self.b.op("continue", given or ())

        block = self.inside(ir.Block(arguments), run)
        wanted = [each.type for each in initial] if results is None else results
        if bounds:
            return self.b.op("for", (*bounds, *initial), wanted, [block], step=step).results
        return self.b.op("loop", initial, wanted, [block]).results

    def end(self):
        self.b.op("return")
        verify(self.function)
        return self.function


def items(m):
    """The item's number."""
    return m.b.id("global_id", 0)


def maker(name="f", **more):
    return Maker(name, out=pointer(i32), x=pointer(i32), **more)


def operations(type_):
    """The codes that take this type, with how many operands."""
    kind = type_.kind
    every = {**dict.fromkeys(ir.COMPARISONS, 2), "min": 2, "max": 2, "select": 3}
    if kind != "b":
        every |= {"add": 2, "sub": 2, "mul": 2, "neg": 1, "abs": 1}
    if kind == "f":
        every |= {"div": 2, "rem": 2, "copysign": 2, "fma": 3}
        return every | dict.fromkeys(("sqrt", "floor", "ceil", "trunc", "round"), 1)
    every |= {"and": 2, "or": 2, "xor": 2, "not": 1}
    if kind != "b":
        every |= {"floordiv": 2, "mod": 2, "shl": 2, "shr": 2, "popcount": 1, "clz": 1}
    return every


def all_operations(type_, lanes, length, leave_out=()):
    """Every operation on a type: its results lie in `out`, one after the other, `length` elements each, comparisons' in
    `bits`. Also the order in `out`; in `bits` it is that of the alphabet."""
    codes = {code: count for code, count in operations(type_).items() if code not in leave_out}
    plain = [code for code in codes if code not in ir.COMPARISONS]
    spaces = {"out": pointer(type_), "bits": pointer(bool_), **{key: pointer(type_) for key in "abc"}}
    m = Maker(f"all_{type_}", **spaces)
    at = m.b.binary("mul", items(m), m.const(lanes))
    x, y, z = (m.b.load(m[key], at, lanes) for key in "abc")
    condition = m.b.binary("lt", x, y)
    for code, operands in codes.items():
        where = "bits" if code in ir.COMPARISONS else "out"
        given = (condition, x, y) if code == "select" else (x, y, z)[:operands]
        result = types.with_element(x.type, bool_) if where == "bits" else x.type
        value = m.b.op(code, given, (result,)).result
        number = (sorted(ir.COMPARISONS) if where == "bits" else plain).index(code)
        m.b.store(m[where], m.b.binary("add", at, m.const(number * length)), value)
    return m.end(), plain


def all_conversions(source, lanes, leave_out=()):
    """Every conversion of a type, and the types that its outputs have, by their names."""
    casts = [each for each in SCALARS if each is not source and each not in leave_out]
    same = [each for each in NUMBERS if each.bits == source.bits and each not in leave_out]
    casts += [f"bits_{each.name}" for each in same if source is not bool_]
    target = {f"to_{each}": each if isinstance(each, types.Scalar) else scalar(each[5:]) for each in casts}
    m = Maker(f"from_{source}", **{key: pointer(each) for key, each in target.items()}, x=pointer(source))
    at = m.b.binary("mul", items(m), m.const(lanes))
    x = m.b.load(m["x"], at, lanes)
    for key, each in target.items():
        code = "bitcast" if "bits" in key else "cast"
        m.b.store(m[key], at, m.b.op(code, (x,), (types.with_element(x.type, each),)).result)
    return m.end(), target


def block_sums(name="sums", count=64):
    """Sums of a group's elements in local memory, by halving: one barrier a step."""
    m = Maker(name, out=pointer(f32), x=pointer(f32))
    tile = m.b.op("local", (), (pointer(f32, "local"),), name="tile", count=count).result
    item, group = m.b.id("local_id", 0), m.b.id("group_id", 0)
    m.b.store(tile, item, m.b.load(m["x"], m.b.id("global_id", 0)))
    m.b.op("barrier")

    def body(half):
        m.when(m.b.binary("eq", half, m.const(0)), lambda: m.b.op("break"))

        def add():
            other = m.b.load(tile, m.b.binary("add", item, half))
            m.b.store(tile, item, m.b.binary("add", m.b.load(tile, item), other))

        m.when(m.b.binary("lt", item, half), add)
        m.b.op("barrier")
        return [m.b.binary("shr", half, m.const(1))]

    m.loop([m.const(count // 2)], body, ())
    first = m.b.binary("eq", item, m.const(0))
    m.when(first, lambda: m.b.store(m["out"], group, m.b.load(tile, m.const(0))))
    return m.end()
