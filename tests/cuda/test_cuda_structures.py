"""Structures by value, and values of small types, as arguments of CUDA kernels."""

import ctypes
import struct

import ml_dtypes
import numpy as np
import pytest

import hcq
from hcq.errors import InvalidProgram, LaunchError
from hcq.queues import launch

SOURCE = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
struct P { float a; int b; float *p; };
struct Odd { signed char c[3]; };
struct Two { char x, y; };
struct alignas(64) Wide { unsigned char bytes[128]; };
extern "C" __global__ void one(P v, int *out) { out[threadIdx.x] = v.b + (int)v.a + (int)v.p[threadIdx.x]; }
extern "C" __global__ void mixed(Odd o, short s, const int *in, Wide w, double d, int *out) {
  out[0] = o.c[0] + o.c[2]; out[1] = s; out[2] = in[0]; out[3] = w.bytes[127] + w.bytes[0]; out[4] = (int)d;
}
__global__ void plain(Two t, int *out) { out[0] = t.x * 100 + t.y; }
extern "C" __global__ void small(__nv_fp8_e4m3 e, __nv_fp8_e5m2 f, __half h, __nv_bfloat16 g, bool t, float *out) {
  out[0] = (float)e; out[1] = (float)f; out[2] = __half2float(h); out[3] = __bfloat162float(g); out[4] = t;
}
extern "C" __global__ void huge(Wide a, Wide b, int *out) { out[0] = a.bytes[5] + b.bytes[5]; }
"""
P = np.dtype([("a", "f4"), ("b", "i4"), ("p", "u8")])


class CP(ctypes.Structure):
    _fields_ = (("a", ctypes.c_float), ("b", ctypes.c_int), ("p", ctypes.c_void_p))


@pytest.fixture
def one(dev, nvrtc):
    return dev.program("one", SOURCE)


@pytest.fixture
def pointed(dev):
    buf = hcq.array(np.arange(4, dtype=np.float32), "CUDA")
    dev.synchronize()  # the launch does not know of it
    return buf


@pytest.fixture
def out(dev):
    return hcq.zeros(8, hcq.i32, "CUDA")


def record(a, b, address):
    return np.array([(a, b, address)], P)[0]


def every_form(a, b, address):
    return {
        "a record": record(a, b, address),
        "an array of one": np.array((a, b, address), P),
        "ctypes": CP(a, b, address),
        "bytes": struct.pack("fiQ", a, b, address),
        "bytearray": bytearray(struct.pack("fiQ", a, b, address)),
    }


@pytest.mark.parametrize("form", ["a record", "an array of one", "ctypes", "bytes", "bytearray"])
def test_a_structure_is_given_in_any_form_that_has_its_bytes(dev, one, out, pointed, form):
    one(out, vals=(every_form(2.0, 30, pointed._buf.va_addr)[form],), local_size=(4, 1, 1))
    assert out.numpy()[:4].tolist() == [32, 33, 34, 35]
    assert one.signature[1:] == (("bytes16", ""),)


def test_structures_and_values_stand_in_any_order_and_alignment(dev, nvrtc, out):
    mixed = dev.program("mixed", SOURCE)
    given = hcq.array(np.array([44], np.int32), "CUDA")
    wide = bytes([5]) + bytes(126) + bytes([9])
    mixed(given, out, vals=(b"\xfb\x00\x07", -300, wide, 2.0))
    assert out.numpy()[:5].tolist() == [2, -300, 44, 14, 2]
    assert [kind for kind, _ in mixed.signature] == ["pointer", "pointer", "bytes3", "int16", "bytes128", "float64"]
    plain = dev.program("plain", SOURCE)
    plain(out, vals=(bytes([3, 4]),))
    assert out.numpy()[0] == 304 and plain.signature[1][0] == "bytes2"


@pytest.mark.parametrize(
    "wrong",
    [b"", bytes(15), bytes(17), np.zeros(1, "V20")[0], (ctypes.c_char * 12)(), np.float64(1), 7, 1.5, None, "x", [1]],
)
def test_what_is_no_structure_of_that_size_is_refused_with_both_sizes(dev, one, out, wrong):
    before = dev.timeline_value
    with pytest.raises(LaunchError, match="one: value 0: expected a structure of 16 bytes") as error:
        one(out, vals=(wrong,))
    try:
        size = memoryview(wrong).nbytes
    except TypeError:
        pass
    else:
        assert f"got {size} bytes" in str(error.value)
    assert dev.timeline_value == before


def test_an_enumeration_of_64_bits_is_no_pointer(dev, nvrtc, out):
    source = """
    enum class E : long long { one = 1 };
    extern "C" __global__ void e(E which, int *out, int add) { out[0] = (int)((long long)which >> 32) + add; }
    """
    program = dev.program("e", source)
    program(out, vals=(7 << 32, 2))
    assert out.numpy()[0] == 9 and [kind for kind, _ in program.signature] == ["pointer", "bits64", "int32"]


@pytest.mark.parametrize(
    "wrong",
    [
        np.array([1, 2, 3, 4], ">f4"),
        np.zeros(1, np.dtype([("a", ">f4"), ("b", "i4"), ("p", "u8")]))[0],
        (ctypes.c_float.__ctype_be__ * 4)(),
        np.array([None, None], object),
        np.zeros(1, np.dtype([("a", "O"), ("p", "u8")]))[0],
        (ctypes.py_object * 2)(None, None),
    ],
)
def test_what_no_kernel_reads_is_no_part_of_a_structure(dev, one, out, wrong):
    assert len(bytes(memoryview(wrong))) == 16
    with pytest.raises(LaunchError, match=r"Python objects|big-endian"):
        one(out, vals=(wrong,))
    with pytest.raises(LaunchError, match=r"Python objects|big-endian"):
        launch.pack_values((wrong,), ["bytes16"])
    with hcq.capture() as graph:
        one(out, vals=(bytes(16),), global_size=(0, 1, 1))
    with pytest.raises(LaunchError, match=r"Python objects|big-endian"):
        graph.replay(vals={(0, 0): wrong})
    named = np.zeros(1, np.dtype([("O", "f4"), (">", "i4"), ("!", "u8")]))[0]
    one(out, vals=(named,), global_size=(0, 1, 1))
    assert launch.pack_values((named,), ["bytes16"]) == bytes(16)


def test_strided_bytes_are_refused(dev, one, out):
    with pytest.raises(LaunchError, match="structure of 16 bytes"):
        one(out, vals=(np.zeros(32, np.uint8)[::2],))


def test_what_becomes_of_a_structure_after_the_launch_does_not_matter(dev, one, out, pointed):
    value = CP(2.0, 30, pointed._buf.va_addr)
    prepared = one.prepare(out, vals=(value,), local_size=(4, 1, 1))
    with hcq.capture() as graph:
        one(out, vals=(value,), local_size=(4, 1, 1))
        value.b = 1000
        for _ in range(2):
            one(out.view(4, hcq.i32, 16), vals=(value,), local_size=(4, 1, 1))
        value.b = 9
    graph.replay().wait()
    assert out.numpy().tolist() == [32, 33, 34, 35, 1002, 1003, 1004, 1005]
    out.fill(0)
    prepared()
    assert out.numpy()[:4].tolist() == [32, 33, 34, 35]


def test_replays_change_structures(dev, one, out, pointed):
    address = pointed._buf.va_addr
    second = out.view(4, hcq.i32, 16)
    with hcq.capture() as graph:
        one(out, vals=(record(2.0, 30, address),), local_size=(4, 1, 1))
        one(second, vals=(record(2.0, 30, address),), local_size=(4, 1, 1))
    graph.replay(vals={(at, 0): record(1.0, 10, address) for at in (0, 1)}).wait()
    assert out.numpy().tolist() == [11, 12, 13, 14] * 2
    changed = CP(0.0, 5, address)
    graph.replay(vals={(1, 0): changed}).wait()
    assert out.numpy().tolist() == [11, 12, 13, 14, 5, 6, 7, 8]
    changed.b = 77
    graph.replay(vals={(0, 0): bytes(record(0.0, 1, address).tobytes())}).wait()
    assert out.numpy().tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    for wrong in (bytes(8), 5):
        with pytest.raises(LaunchError, match="structure of 16 bytes"):
            graph.replay(vals={(0, 0): wrong})
    graph.replay().wait()
    assert out.numpy().tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


class Pair(ctypes.Structure):
    _fields_ = (("x", ctypes.c_byte), ("y", ctypes.c_byte))


@pytest.mark.parametrize(
    "form",
    [
        lambda held: held,
        memoryview,
        Pair.from_buffer,
        lambda held: np.frombuffer(held, "i1"),
        lambda held: np.frombuffer(held, "i1,i1")[0],
        lambda held: np.frombuffer(held, "u2").reshape(()),
        lambda held: np.frombuffer(held, "u2").view(ml_dtypes.bfloat16),
        lambda held: np.frombuffer(held, "u2").view([("h", ml_dtypes.bfloat16)])[0],
    ],
)
def test_replays_take_whatever_launches_take_as_a_structure_and_keep_its_bytes(dev, nvrtc, out, tmp_path, form):
    held = bytearray([3, 4])
    given = form(held)
    plain = dev.program("plain", SOURCE)
    plain(out, vals=(given,))
    assert out.numpy()[0] == 304
    with hcq.capture() as graph:
        plain(out, vals=(bytes(2),))
    graph.replay(vals={(0, 0): given}).wait()
    held[:] = bytes(2)
    graph.save(tmp_path / "plain.hcqg")
    from hcq.graph import saved

    run = saved.SavedGraph(tmp_path / "plain.hcqg").on("CUDA")
    run.run()
    assert run.buffer(0).numpy()[0] == 304


def test_queues_and_graphs_of_queues_take_structures(dev, one, out, pointed):
    address = pointed._buf.va_addr
    kernargs = one.fill_kernargs([out._buf], (record(2.0, 30, address),))
    dev.synchronize()
    queue, done = dev.hw_compute_queue_t(), dev.signal_t()
    for _ in range(3):
        queue.exec(one, kernargs, (1, 1, 1), (4, 1, 1))
    queue.signal(done, 1).bind(dev).submit(dev)
    done.wait(1)
    assert out.numpy()[:4].tolist() == [32, 33, 34, 35]
    with hcq.capture() as graph:
        dev.hw_compute_queue_t().exec(one, kernargs, (1, 1, 1), (4, 1, 1)).submit(dev)
    graph.replay(vals={(0, 0): record(2.0, 40, address)}).wait()
    assert out.numpy()[:4].tolist() == [42, 43, 44, 45]


def test_a_saved_graph_has_its_structures(dev, nvrtc, out, tmp_path):
    plain = dev.program("plain", SOURCE)
    with hcq.capture() as graph:
        plain(out, vals=(bytearray([3, 4]),))
    graph.replay(vals={(0, 0): np.array([(5, 6)], "i1,i1")[0]}).wait()
    graph.save(tmp_path / "plain.hcqg")
    from hcq.graph import saved

    run = saved.SavedGraph(tmp_path / "plain.hcqg").on("CUDA")
    run.run()
    assert run.buffer(0).numpy()[0] == 506


def test_small_values_arrive_rounded_and_as_they_are(dev, nvrtc):
    small = dev.program("small", SOURCE)
    out = hcq.zeros(5, hcq.f32, "CUDA")
    small(out, vals=(1.1, -3.3, 0.1, 0.1, np.bool_(True)))
    expected = [
        float(kind(value))
        for kind, value in (
            (ml_dtypes.float8_e4m3fn, 1.1),
            (ml_dtypes.float8_e5m2, -3.3),
            (np.float16, 0.1),
            (ml_dtypes.bfloat16, 0.1),
        )
    ]
    assert out.numpy().tolist() == [*expected, 1.0]
    vals = (ml_dtypes.float8_e4m3fn(448), ml_dtypes.float8_e5m2(57344), np.float16(2), ml_dtypes.bfloat16(-3), False)
    small(out, vals=vals)
    assert out.numpy().tolist() == [448.0, 57344.0, 2.0, -3.0, 0.0]
    assert [kind for kind, _ in small.signature][1:] == ["float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "bool"]
    for position, wrong in (
        (0, 465.0),
        (0, float("inf")),
        (1, 61441.0),
        (0, 17),
        (1, 9),
        (1, ml_dtypes.float8_e4m3fn(1)),
    ):
        with pytest.raises(LaunchError, match=f"value {position}"):
            small(out, vals=(*vals[:position], wrong, *vals[position + 1 :]))


def test_every_float_of_eight_bits_is_rounded_as_ml_dtypes_does(dev, nvrtc):
    small = dev.program("small", SOURCE)
    for position, kind in ((0, ml_dtypes.float8_e4m3fn), (1, ml_dtypes.float8_e5m2)):
        every = np.arange(256, dtype=np.uint8).view(kind).astype(np.float32)  # by way of which ml_dtypes rounds
        finite = np.sort(np.unique(every[np.isfinite(every)]))
        between = (finite[1:] + finite[:-1]) / np.float32(2)
        values = [*finite, *between, *np.nextafter(between, np.float32(np.inf)), np.nan]
        values += list(np.nextafter(between, np.float32(-np.inf)))
        vals = [0.0, 0.0, 0.0, 0.0, False]
        at = small.kernargs_alloc_size
        memory = (ctypes.c_ubyte * at)()
        out = hcq.zeros(5, hcq.f32, "CUDA")
        for value in values:
            vals[position] = float(value)
            small.fill_kernargs([out._buf], vals, ctypes.addressof(memory))
            held = np.frombuffer(bytes(memory)[8 + position : 9 + position], kind)[0]
            wanted = np.float64(value).astype(kind)
            assert held == wanted or (np.isnan(value) and np.isnan(held)), value
            assert np.signbit(float(held)) == np.signbit(value) or np.isnan(value)


def test_ptx_that_names_no_type_takes_what_has_the_size(dev):
    text = """
