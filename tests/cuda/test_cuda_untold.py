"""Kernels of which it isn't said which parameters are pointers: PTX without marks, fat binaries, cubins."""

import struct

import numpy as np
import pytest

import hcq
from hcq.errors import CompileError, InvalidProgram, LaunchError

PTX = """
.version 7.0
.target sm_70
.address_size 64
.visible .entry scale(
  .param .u64 out, .param .u64 src, .param .f32 by, .param .u64 add, .param .u8 small, .param .align 4 .b8 more[12]
)
{
  .reg .f32 %f<5>;
  .reg .b32 %r<4>;
  .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [out];
  ld.param.u64 %rd2, [src];
  ld.param.f32 %f1, [by];
  ld.param.u64 %rd3, [add];
  ld.param.u8 %r1, [small];
  ld.param.u32 %r2, [more+8];
  ld.global.f32 %f2, [%rd2];
  cvt.rn.f32.u64 %f3, %rd3;
  fma.rn.f32 %f2, %f2, %f1, %f3;
  st.global.f32 [%rd1], %f2;
  st.global.u32 [%rd1+4], %r1;
  st.global.u32 [%rd1+8], %r2;
  ret;
}
.visible .entry other() { ret; }
"""
MORE = struct.pack("iii", 1, 2, 3)


def fat(text):
    """A fat binary of one text, as nvcc's fatbinary writes them."""
    payload = text.encode()
    payload += bytes(8 - len(payload) % 8)
    head = struct.pack("<HHIQIIHHIIIQQQ", 1, 0x101, 64, len(payload), 0, 0, 0, 0, 70, 0, 0, 0x11, 0, 0)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(head) + len(payload)) + head + payload


@pytest.fixture
def memory(dev):
    return hcq.zeros(3, hcq.f32, "CUDA"), hcq.array(np.array([3], np.float32), "CUDA")


def results(out):
    values = out.numpy()
    return [float(values[0]), *values[1:].view(np.int32).tolist()]


@pytest.fixture(params=["PTX", "a fat binary"])
def scale(request, dev):
    return dev.program("scale", PTX if request.param == "PTX" else fat(PTX))


def test_arguments_are_given_in_the_kernels_own_order(dev, scale, memory):
    out, src = memory
    assert scale.signature is None
    scale(out, src, vals=(np.float32(0.5), 2**40, np.uint8(200), MORE))
    assert results(out) == [float(2**40), 200, 3]
    scale.prepare(out, src, vals=(np.float32(0.5), 1, np.uint8(2), MORE))(wait=True)
    assert results(out) == [2.5, 2, 3]


def test_ptx_says_what_its_values_are(dev, memory):
    out, src = memory
    scale = dev.program("scale", PTX)
    scale(out, src, vals=(0.25, 1, 7, MORE))
    assert results(out) == [1.75, 7, 3]
    before = dev.timeline_value
    for wrong in ((1e39, 1, 7, MORE), (1.0, 1.5, 7, MORE), (1.0, 1, 256, MORE), (1.0, 1, 7, MORE[:8])):
        with pytest.raises(LaunchError, match=r"scale: value [0-3]"):
            scale(out, src, vals=wrong)
    assert dev.timeline_value == before


def test_wrong_counts_and_buffers_where_none_can_be_are_refused(dev, scale, memory):
    out, src = memory
    before = dev.timeline_value
    for bufs, vals in ((memory, ()), ((out,), (np.float32(1), 1, np.uint8(1), MORE)), ((), ())):
        with pytest.raises(LaunchError, match="scale takes 6 arguments"):
            scale(*bufs, vals=vals)
    with pytest.raises(LaunchError, match=r"scale: argument 2 .*4 bytes.* buffers first"):
        scale(out, src, out, vals=(1, np.uint8(1), MORE))
    assert dev.timeline_value == before


def test_graphs_and_queues_take_them_and_replays_change_values(dev, scale, memory):
    out, src = memory
    with hcq.capture(inputs={"out": out}) as graph:
        for _ in range(3):
            scale(out, src, vals=(np.float32(0.5), 1, np.uint8(2), MORE))
    graph.replay(vals={(2, 0): np.float32(2), (2, 3): MORE[::-1]}).wait()
    assert results(out) == [7.0, 2, int.from_bytes(MORE[::-1][8:], "little")]
    other = hcq.zeros(3, hcq.f32, "CUDA")
    graph.replay(out=other, vals={(2, 2): np.uint8(9)}).wait()
    assert results(other)[:2] == [7.0, 9]
    with pytest.raises(LaunchError, match="structure of 12 bytes"):
        graph.replay(vals={(2, 3): MORE[:4]})
    done = dev.signal_t()
    kernargs = scale.fill_kernargs([out._buf, src._buf], (np.float32(1), 4, np.uint8(5), MORE))
    dev.synchronize()
    queue = dev.hw_compute_queue_t().exec(scale, kernargs, (1, 1, 1), (1, 1, 1)).signal(done, 1)
    queue.bind(dev).submit(dev)
    done.wait(1)
    assert results(out) == [7.0, 5, 3]


def test_a_fat_binary_tells_which_kernels_it_has(dev):
    for library in (fat(PTX), dev.compiler.compile_cached(fat(PTX))):
        dev.runtime("other", library)(wait=True)
        with pytest.raises(InvalidProgram, match="no kernel 'absent' in the library: it has scale, other"):
            dev.runtime("absent", library)
    scale = dev.runtime("scale", fat(PTX)).with_local_memory(64)
    assert scale.local_memory_bytes == 64


def test_what_its_driver_cannot_run_is_refused_with_the_drivers_words(dev, nvrtc):
    """hcq.cudacpu runs no machine code; a GPU's driver runs that of its own architecture."""
    from hcq.drivers.cuda import nvrtc as compiler

    other = {target for target in compiler.targets() if target // 10 != dev.found.capability[0]}
    source = 'extern "C" __global__ void f(int *out) { out[0] = 1; }'
    cubin = compiler.Compiled(source, f"sm_{min(other)}", ()).cubin
    with pytest.raises(InvalidProgram, match=r"f: .*CUDA_ERROR_NO_BINARY_FOR_GPU"):
        dev.program("f", cubin)
    with pytest.raises(InvalidProgram, match="does not load the library"):
        dev.runtime("f", fat("nothing of use"))


def test_a_cubin_of_the_devices_own_runs(dev, nvrtc):
    from hcq.drivers.cuda import nvrtc as compiler

    if dev.is_cpu_implementation:
        pytest.skip("hcq.cudacpu runs no machine code")
    major, minor = dev.found.capability
    source = 'extern "C" __global__ void f(int *out, float v) { out[0] = v; }'
    cubin = compiler.Compiled(source, f"sm_{major}{minor}", ()).cubin
    out = hcq.zeros(1, hcq.i32, "CUDA")
    dev.program("f", cubin)(out, vals=(np.float32(5),))
    assert out.numpy()[0] == 5


def test_bytes_that_are_nothing_known_are_refused_by_the_compiler(dev):
    with pytest.raises(CompileError, match="expected CUDA C, PTX, a cubin or a fat binary"):
        dev.compiler.compile(b"\xff\xfe\x00")
