"""The PYTHON device: it computes what ir.OPS says, and makes an error with a line of what no kernel may do."""

import numpy as np
import pytest

import hcq
from hcq import errors
from hcq.errors import CompileError, DeviceLost, InvalidProgram, LaunchError


@pytest.fixture
def dev():
    """A device of its own, since a kernel that did wrong loses it."""
    device = hcq.Device["PYTHON:7"]
    yield device
    device.close()


def program(dev, text):
    name = text.split("kernel ")[1].split("(")[0]
    return dev.program(name, f'hcq.ir 1 "k.py"\n{text.strip()}\n')


def wrong(dev, kind, prg, *args, **kwargs):
    prg(*args, **kwargs)
    with pytest.raises(DeviceLost) as caught:
        dev.synchronize()
    assert type(caught.value.cause) is kind, caught.value
    assert prg.name in str(caught.value)
    return str(caught.value.cause)


SAXPY = """
kernel saxpy(a: f32, x: ptr<f32, global>, y: ptr<f32, global>, n: i32) {
  %i = id : i32 {kind="global_id", dim=0}  ; k.py:3:9
  %inside = lt %i, %n : bool
  if %inside {
    %u = load %x, %i : f32  ; k.py:5:20
    %v = load %y, %i : f32
    %p = mul %a, %u : f32
    %s = add %p, %v : f32
    store %y, %i, %s  ; k.py:5:9
    yield
  } else {
    yield
  }
  return
}
"""


def test_a_kernel_computes(dev):
    rng = np.random.default_rng(1)
    x, y = (rng.random(100, dtype=np.float32) for _ in range(2))
    bx, by = hcq.array(x, dev.dname), hcq.array(y, dev.dname)
    saxpy = program(dev, SAXPY)
    saxpy(bx, by, global_size=(4, 1, 1), local_size=(32, 1, 1), vals=(2.5, 100))
    assert np.array_equal(by.numpy(), np.float32(2.5) * x + y)
    assert saxpy(bx, by, global_size=(4, 1, 1), local_size=(32, 1, 1), vals=(2.5, 100), wait=True) > 0


SUMS = """
kernel sums(out: ptr<i32, global>, src: ptr<i32, global>) {
  %tile = local : ptr<i32, local> {name="tile", count=64}
  %x = id : i32 {kind="local_id", dim=0}
  %n = id : i32 {kind="local_size", dim=0}
  %g = id : i32 {kind="group_id", dim=0}
  %i = id : i32 {kind="global_id", dim=0}
  %first = load %src, %i : i32
  store %tile, %x, %first
  %zero = const : i32 {value=0}
  %one = const : i32 {value=1}
  %half = shr %n, %one : i32
  loop %half (%h: i32) {
    BARRIER
    %more = gt %h, %zero : bool
    if %more {
      yield
    } else {
      break
    }
    %mine = lt %x, %h : bool
    if %mine {
      %to = add %x, %h : i32
      %a = load %tile, %x : i32
      %b = load %tile, %to : i32
      %c = add %a, %b : i32
      store %tile, %x, %c
      yield
    } else {
      yield
    }
    %next = shr %h, %one : i32
    continue %next
  }
  %is_first = eq %x, %zero : bool
  if %is_first {
    %sum = load %tile, %zero : i32
    store %out, %g, %sum
    yield
  } else {
    yield
  }
  return
}
"""


def test_items_of_a_group_meet_at_barriers(dev):
    src = np.arange(4 * 64, dtype=np.int32)
    out = hcq.empty(4, hcq.i32 if hasattr(hcq, "i32") else hcq.dtypes.int32, dev.dname)
    prg = program(dev, SUMS.replace("BARRIER", "barrier  ; k.py:9:5"))
    prg(out, hcq.array(src, dev.dname), global_size=(4, 1, 1), local_size=(64, 1, 1))
    assert out.numpy().tolist() == src.reshape(4, 64).sum(1).tolist()