.version 7.0
.target sm_70
.address_size 64
.visible .entry two(.param .u64 .ptr .global out, .param .align 2 .b8 h[2], .param .align 4 .b8 s[8])
{
  .reg .b16 %h<2>;
  .reg .b32 %r<3>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  ld.param.b16 %h1, [h];
  ld.param.u32 %r1, [s+4];
  cvt.u32.u16 %r2, %h1;
  st.global.u32 [%rd1], %r2;
  st.global.u32 [%rd1+4], %r1;
  ret;
}
"""
    two = dev.program("two", text)
    out = hcq.zeros(2, hcq.i32, "CUDA")
    two(out, vals=(np.float16(1), struct.pack("ii", 1, 2)))
    assert out.numpy().tolist() == [0x3C00, 2]
    two(out, vals=(ml_dtypes.bfloat16(1), struct.pack("ii", 1, 3)))
    assert out.numpy().tolist() == [0x3F80, 3]
    with pytest.raises(LaunchError, match="structure of 2 bytes"):
        two(out, vals=(1.0, bytes(8)))
    with hcq.capture() as graph:
        for _ in range(3):
            two(out, vals=(np.float16(1), struct.pack("ii", 1, 2)))
    graph.replay(vals={"s": bytearray(struct.pack("ii", 1, 40)), "two.h": ml_dtypes.bfloat16(1)}).wait()
    assert out.numpy().tolist() == [0x3F80, 40]


def test_more_arguments_than_a_launch_carries_are_refused(dev, nvrtc):
    source = """
    struct Big { char c[4080]; };
    struct More { char c[4084]; };
    extern "C" __global__ void big(Big b, int *out, long long x) { out[0] = b.c[9] + x; }
    extern "C" __global__ void more(More b, int *out, double y, long long x) { out[0] = b.c[9] + x + y; }
    """
    big = dev.program("big", source)
    out = hcq.zeros(1, hcq.i32, "CUDA")
    big(out, vals=(bytes([0] * 9 + [8]) + bytes(4070), 3))
    assert out.numpy()[0] == 11
    with pytest.raises(InvalidProgram, match=r"more: 4112 bytes of arguments.*4096"):
        dev.program("more", source)
    many = ", ".join(f".param .u8 v{i}" for i in range(600))
    with pytest.raises(InvalidProgram, match=r"many: 600 arguments.*511"):
        dev.program("many", f".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry many({many}) {{ ret; }}")
