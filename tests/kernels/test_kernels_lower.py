"""What kernels become in the languages of devices: the same results as ir.OPS defines, to the last bit."""

import functools
import math
from pathlib import Path

import numpy as np
import pytest
from kernel_makers import Maker, all_conversions, all_operations, block_sums, items, maker, operations

import hcq
from hcq.kernels import arithmetic, ir, lower, types
from hcq.kernels.text import parse
from hcq.kernels.types import bool_, f32, i32, pointer, scalar

SCALARS = types.SCALARS
NUMBERS = [each for each in SCALARS if each is not bool_]


def threefold(size):
    """A size in three dimensions."""
    return size if isinstance(size, tuple) else (size, 1, 1)


class OnDevice:
    """Runs kernels on a device of hcq."""

    def __init__(self, name):
        self.name = name
        self.language = self.device.kernel_language
        self.target = getattr(self.device, "kernel_target", None)

    @property
    def device(self):
        """The device as it is now: a test may have closed it."""
        return hcq.Device[self.name]

    def launch(self, name, text, buffers, vals, groups, items):
        """Launches on arrays, which are written in place; the same array is the same buffer."""
        held = {id(each): hcq.array(each, self.name) for each in buffers}
        program = self.device.program(name, text)
        program(
            *(held[id(each)] for each in buffers), vals=vals, global_size=threefold(groups), local_size=threefold(items)
        )
        for array in buffers:
            array[...] = held[id(array)].numpy()


class OnPoCL:
    """Runs kernels in OpenCL C on a processor, through pyopencl."""

    language = "opencl"
    target = None

    def __init__(self):
        cl = self.cl = pytest.importorskip("pyopencl", reason="OpenCL C is tested through pyopencl and PoCL")
        try:
            found = [each for platform in cl.get_platforms() for each in platform.get_devices(cl.device_type.CPU)]
        except cl.Error:
            found = []
        if not found:
            pytest.skip("OpenCL C is tested through pyopencl and PoCL")
        self.context = cl.Context(found[:1])
        self.queue = cl.CommandQueue(self.context)

    def launch(self, name, text, buffers, vals, groups, items):
        cl = self.cl
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
        held = {id(each): cl.Buffer(self.context, flags, hostbuf=each) for each in buffers}
        kernel = getattr(cl.Program(self.context, text).build(["-cl-fp32-correctly-rounded-divide-sqrt"]), name)
        local = threefold(items)
        sizes = tuple(a * b for a, b in zip(threefold(groups), local, strict=True))
        kernel(self.queue, sizes, local, *(held[id(each)] for each in buffers), *vals)
        for array in buffers:
            cl.enqueue_copy(self.queue, array, held[id(array)])


@functools.cache
def runner(name):
    if name == "OpenCL":
        return OnPoCL()
    try:
        made = OnDevice(name)
    except hcq.errors.DeviceUnavailable as error:
        pytest.skip(f"{name}: {error}")
    if made.device.compiler.identity() is None:
        pytest.skip(f"{name}: no compiler here")
    return made


@pytest.fixture(params=["CLANG", "LLVM", "OpenCL", "VULKAN"])
def dev(request):
    return runner(request.param)


def run(dev, function, buffers, vals=(), groups=1, items=1):
    """Launches a kernel on arrays, which are written in place."""
    text = lower.source(function, dev.language, dev.target)
    given = []
    for value, each in zip(function.scalars, vals, strict=True):
        one = value.type.dtype.numpy.type(each)
        if dev.language in ("c", "opencl", "metal") and value.type.name in ("f16", "bf16"):  # passed as their bits
            one = one.view(np.uint16)
        given.append(np.uint8(one) if dev.language in ("opencl", "metal") and value.type is bool_ else one)
    dev.launch(lower.entry_name(function.name), text, buffers, given, groups, items)