def test_without_the_barrier_it_is_a_race_with_its_line(dev):
    out, src = hcq.empty(1, hcq.dtypes.int32, dev.dname), hcq.array(np.arange(64, dtype=np.int32), dev.dname)
    prg = program(
        dev, SUMS.replace("BARRIER", "%k = neg %h : i32").replace("%a = load", "%q = neg %h : i32\n      %a = load")
    )
    why = wrong(dev, errors.UnwrittenReadError, prg, out, src, local_size=(64, 1, 1))
    assert "tile[32]" in why  # nobody has written it when the first item comes there


def test_an_access_outside_the_buffer_names_element_item_and_line(dev):
    x, y = (hcq.zeros(10, hcq.dtypes.float32, dev.dname) for _ in range(2))
    why = wrong(dev, errors.OutOfBoundsError, program(dev, SAXPY), x, y, local_size=(16, 1, 1), vals=(1.0, 16))
    assert why.startswith("k.py:5:20: x[10] is outside its 10 elements, in work-item (10, 0, 0) of group (0, 0, 0)")


def test_memory_that_nothing_wrote_is_not_read(dev):
    x, y = hcq.empty(8, hcq.dtypes.float32, dev.dname), hcq.zeros(8, hcq.dtypes.float32, dev.dname)
    other = hcq.empty(8, hcq.dtypes.float32, dev.dname)
    hcq.copy(other, x)
    why = wrong(dev, errors.UnwrittenReadError, program(dev, SAXPY), other, y, local_size=(8, 1, 1), vals=(1.0, 8))
    assert "reads x[0], which nothing has written" in why


ONE_CELL = """
kernel cell(out: ptr<i32, global>) {
  %zero = const : i32 {value=0}
  %one = const : i32 {value=1}
  WHAT
  return
}
"""


@pytest.mark.parametrize("sizes", [((2, 1, 1), (1, 1, 1)), ((1, 1, 1), (2, 1, 1))], ids=["groups", "items"])
@pytest.mark.parametrize(
    ("what", "verb"),
    [
        ("store %out, %zero, %one  ; k.py:4:3", "writes"),
        ("%v = load %out, %zero : i32\n  store %out, %zero, %v", "writes"),
    ],
)
def test_two_items_that_write_one_element_race(dev, sizes, what, verb):
    out = hcq.zeros(1, hcq.dtypes.int32, dev.dname)
    prg = program(dev, ONE_CELL.replace("WHAT", what))
    why = wrong(dev, errors.RaceError, prg, out, global_size=sizes[0], local_size=sizes[1])
    assert "out[0]" in why and (verb in why or "reads" in why)


def test_atomic_operations_don_t_race(dev):
    out = hcq.zeros(1, hcq.dtypes.int32, dev.dname)
    prg = program(dev, ONE_CELL.replace("WHAT", '%old = atomic %out, %zero, %one : i32 {how="add"}'))
    prg(out, global_size=(3, 1, 1), local_size=(5, 1, 1))
    assert out.numpy()[0] == 15
    mixed = '%old = atomic %out, %zero, %one : i32 {how="add"}\n  barrier\n  %v = load %out, %zero : i32'
    prg = program(dev, ONE_CELL.replace("WHAT", mixed))
    prg(out, local_size=(5, 1, 1))  # one group: its barrier is between
    dev.synchronize()
    why = wrong(dev, errors.RaceError, prg, out, global_size=(2, 1, 1), local_size=(5, 1, 1))
    assert "reads out[0]" in why or "changes out[0]" in why


def test_a_barrier_that_not_all_items_reach(dev):
    text = """
kernel split(out: ptr<i32, global>) {
  %x = id : i32 {kind="local_id", dim=0}
  %three = const : i32 {value=3}
  %some = lt %x, %three : bool
  if %some {
    barrier  ; k.py:7:5
    yield
  } else {
    yield
  }
  return
}
"""
    out = hcq.zeros(1, hcq.dtypes.int32, dev.dname)
    program(dev, text)(out, local_size=(3, 1, 1))
    dev.synchronize()
    why = wrong(dev, errors.DivergenceError, program(dev, text), out, local_size=(4, 1, 1))
    assert "k.py:7:5: not all work-items come to this barrier: (3, 0, 0) returned" in why


