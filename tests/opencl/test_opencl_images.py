"""Images on GPU: BufferOptions(image=...), kernels of image2d_t, copies of whole ones and of parts, what is refused."""

import gc
import pickle
from typing import NamedTuple

import numpy as np
import pytest

import hcq
from hcq import _native
from hcq.errors import DeviceLost, DeviceUnavailable, InvalidProgram, LaunchError, OutOfMemory
from hcq.testing.suite.tools import eventually

pytest.importorskip("pyopencl", reason="GPU: pyopencl is not installed")
pytestmark = pytest.mark.usefixtures("images")

DOUBLE = """
__kernel void twice(write_only image2d_t out, read_only image2d_t in, const float factor) {
  const sampler_t nearest = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;
  int2 at = (int2)(get_global_id(0), get_global_id(1));
  write_imagef(out, at, factor * read_imagef(in, nearest, at));
}
"""
ADD = """
__kernel void add(read_write image2d_t x, const float more) {
  int2 at = (int2)(get_global_id(0), get_global_id(1));
  write_imagef(x, at, read_imagef(x, at) + more);
}
"""
SUM = """
__kernel void total(__global float *out, read_only image2d_t in) {
  const sampler_t nearest = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;
  float4 sum = 0;
  for (int y = 0; y < get_image_height(in); ++y)
    for (int x = 0; x < get_image_width(in); ++x) sum += read_imagef(in, nearest, (int2)(x, y));
  out[0] = sum.x + sum.y + sum.z + sum.w;
}
"""
POINTER = "__kernel void f(__global float *x) { x[0] = 1; }"


class ImageDType(NamedTuple):
    """As clients have them: a dtype that knows its shape."""

    itemsize: int
    shape: tuple


@pytest.fixture
def staged(gpu, monkeypatch):
    """GPU as where the host doesn't reach the device's memory."""
    hcq.Device.close("GPU")
    monkeypatch.setenv("HCQ_FORCE_STAGING", "1")
    yield hcq.Device["GPU"]
    hcq.Device.close("GPU")


def image(height, width, channels=4, dtype=hcq.f32, device="GPU", value=None):
    """An image, with random contents or a value everywhere, and the array that it holds."""
    kind = hcq.dtypes.to_numpy(dtype)
    shape = height, width, channels
    if value is not None:
        array = np.full(shape, value, kind)
    else:
        array = np.random.default_rng(height * width).integers(0, 100, shape).astype(kind)
    options = hcq.BufferOptions(image=(dtype, shape))
    return hcq.Buffer(device, array.size, dtype, options=options).allocate().copyin(array), array


def contents(buf, array):
    return buf.numpy().reshape(array.shape)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "uint8", "uint16", "uint32", "float16", "float32"])
@pytest.mark.parametrize("shape", [(3, 5, 4), (1, 1, 4), (7, 2, 1), (64, 33, 2)])
def test_an_image_holds_what_was_copied_in(gpu, dtype, shape):
    try:
        buf, array = image(*shape, dtype=getattr(hcq.dtypes, dtype))
    except ValueError as why:  # OpenCL lets devices lack formats of fewer channels
        assert "no such pixels" in str(why) and shape[2] != 4
        return
    assert (contents(buf, array) == array).all()
    assert bytes(buf.as_buffer()) == array.tobytes()
    assert gpu.info["images"].startswith("up to ")


def test_the_host_does_not_reach_an_image(gpu):
    buf, array = image(3, 5)
    with pytest.raises(ValueError, match="the host can't reach memory of GPU"):
        buf.as_buffer(force_zero_copy=True)
    with pytest.raises(BufferError):
        memoryview(buf)
    assert (contents(buf.fill(2.5), array) == 2.5).all()
    private = buf.as_buffer(allow_zero_copy=True)
    private[:4] = b"\0\0\0\0"
    assert contents(buf, array)[0, 0, 0] == 2.5