def edges(type_):
    """Values at the edges of a type."""
    if type_.kind == "b":
        return [False, True]
    if type_.is_integer:
        low, high = type_.range
        found = {low, low + 1, -7, -2, -1, 0, 1, 2, 3, 7, 31, type_.bits, high // 3, high - 1, high, 0x7FFFFF7FFFFFFFFF}
        return sorted(each for each in found if low <= each <= high)
    narrow = arithmetic.rounder(type_)
    found = [0.0, -0.0, 1.0, -1.5, 0.5, 2.5, -3.0, 65504.0, -65520.0, 1e30, 1e-40, 6e-8, 5e-324, 1e300, 3.14159, 127.6]
    return [narrow(each) for each in found] + [math.inf, -math.inf, math.nan, narrow(2.0**63), narrow(-(2.0**31))]


def stored(values, type_):
    """An array of a type's values."""
    raw = b"".join(arithmetic.encode(each, type_) for each in values)
    return np.frombuffer(raw, type_.dtype.numpy).copy()


def loaded(array, type_):
    raw, size = array.tobytes(), type_.itemsize
    return [arithmetic.decode(raw[at : at + size], type_) for at in range(0, len(raw), size)]


def same(a, b, signed_zero=True):
    if isinstance(a, float):
        if math.isnan(a) or math.isnan(b):
            return math.isnan(a) and math.isnan(b)
        return a == b and (not signed_zero or math.copysign(1, a) == math.copysign(1, b))
    return a == b


def thrice(type_, lanes):
    """Pairs of edge values, and a third beside each; as many as whole vectors hold."""
    values = edges(type_)
    pairs = [(a, b) for a in values for b in values]
    pairs += pairs[: -len(pairs) % lanes]
    third = [values[(position * 7 + position // 5) % len(values)] for position in range(len(pairs))]
    return [a for a, _ in pairs], [b for _, b in pairs], third


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("name", [each.name for each in SCALARS])
def test_every_operation_gives_what_its_definition_says(dev, name, lanes):
    type_ = scalar(name)
    a, b, c = thrice(type_, lanes)
    function, plain = all_operations(type_, lanes, len(a))
    out, bits = np.zeros(len(plain) * len(a), type_.dtype.numpy), np.zeros(6 * len(a), bool)
    run(dev, function, [out, bits, *(stored(each, type_) for each in (a, b, c))], groups=len(a) // lanes)
    for code, operands in operations(type_).items():
        if code in ir.COMPARISONS:
            got = loaded(bits, bool_)[sorted(ir.COMPARISONS).index(code) * len(a) :]
        else:
            got = loaded(out, type_)[plain.index(code) * len(a) :]
        define = arithmetic.evaluator(code, type_, bool_ if code in ir.COMPARISONS else type_)
        for position, three in enumerate(zip(a, b, c, strict=True)):
            given = (three[0] < three[1], *three[:2]) if code == "select" else three[:operands]
            wanted = define(*given)
            assert same(got[position], wanted, code not in ("min", "max")), (code, given, got[position], wanted)


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("name", [each.name for each in SCALARS])
def test_every_conversion_gives_what_its_definition_says(dev, name, lanes):
    source = scalar(name)
    values = [*edges(source), *edges(source)[: -len(edges(source)) % lanes]]
    function, target = all_conversions(source, lanes, getattr(dev, "lacks", ()))
    outs = [np.zeros(len(values), each.dtype.numpy) for each in target.values()]
    run(dev, function, [*outs, stored(values, source)], groups=len(values) // lanes)
    for (key, each), out in zip(target.items(), outs, strict=True):
        code = "bitcast" if "bits" in key else "cast"
        define = arithmetic.evaluator(code, source, each)
        for value, got in zip(values, loaded(out, each), strict=True):
            if code == "bitcast" and value != value:
                continue  # which NaN it is stays open
            assert same(got, define(value)), (key, value, got, define(value))


def numbers(count=64, seed=1):
    return np.random.default_rng(seed).integers(-50, 50, count).astype(np.int32)


def on_numbers(dev, m, count=64, local=16, extra=()):
    """Runs a kernel of `out`, `x` and what it takes besides; `out` afterwards, and x."""
    x = numbers(count)
    out = np.full(count, -999, np.int32)
    run(dev, m.end(), [out, x], extra, count // local, local)
    return out.tolist(), x.tolist()


@pytest.mark.parametrize("leave", ["break", "continue", "return"])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_loops_are_left_from_every_depth(dev, leave, depth):
    """Loops in loops, the innermost of which leaves where the sum so far meets a condition on the item's number."""
    m = maker(f"leave_{leave}_{depth}")
    i = items(m)
    mine = m.b.load(m["x"], i)

    def nest(level, total):
        def body(k, total):
            total = m.b.binary("add", total, m.b.binary("xor", k, mine))

            def leaving():
                m.b.op(leave, () if leave == "return" else (m.b.binary("mul", total, m.const(3)),))

            if level < depth:
                return [nest(level + 1, total)]
            m.b.store(m["out"], i, total)
            m.when(m.b.binary("eq", m.b.binary("and", total, m.const(3)), m.const(1)), leaving)
            return [m.b.binary("add", total, m.const(level))]

        return m.loop([total], body, bounds=(m.const(0), m.const(4)))[0]

    m.b.store(m["out"], i, nest(1, m.const(0)))

    def wanted(mine):
        out = [-999]

        class Return(Exception):
            pass

        def nest(level, total):
            for k in range(4):
                total += k ^ mine
                if level < depth:
                    total = nest(level + 1, total)
                    continue
                out[0] = total
                if total & 3 == 1:
                    if leave == "return":
                        raise Return
                    total *= 3
                    if leave == "break":
                        break
                    continue
                total += level
            return total

        try:
            out[0] = nest(1, 0)
        except Return:
            pass
        return out[0]

    got, x = on_numbers(dev, m)
    wrap = arithmetic.wrapper(i32)
    assert got == [wrap(wanted(each)) for each in x]


@pytest.mark.parametrize("name", ["i8", "u8", "i32", "u32", "i64", "u64"])
@pytest.mark.parametrize("step", [1, -1, 3, -3, 100, -100])
def test_ranges_end_at_the_edges_of_their_type(dev, name, step):
    type_ = scalar(name)
    low, high = type_.range
    m = Maker(f"range_{name}", out=pointer(type_), count=pointer(i32), start=pointer(type_), stop=pointer(type_))
    i = items(m)
    bounds = m.b.load(m["start"], i), m.b.load(m["stop"], i)
    zero = m.const(0, type_)
    last, count = m.loop(
        [zero, m.const(0)], lambda k, _, n: [k, m.b.binary("add", n, m.const(1))], bounds=bounds, step=step
    )
    m.b.store(m["out"], i, last)
    m.b.store(m["count"], i, count)
    near = [low, low + 1, low + 5, low + 101, high - 101, high - 5, high - 1, high]
    pairs = [(a, b) for a in near for b in near if abs(a - b) < 300]
    pairs += [(0, 0), (0, 7), (7, 0), (5, 6)]
    start, stop = (stored([each[side] for each in pairs], type_) for side in (0, 1))
    out, counts = np.zeros(len(pairs), start.dtype), np.zeros(len(pairs), np.int32)
    run(dev, m.end(), [out, counts, start, stop], groups=len(pairs))
    for (a, b), got, n in zip(pairs, out.tolist(), counts.tolist(), strict=True):
        wanted = range(a, b, step)
        assert (n, got) == (len(wanted), wanted[-1] if len(wanted) else 0), (a, b, step)


def test_branches_give_values_and_may_leave(dev):
    m = maker("branches")
    i = items(m)
    x = m.b.load(m["x"], i)
    zero = m.const(0)
    doubled, sign = m.when(
        m.b.binary("lt", x, zero),
        lambda: (m.b.unary("neg", x), m.const(-1)),
        lambda: (m.b.binary("add", x, x), m.when(m.b.binary("eq", x, zero), lambda: (zero,), lambda: (i,), (i32,))[0]),
        (i32, i32),
    )
    m.when(m.b.binary("gt", doubled, m.const(60)), lambda: m.b.op("return"))
    m.b.store(m["out"], i, m.b.binary("add", m.b.binary("mul", doubled, m.const(100)), sign))
    got, xs = on_numbers(dev, m)
    for at, (value, x) in enumerate(zip(got, xs, strict=True)):
        doubled, sign = (-x, -1) if x < 0 else (2 * x, 0 if x == 0 else at)
        assert value == (-999 if doubled > 60 else doubled * 100 + sign)


def test_loops_without_bounds_go_on_until_a_break(dev):
    """The length of Collatz's sequence, and the largest number in it."""
    m = maker("collatz")
    i = items(m)

    def body(n, steps, top):
        m.when(m.b.binary("le", n, m.const(1)), lambda: m.b.op("break", (steps, top)))
        odd = m.b.binary("eq", m.b.binary("and", n, m.const(1)), m.const(1))
        tripled = m.b.binary("add", m.b.binary("mul", n, m.const(3)), m.const(1))
        following = m.b.select(odd, tripled, m.b.binary("shr", n, m.const(1)))
        return [following, m.b.binary("add", steps, m.const(1)), m.b.binary("max", top, following)]

    steps, top = m.loop([m.b.load(m["x"], i), m.const(0), m.const(0)], body, (i32, i32))
    m.b.store(m["out"], i, m.b.binary("add", m.b.binary("mul", top, m.const(1000)), steps))
    got, xs = on_numbers(dev, m)
    for value, n in zip(got, xs, strict=True):
        steps = top = 0
        while n > 1:
            n = 3 * n + 1 if n & 1 else n >> 1
            steps, top = steps + 1, max(top, n)
        assert value == top * 1000 + steps


def test_local_memory_and_barriers(dev):
    x = np.random.default_rng(2).random(64 * 5, np.float32)
    out = np.zeros(5, np.float32)
    run(dev, block_sums(), [out, x], groups=5, items=64)
    wanted = x.reshape(5, 64)
    while wanted.shape[1] > 1:
        half = wanted.shape[1] // 2
        wanted = wanted[:, :half] + wanted[:, half:]
    assert (out == wanted[:, 0]).all()


def test_private_arrays_belong_to_an_item(dev):
    m = maker("private")
    i = items(m)
    mine = m.b.op("private", (), (pointer(i32, "private"),), name="mine", count=8).result
    seven = m.const(7)
    m.loop([], lambda k: m.b.store(mine, k, m.b.binary("mul", k, i)), bounds=(m.const(0), m.const(8)))
    m.b.op("barrier")
    at = m.b.binary("and", m.b.load(m["x"], i), seven)
    moved = m.b.op("offset", (mine, at), (mine.type,)).result
    m.b.store(m["out"], i, m.b.load(moved, m.const(0)))
    got, xs = on_numbers(dev, m)
    assert got == [(x & 7) * at for at, x in enumerate(xs)]


@pytest.mark.parametrize("space", ["global", "local"])
@pytest.mark.parametrize("name", ["i32", "u32", "i64", "u64", "f32", "f64"])
@pytest.mark.parametrize("how", ir.ATOMICS)
def test_atomics(dev, how, name, space):
    type_ = scalar(name)
    if type_.is_float and how not in ("add", "min", "max", "exchange"):
        return
    m = Maker(f"atomic_{how}", out=pointer(type_), x=pointer(type_), old=pointer(type_))
    i = items(m)
    where, zero = m["out"], m.const(0)
    if space == "local":
        where = m.b.op("local", (), (pointer(type_, "local"),), name="cell", count=1).result
        m.when(m.b.binary("eq", i, zero), lambda: m.b.store(where, zero, m.b.load(m["out"], zero)))
        m.b.op("barrier")
    given = (m.b.load(m["x"], i),) + ((m.const(77, type_),) if how == "cas" else ())
    old = m.b.op("atomic", (where, zero, *given), (type_,), how=how).result
    m.b.store(m["old"], i, old)
    if space == "local":
        m.b.op("barrier")
        m.when(m.b.binary("eq", i, zero), lambda: m.b.store(m["out"], zero, m.b.load(where, zero)))
    count = 16
    x = np.arange(1, count + 1).astype(type_.dtype.numpy) if type_.kind == "u" else np.arange(-8, 8)
    x = x.astype(type_.dtype.numpy)
    out, olds = np.full(1, 77, x.dtype), np.zeros(count, x.dtype)
    run(dev, m.end(), [out, x, olds], groups=1, items=count)
    if how == "exchange":
        assert sorted([*olds.tolist(), out[0]]) == sorted([*x.tolist(), 77])
    elif how == "cas":
        assert out[0] in x.tolist() and olds.tolist().count(77) == 1
    else:
        reduce = {"add": np.add, "min": np.minimum, "max": np.maximum}
        reduce |= {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
        start = np.full(1, 77, x.dtype)
        assert out[0] == reduce[how].reduce(np.concatenate([start, x]))


def test_float_minima_keep_a_nan_in_atomics(dev):
    m = Maker("least", out=pointer(f32), x=pointer(f32))
    for at, how in enumerate(("min", "max")):
        m.b.op("atomic", (m["out"], m.const(at), m.b.load(m["x"], items(m))), (f32,), how=how)
    out = np.ones(2, np.float32)
    run(dev, m.end(), [out, np.array([3, math.nan, -2, 5], np.float32)], groups=4)
    assert np.isnan(out).all()


def test_parameters_of_every_type_keep_their_values(dev):
    for type_ in (each for each in SCALARS if each not in getattr(dev, "lacks", ())):
        m = Maker(f"take_{type_}", v=type_, out=pointer(type_), w=type_)
        m.b.store(m["out"], m.const(0), m["v"])
        m.b.store(m["out"], m.const(1), m["w"])
        function = m.end()
        a, b = (edges(type_)[-1], edges(type_)[0]) if not type_.is_float else (1.5, -2.0)
        out = np.zeros(2, type_.dtype.numpy)
        run(dev, function, [out], (a, b))
        assert loaded(out, type_) == [a, b]


def test_buffers_may_be_the_same(dev):
    """Nothing is assumed of pointers: an item sees what it wrote through another one."""
    m = Maker("alias", a=pointer(i32), b=pointer(i32))
    i = items(m)
    m.b.store(m["a"], i, m.const(5))
    m.b.store(m["b"], i, m.b.binary("add", m.b.load(m["b"], i), m.const(1)))
    m.b.store(m["a"], i, m.b.binary("mul", m.b.load(m["a"], i), m.const(2)))
    both = np.zeros(64, np.int32)
    run(dev, m.end(), [both, both], (), 4, 16)
    assert both.tolist() == [12] * 64


def test_names_that_languages_take_themselves(dev):
    for name in (
        "double",
        "main",
        "kernel",
        "größe",
        "hcq_x",
        "memcpy",
        "float4",
        "f",
        "i32",
        "exp",
        "dot",
        "atomic_add",
        "printf",
    ):
        m = Maker(name, int=pointer(i32), größe=i32, hcq_y=i32)
        m.b.store(m["int"], m.const(0), m.b.binary("add", m["größe"], m["hcq_y"]))
        out = np.zeros(1, np.int32)
        run(dev, m.end(), [out], (40, 2))
        assert out[0] == 42
    names = ["double", "kernel_double", "a_b", "größe", "kernel_gr_f6__df_e", "_a", "kernel__a"]
    assert len({lower.entry_name(each) for each in names}) == len(names)


@pytest.mark.parametrize("how", ir.SHUFFLES)
@pytest.mark.parametrize("count", [8, 32, 80])
def test_shuffles_exchange_values_in_a_sub_group(dev, how, count):
    m = maker(f"shuffle_{how}", y=pointer(i32))
    i = items(m)
    kinds = [m.b.op("subgroup", (), (i32,), kind=kind).result for kind in ir.SUBGROUP_KINDS]
    first = m.b.op("shuffle", (m.b.load(m["x"], i), m.const(3)), (i32,), how=how).result
    again = m.b.op("shuffle", (m.b.binary("add", first, i), m.const(1)), (i32,), how=how).result
    m.b.store(m["out"], i, again)
    for place, value in enumerate(kinds):
        m.b.store(m["y"], m.b.binary("add", i, m.const(place * count)), value)
    x, out, y = numbers(count), np.zeros(count, np.int32), np.zeros(3 * count, np.int32)
    run(dev, m.end(), [out, x, y], groups=1, items=count)
    (size,) = set(y[:count].tolist())
    assert y[count : 2 * count].tolist() == [at % size for at in range(count)]
    assert y[2 * count :].tolist() == [at // size for at in range(count)]

    def moved(values, by):
        lane = {"index": lambda own: by, "xor": lambda own: own ^ by, "up": lambda own: own - by}
        found = []
        for at in range(count):
            there = lane.get(how, lambda own: own + by)(at % size)
            place = at - at % size + there
            found.append(values[place] if 0 <= there < size and place < count else None)
        return found

    first = moved(x.tolist(), 3)
    wanted = moved([None if each is None else each + at for at, each in enumerate(first)], 1)
    assert size > 1 and any(each is not None for each in wanted)
    assert all(each in (None, got) for each, got in zip(wanted, out.tolist(), strict=True))


def shuffle_apart(barrier):
    """A shuffle that the first sub-group comes to alone; then, perhaps, a barrier."""
    m = maker("apart")
    i = items(m)
    x = m.b.load(m["x"], i)
    first = m.b.binary("lt", i, m.const(32))

    def exchanged():
        return (m.b.op("shuffle", (x, m.const(1)), (i32,), how="xor").result,)

    (given,) = m.when(first, exchanged, lambda: (m.b.unary("neg", x),), (i32,))
    if barrier:
        m.b.op("barrier")
    m.b.store(m["out"], i, given)
    return m


def test_a_sub_group_may_come_to_a_shuffle_alone_where_no_barrier_follows(dev):
    if dev.language in ("opencl", "spirv"):  # whose barriers may not be passed by
        with pytest.raises(hcq.errors.CompileError, match="out of the condition"):
            lower.source(shuffle_apart(False).end(), dev.language)
        return
    got, x = on_numbers(dev, shuffle_apart(False), local=64)
    assert got == [x[at ^ 1] if at < 32 else -x[at] for at in range(64)]
    with pytest.raises(hcq.errors.CompileError, match="where a barrier follows"):
        lower.source(shuffle_apart(True).end(), dev.language)


def test_parameters_are_called_what_the_user_calls_them(dev):
    if dev.language == "opencl":
        pytest.skip("its programs do not name their arguments")
    m = Maker("f", out=pointer(i32), größe=i32, entry=i32, floor=i32, n_1=i32, n=i32)
    m.b.store(m["out"], m.const(0), m["n"])
    program = dev.device.program("f", lower.source(m.end(), dev.language))
    names = [name for _, name in program.signature]
    assert names[0] == "out" and names[2] == "entry" and names[-1] == "n"


@pytest.mark.parametrize("barrier", [False, True])
def test_every_item_of_a_group_in_three_dimensions_has_its_ids(dev, barrier):
    m = Maker("ids", out=pointer(i32))
    groups, sizes = (2, 3, 2), (4, 2, 3)
    place = m.const(0)
    for dim in (2, 1, 0):
        whole = m.b.id("global_size", dim)
        place = m.b.binary("add", m.b.binary("mul", place, whole), m.b.id("global_id", dim))
    if barrier:
        m.b.op("barrier")
    value = m.const(0)
    for dim in range(3):
        value = m.b.binary("add", m.b.binary("mul", value, m.const(10)), m.b.id("local_id", dim))
        value = m.b.binary("add", m.b.binary("mul", value, m.const(10)), m.b.id("group_id", dim))
    m.b.op("atomic", (m["out"], place, m.b.binary("add", value, m.const(1))), (i32,), how="add")
    out = np.zeros(2 * 4 * 3 * 2 * 2 * 3, np.int32)
    run(dev, m.end(), [out], (), groups, sizes)
    z, y, x = np.indices((6, 6, 8))
    digits = (x % 4, x // 4, y % 2, y // 2, z % 3, z // 3)
    assert out.tolist() == (1 + sum(d * 10 ** (5 - at) for at, d in enumerate(digits))).ravel().tolist()


def test_an_item_keeps_its_own_order_where_items_become_vectors(dev):
    """Neighbouring elements, written, read back and written again through pointers to one buffer; a private array."""
    if dev.language == "opencl":
        pytest.skip("PoCL makes vectors of work-items as if two pointers never met")
    m = Maker("order", a=pointer(i32), b=pointer(i32), out=pointer(i32))
    i, b = items(m), m.b
    even = b.binary("mul", i, m.const(2))
    odd = b.binary("add", even, m.const(1))
    mine = b.op("private", (), (pointer(i32, "private"),), name="mine", count=2).result
    b.store(m["a"], even, i)
    first = b.load(m["b"], even)
    b.store(m["a"], odd, b.binary("add", first, m.const(7)))
    second = b.load(m["b"], odd)
    b.store(mine, b.binary("and", second, m.const(1)), second)
    b.store(m["a"], even, b.binary("mul", second, m.const(3)))
    b.store(m["out"], i, b.binary("add", b.load(mine, b.binary("and", second, m.const(1))), b.load(m["b"], even)))
    both, out = np.zeros(256, np.int32), np.zeros(128, np.int32)
    run(dev, m.end(), [both, both, out], (), 2, 64)
    assert out.tolist() == [4 * (at + 7) for at in range(128)]
    assert both.reshape(-1, 2).tolist() == [[3 * (at + 7), at + 7] for at in range(128)]


def test_a_comparisons_bit_read_as_f16_is_compiled():
    """LLVM 22 ended the process over this kernel on AVX-512: it has no code for such a bitcast."""
    text = (Path(__file__).parent / "bit_as_f16.ir").read_text()
    function = parse(text)
    results = []
    for device, source in (("PYTHON", text), ("LLVM", lower.source(function, "llvm"))):
        dev = hcq.Device[device]
        arrays = [np.zeros(32, each.type.element.dtype.numpy) for each in function.pointers]
        dev.program(function.name if device == "PYTHON" else lower.entry_name(function.name), source)(
            *arrays, vals=(3,)
        )
        results.append([each.tobytes() for each in arrays])
    assert results[0] == results[1]