def test_an_index_that_overflows_its_type(dev):
    text = """
kernel far(out: ptr<i32, global>, n: i32) {
  %m = mul %n, %n : i32
  store %out, %m, %n
  return
}
"""
    out = hcq.zeros(1, hcq.dtypes.int32, dev.dname)
    why = wrong(dev, errors.OutOfBoundsError, program(dev, text), out, vals=(1 << 20,))
    assert "the index overflows: 1099511627776 is no i32" in why


def test_shuffles_pass_values_between_neighbours(dev):
    text = """
kernel turn(out: ptr<i32, global>) {
  %x = id : i32 {kind="local_id", dim=0}
  %one = const : i32 {value=1}
  %other = shuffle %x, %one : i32 {how="xor"}
  %lane = subgroup : i32 {kind="lane"}
  %index = subgroup : i32 {kind="index"}
  %k = const : i32 {value=100}
  %far = mul %index, %k : i32
  %sum = add %other, %far : i32
  store %out, %x, %sum
  return
}
"""
    out = hcq.empty(64, hcq.dtypes.int32, dev.dname)
    program(dev, text)(out, local_size=(64, 1, 1))
    assert out.numpy().tolist() == [(i ^ 1) + 100 * (i // 32) for i in range(64)]


def test_views_values_and_vectors(dev):
    text = """
kernel pairs(out: ptr<u16, global>, a: i8, b: u64, c: f64, d: bool) {
  %i = const : i32 {value=0}
  %p = load %out, %i : u16x2
  %s = add %p, %p : u16x2
  store %out, %i, %s
  %two = const : i32 {value=2}
  %q = offset %out, %two : ptr<u16, global>
  %ca = cast %a : u16
  store %q, %i, %ca
  %one = const : i32 {value=1}
  %cb = cast %b : u16
  store %q, %one, %cb
  %cc = cast %c : u16
  store %q, %two, %cc
  %three = const : i32 {value=3}
  %cd = cast %d : u16
  store %q, %three, %cd
  return
}
"""
    root = hcq.array(np.arange(9, dtype=np.uint16), dev.dname)
    view = root.view(6, hcq.dtypes.uint16, 6)
    program(dev, text)(view, vals=(-1, np.uint64(2**40 + 7), 70000.5, True))
    assert root.numpy().tolist() == [0, 1, 2, 6, 8, 65535, 7, 65535, 1]


def test_what_is_no_kernel_is_refused_with_its_line(dev):
    with pytest.raises(CompileError) as caught:
        dev.program("f", 'hcq.ir 1 "k.py"\nkernel f() {\n  %a = nonsense\n  return\n}\n')
    assert "nonsense" in caught.value.log
    lib = dev.compiler.compile('hcq.ir 1 "k.py"\nkernel f() {\n  return\n}\n')
    with pytest.raises(InvalidProgram, match="it has f"):
        dev.runtime("g", lib)
    with pytest.raises(InvalidProgram, match="no library"):
        dev.runtime("f", b"something")
    with pytest.raises(InvalidProgram):
        dev.runtime("f", lib[:-3])


def test_wrong_arguments_are_refused_before_anything_is_queued(dev):
    saxpy = program(dev, SAXPY)
    x = hcq.zeros(4, hcq.dtypes.float32, dev.dname)
    with pytest.raises(LaunchError, match="2"):
        saxpy(x, vals=(1.0, 4))
    with pytest.raises(LaunchError):
        saxpy(x, x, vals=(1.0,))
    with pytest.raises(LaunchError):
        saxpy(x, x, vals=(1.0, 2.5))
    dev.synchronize()