@pytest.mark.parametrize("dtype", [hcq.f32, hcq.f16])
def test_kernels_read_and_write_images(gpu, dtype):
    src, array = image(6, 10, dtype=dtype)
    out, _ = image(6, 10, dtype=dtype, value=0)
    program = gpu.program("twice", DOUBLE)
    assert program.accesses == ("w", "r") and program.buffer_count == 2
    assert program(out, src, vals=(2.0,), global_size=(5, 3, 1), local_size=(2, 2, 1)) is None
    assert (contents(out, array) == 2 * array).all()
    assert program(src, out, vals=(0.5,), global_size=(5, 3, 1), local_size=(2, 2, 1), wait=True) > 0
    launch = program.prepare(out, src, vals=(3.0,), global_size=(10, 6, 1))
    for _ in range(3):
        launch()
    assert (contents(out, array) == 3 * array).all()
    total = hcq.zeros(1, hcq.f32, "GPU")
    gpu.program("total", SUM)(total, src)
    assert total.numpy()[0] == array.astype("f8").sum()


def test_samplers_filter_and_clamp(gpu):
    source = """
    __kernel void between(__global float4 *out, read_only image2d_t in) {
      const sampler_t linear = CLK_NORMALIZED_COORDS_TRUE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_LINEAR;
      out[0] = read_imagef(in, linear, (float2)(0.5f, 0.5f));
      out[1] = read_imagef(in, linear, (float2)(-3.0f, -3.0f));
    }
    """
    src, array = image(2, 2)
    out = hcq.zeros(8, hcq.f32, "GPU")
    gpu.program("between", source)(out, src)
    assert np.allclose(out.numpy().reshape(2, 4), [array.mean((0, 1)), array[0, 0]], rtol=1e-2)


def test_kernels_read_and_write_one_image(gpu):
    try:
        program = gpu.program("add", ADD)
    except hcq.errors.CompileError as why:
        pytest.skip(f"GPU: no read_write images: {why}")
    x, array = image(6, 10)
    assert program.accesses == ("rw",)
    for _ in range(4):
        program(x, vals=(1.5,), global_size=(10, 6, 1))
    assert (contents(x, array) == array + 6).all()


def test_images_in_queues_bound_queues_and_graphs(gpu):
    program = gpu.program("twice", DOUBLE)
    src, array = image(6, 10)
    out, _ = image(6, 10, value=0)
    done = hcq.HCQSignal()
    gpu.synchronize()  # a queue of one's own is ordered by its own waits
    kernargs = program.fill_kernargs((out, src), (2.0,))
    queue = gpu.hw_compute_queue_t().exec(program, kernargs, (10, 6, 1), (1, 1, 1)).signal(done, 1)
    queue.submit(gpu)
    done.wait(1)
    assert (contents(out, array) == 2 * array).all()
    queue.bind(gpu)
    for value in (2, 3):
        out.fill(0)
        gpu.synchronize()
        queue.update_signal(1, done, value)
        queue.submit(gpu)
        done.wait(value)
        assert (contents(out, array) == 2 * array).all()
    other, others = image(6, 10, value=7)
    plain = hcq.zeros(array.size, hcq.f32, "GPU")
    with hcq.capture(inputs={"x": src}) as graph:
        program(out, src, vals=(5.0,), global_size=(10, 6, 1))
        hcq.copy(plain, out)
    graph.replay().wait()
    assert (contents(plain, array) == 5 * array).all()
    graph.replay(x=other).wait()
    assert (contents(plain, array) == 5 * others).all()
    for wrong in (hcq.zeros(array.size, hcq.f32, "GPU"), image(10, 6)[0]):
        with pytest.raises(ValueError, match="input 'x' was captured with an image of 6 rows of 10 pixels"):
            graph.replay(x=wrong)
    graph.replay(x=src).wait()
    assert (contents(plain, array) == 5 * array).all()


def test_a_graph_of_a_buffer_takes_no_image(gpu):
    a, b = (hcq.zeros(240, hcq.f32, "GPU") for _ in range(2))
    with hcq.capture(inputs={"x": a}) as graph:
        gpu.program("f", POINTER)(a)
    with pytest.raises(ValueError, match="is an image"):
        graph.replay(x=image(6, 10)[0])
    graph.replay(x=b).wait()
    assert b.numpy()[0] == 1


def copies_are_right():
    a, array = image(5, 7)
    b, _ = image(5, 7, value=0)  # alike
    c, _ = image(7, 5, value=0)  # of as many bytes
    d, _ = image(5, 7, 4, hcq.dtypes.uint32, value=0)
    plain = hcq.zeros(array.size, hcq.f32, "GPU")
    for dest, src in ((plain, a), (b, plain), (c, b), (d, c), (b, d)):
        hcq.copy(dest, src)
        assert bytes(dest.as_buffer()) == array.tobytes()
    flat = np.frombuffer(array.tobytes(), "u1")
    pixel = 16
    for first, count in ((0, 1), (3, 2), (3, 4), (6, 9), (7, 14), (2, 24), (0, 35), (34, 1), (10, 15)):
        view = a.view(count * pixel, hcq.dtypes.uint8, first * pixel).ensure_allocated()
        part = flat[first * pixel : (first + count) * pixel]
        assert (view.numpy() == part).all()
        to = hcq.zeros(count * pixel, hcq.dtypes.uint8, "GPU")
        hcq.copy(to, view)
        assert (to.numpy() == part).all()
        into = b.fill(0).view(count * pixel, hcq.dtypes.uint8, first * pixel).ensure_allocated()
        hcq.copy(into, to)
        wanted = np.zeros_like(flat)
        wanted[first * pixel : (first + count) * pixel] = part
        assert (np.frombuffer(b.as_buffer(), "u1") == wanted).all()
    # Overlapping parts of one image: as if read first.
    hcq.copy(*(a.view(20 * pixel, hcq.dtypes.uint8, at * pixel).ensure_allocated() for at in (3, 0)))
    wanted = flat.copy()
    wanted[3 * pixel : 23 * pixel] = flat[: 20 * pixel]
    assert (np.frombuffer(a.as_buffer(), "u1") == wanted).all()
    with hcq.capture() as graph:
        hcq.copy(c, a)
        hcq.copy(plain, c)
    plain.fill(0)
    graph.replay().wait()
    assert bytes(plain.as_buffer()) == wanted.tobytes()


def test_copies_of_images_and_of_parts(gpu):
    copies_are_right()


def test_copies_where_the_host_does_not_reach_the_memory(staged):
    copies_are_right()


def test_copies_go_in_pieces_that_end_within_rows(gpu):
    buf, array = image(500, 701, dtype=hcq.f16)  # 2.8 MB in batches of 2 MiB
    assert (contents(buf, array) == array).all()


@pytest.mark.parametrize("other", ["LLVM", "GPU:1", "VULKAN"])
def test_copies_between_devices(gpu, other):
    try:
        there = hcq.zeros(6 * 10 * 4, hcq.f32, other)
    except DeviceUnavailable as why:
        pytest.skip(f"{other}: {why}")
    src, array = image(6, 10)
    hcq.copy(there, src)
    assert (there.numpy() == array.ravel()).all()
    back, _ = image(6, 10, value=0)
    hcq.copy(back, there)
    assert (contents(back, array) == array).all()
    with hcq.capture() as graph:
        hcq.copy(there, src)
        hcq.copy(back, there)
    back.fill(0)
    graph.replay().wait()
    assert (contents(back, array) == array).all()
    if getattr(hcq.Device[other], "images", None) is not None:
        far, _ = image(6, 10, value=0, device=other)
        hcq.copy(far, src)
        assert (contents(far, array) == array).all()


def test_an_image_comes_from_a_file(gpu, tmp_path):
    array = np.arange(64 * 33 * 4, dtype="f4").reshape(64, 33, 4)
    array.tofile(tmp_path / "x.bin")
    buf, _ = image(64, 33, value=0)
    hcq.copy(buf, hcq.Buffer(f"DISK:{tmp_path}/x.bin", array.size, hcq.f32).allocate())
    assert (contents(buf, array) == array).all()


def test_a_dtype_with_a_shape_is_an_image(gpu):
    """As tinygrad's: the buffer's dtype says it."""
    given = type("ImageDType", (ImageDType,), {})
    for itemsize, kind in ((4, "f4"), (2, "f2")):
        array = np.arange(6 * 10 * 4, dtype=kind).reshape(6, 10, 4)
        src, out = (hcq.Buffer("GPU", array.size, given(itemsize, array.shape)).allocate() for _ in range(2))
        src.copyin(array)
        gpu.program("twice", DOUBLE)(out, src, vals=(2.0,), global_size=(10, 6, 1))
        assert (np.frombuffer(out.as_buffer(), kind) == 2 * array.ravel()).all()


def test_what_is_no_image_is_refused_before_anything_is_queued(gpu):
    program, pointer = gpu.program("twice", DOUBLE), gpu.program("f", POINTER)
    x, array = image(6, 10)
    plain = hcq.zeros(array.size, hcq.f32, "GPU")
    before = gpu.timeline_value
    part = x.view(array.size - 40, hcq.f32, 160).ensure_allocated()
    wrong = {
        r"twice: buffer 1 is no image, and the kernel takes an image2d_t": (x, plain),
        r"twice: buffer 0 is no image": (plain, x),
        r"twice: buffer 1 is a part of an image, from byte 160 on": (x, part),
    }
    for said, bufs in wrong.items():
        for call in (program, program.prepare, lambda *bufs, vals: program.fill_kernargs(bufs, vals)):
            with pytest.raises(LaunchError, match=said):
                call(*bufs, vals=(1.0,))
    with pytest.raises(LaunchError, match="f: buffer 0 is an image, and the kernel takes a pointer"):
        pointer(x)
    with pytest.raises(LaunchError, match="f: buffer 0 is an image"):
        pointer(part)
    with hcq.capture() as graph, pytest.raises(LaunchError, match="is an image"):
        pointer(x)
    assert graph is not None and gpu.timeline_value == before
    with pytest.raises(LaunchError, match="is no image"):
        program(x, array, vals=(1.0,))  # an array becomes a plain buffer
    gpu.synchronize()
    assert (contents(x, array) == array).all()


@hcq.kernel
def portable(x: hcq.ptr[hcq.f32]):
    x[hcq.global_id(0)] = 1.0


def test_portable_kernels_and_operations_take_no_image(gpu):
    x, array = image(6, 10)
    plain = hcq.zeros(array.size, hcq.f32, "GPU")
    portable[4, 4](plain)  # known by now
    for call in (lambda: portable[4, 4](x), lambda: hcq.ops.sum(x)):
        with pytest.raises(LaunchError, match="is an image, and the kernel takes a pointer"):
            call()
    assert (contents(x, array) == array).all()


def test_programs_of_other_devices_take_no_image(gpu):
    x, _ = image(6, 10)
    plain = "define void @f(ptr %x) {\n  store float 1.0, ptr %x\n  ret void\n}\n"
    program = hcq.Device["LLVM"].program("f", plain)
    for given in (x, x._buf, x.view(4, hcq.f32, 16).ensure_allocated()):
        with pytest.raises(LaunchError, match="f: buffer 0 is"):
            program(given)
    with pytest.raises(NotImplementedError, match="reached by the queues of its own device alone"):
        hcq.Device["LLVM"].allocator.map(x._buf)


def test_an_image_of_another_device_is_refused(gpu):
    try:
        far, _ = image(6, 10, device="GPU:1")
    except DeviceUnavailable as why:
        pytest.skip(f"GPU:1: {why}")
    near, _ = image(6, 10)
    with pytest.raises(LaunchError, match="is on 'GPU:1'"):
        gpu.program("twice", DOUBLE)(near, far, vals=(1.0,))
    with pytest.raises(LaunchError, match="is an image of another device"):
        gpu.program("twice", DOUBLE)(near._buf, far._buf, vals=(1.0,))
    del far
    hcq.Device.close("GPU:1")


@pytest.mark.parametrize(
    ("given", "size", "error", "said"),
    [
        ((hcq.f32, (2, 2, 3)), 12, ValueError, "no image has 3 x float32"),
        ((hcq.f64, (2, 2, 4)), 16, ValueError, "4 x float64"),
        ((hcq.f32, (2, 0, 4)), 16, ValueError, "at least a pixel"),
        ((hcq.f32, (2, 4)), 8, ValueError, r"expected \(dtype, \(height, width, channels\)\)"),
        ("float32", 8, ValueError, r"expected \(dtype"),
        (ImageDType(8, (2, 2, 4)), 16, ValueError, r"expected \(dtype"),
        ((hcq.f32, (2, 2, 4)), 15, ValueError, "has 64 bytes, and the buffer 60: its size must be 16 elements"),
        ((hcq.f32, (2, 2, 4)), 17, ValueError, "has 64 bytes, and the buffer 68"),
    ],
)
def test_images_that_are_none_are_refused(gpu, given, size, error, said):
    with pytest.raises(error, match=said):
        hcq.Buffer("GPU", size, hcq.f32, options=hcq.BufferOptions(image=given)).allocate()


def test_images_beyond_the_devices_limits_are_refused(gpu, monkeypatch):
    def wanted(height, width):
        options = hcq.BufferOptions(image=(hcq.f32, (height, width, 4)))
        return hcq.Buffer("GPU", height * width * 4, hcq.f32, options=options).allocate()

    rows, wide = gpu.images.largest
    assert (rows, wide) == (gpu.cl_device.image2d_max_height, gpu.cl_device.image2d_max_width)
    for height, width in ((rows + 1, 1), (1, wide + 1)):
        with pytest.raises(ValueError, match=f"this device has at most {rows} rows of {wide}"):
            wanted(height, width)
    assert wanted(1, wide).is_allocated() and wanted(rows, 1).is_allocated()
    monkeypatch.setattr(gpu.images, "_most", 1 << 20)
    with pytest.raises(OutOfMemory, match="1048576 bytes at once at most"):
        wanted(1024, 1024)
    monkeypatch.setattr(gpu.images, "_formats", set())
    with pytest.raises(ValueError, match="no such pixels"):
        wanted(4, 4)


def test_parts_are_whole_pixels(gpu):
    buf, _ = image(6, 10)
    handle = buf._buf
    for size, at in ((8, 0), (16, 8), (24, 16)):
        with pytest.raises(ValueError, match="expected whole pixels, 16 bytes each"):
            buf.view(size, hcq.dtypes.uint8, at).ensure_allocated()
    for call in (
        lambda: gpu.allocator.copyin(handle, bytes(20)),
        lambda: gpu.allocator.copyout(bytearray(20), handle),
        lambda: gpu.allocator.transfer(handle, handle, 20, src_dev=gpu, dest_dev=gpu),
    ):
        with pytest.raises(
            ValueError, match="20 bytes from byte 0 on of an image of 6 rows of 10 pixels of 4 x float32"
        ):
            call()
    gpu.synchronize()


def test_a_device_without_images_gives_memory_and_refuses_kernels_of_images(gpu, monkeypatch):
    hcq.Device.close("GPU")
    monkeypatch.setattr("hcq.drivers.opencl.images.Support.of", lambda *args: None)
    device = hcq.Device["GPU"]
    try:
        buf, array = image(6, 10)
        assert not hasattr(buf._buf, "image") and device.info["images"] == "none"
        assert (contents(buf, array) == array).all()
        with pytest.raises(InvalidProgram, match="twice: argument 0 is an image2d_t, and GPU has no images"):
            device.program("twice", DOUBLE)
    finally:
        hcq.Device.close("GPU")


def test_other_devices_give_ordinary_memory():
    buf, array = image(6, 10, device="LLVM")
    assert (contents(buf, array) == array).all() and buf.as_buffer(force_zero_copy=True).nbytes == array.nbytes


def test_an_image_is_used_again_for_the_same_image_alone(gpu):
    buf, array = image(6, 10)
    at = buf._buf.va_addr
    del buf
    gpu.synchronize()
    assert hcq.zeros(array.size, hcq.f32, "GPU")._buf.va_addr != at
    assert image(10, 6)[0]._buf.va_addr != at
    again = image(6, 10)[0]
    assert again._buf.va_addr == at
    # The options may be changed until the memory is freed: an image stays one.
    again.options = None
    del again
    gpu.synchronize()
    plain = [hcq.zeros(array.size, hcq.f32, "GPU") for _ in range(4)]
    assert not any(hasattr(each._buf, "image") for each in plain)
    plain[0].options = hcq.BufferOptions(image=(hcq.f32, array.shape))
    del plain
    gpu.synchronize()
    assert (contents(*image(6, 10)) == array).all()


def test_an_image_pickles(gpu):
    buf, array = image(6, 10)
    other = pickle.loads(pickle.dumps(buf))
    assert other.options == buf.options and (contents(other, array) == array).all()
    out, _ = image(6, 10, value=0)
    gpu.program("twice", DOUBLE)(out, other, vals=(2.0,), global_size=(10, 6, 1))
    assert (contents(out, array) == 2 * array).all()


def test_no_image_is_left_of_what_was_freed_and_of_closed_devices(gpu):
    hcq.Device.close("GPU")

    def held():
        gc.collect()
        _native.run_retired()
        return _native.opencl_held()

    def round_trip():
        device = hcq.Device["GPU"]
        src, array = image(6, 10)
        out, _ = image(6, 10, value=0)
        device.program("twice", DOUBLE)(out, src, vals=(2.0,), global_size=(10, 6, 1))
        assert (contents(out, array) == 2 * array).all()
        once = hcq.Buffer("GPU", 4, hcq.f32, options=hcq.BufferOptions(image=(hcq.f32, (1, 1, 4)), nolru=True))
        before = _native.opencl_held()[4]
        once.allocate()
        assert _native.opencl_held()[4] == before + 1
        once.deallocate()
        device.synchronize()
        device.allocator.free_cache()  # looks at what was freed while something was queued
        assert eventually(lambda: held()[4] == before)
        del src, out
        device.close()

    round_trip()
    assert eventually(lambda: held()[4] == 0), held()
    before = held()
    for _ in range(30):
        round_trip()
    assert eventually(lambda: held() == before), (held(), before)


def test_checks_look_at_images(gpu):
    program = gpu.program("twice", DOUBLE)
    with hcq.checks():
        src, array = image(6, 10)
        out, _ = image(6, 10, value=0)
        program(out, src, vals=(2.0,), global_size=(10, 6, 1))
        assert (contents(out, array) == 2 * array).all()
        plain = hcq.zeros(array.size, hcq.f32, "GPU")
        hcq.copy(plain, out)
        assert (contents(plain, array) == 2 * array).all()
        with pytest.raises(hcq.errors.HCQError, match="race: two accesses to all 960 bytes"):
            program(out, src, vals=(2.0,), global_size=(10, 6, 1), stream=gpu.stream())
            program(src, out, vals=(2.0,), global_size=(10, 6, 1), stream=gpu.stream())
            gpu.synchronize()


def test_kernargs_of_an_image_that_is_gone_lose_the_device(gpu):
    hcq.Device.close("GPU")
    device = hcq.Device["GPU"]
    program = device.program("twice", DOUBLE)
    (src, _), (out, _) = image(6, 10), image(6, 10, value=0)
    kernargs = program.fill_kernargs((out, src), (2.0,))
    src.options = hcq.BufferOptions(image=src.options.image, nolru=True)
    src.deallocate()
    device.synchronize()
    device.allocator.free_cache()  # looks at what was freed while something was queued
    _native.run_retired()
    device.hw_compute_queue_t().exec(program, kernargs, (1, 1, 1), (1, 1, 1)).submit(device)
    with pytest.raises(DeviceLost, match=r"argument 1: CL_INVALID_MEM_OBJECT \(-38\)"):
        device.synchronize()
    del src, out
    hcq.Device.close("GPU")


@pytest.mark.parametrize("function", ["clEnqueueReadImage", "clEnqueueWriteImage", "clEnqueueCopyImage"])
def test_a_copy_that_opencl_refuses_loses_the_device_with_it_as_the_cause(gpu, function):
    hcq.Device.close("GPU")
    device = hcq.Device["GPU"]
    (a, array), (b, _) = image(6, 10), image(6, 10, value=0)
    device.synchronize()
    plain = hcq.zeros(array.size, hcq.f32, "GPU")
    dest, src = {"clEnqueueReadImage": (plain, a), "clEnqueueWriteImage": (a, plain)}.get(function, (b, a))
    _native.opencl_fail(function, -5)
    try:
        with pytest.raises(DeviceLost, match=rf"copy(?s:.)*{function} gave CL_OUT_OF_RESOURCES \(-5\)"):
            hcq.copy(dest, src)
            device.synchronize()
    finally:
        _native.opencl_fail("", 0)
    del a, b, plain, dest, src
    hcq.Device.close("GPU")
    assert (contents(*image(6, 10)) == array).all()
