"""Images on GPU in use by many at once, freed while work on them is queued, and copied at random."""

import gc
import random
import threading

import numpy as np
import pytest

import hcq

pytest.importorskip("pyopencl", reason="GPU: pyopencl is not installed")
pytestmark = pytest.mark.usefixtures("images")

ROWS, WIDE, PIXEL = 6, 10, 16
TIMES = """
__kernel void times(write_only image2d_t out, read_only image2d_t in, float by) {
  const sampler_t nearest = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;
  int2 at = (int2)(get_global_id(0), get_global_id(1));
  write_imagef(out, at, by * read_imagef(in, nearest, at));
}
"""


def image(value, shape=(ROWS, WIDE, 4)):
    options = hcq.BufferOptions(image=(hcq.f32, shape))
    size = ROWS * WIDE * 4
    return hcq.Buffer("GPU", size, hcq.f32, options=options).allocate().copyin(np.full(size, value, "f4"))


def test_images_that_are_dropped_live_as_long_as_what_is_queued_and_captured(gpu):
    times, plain = gpu.program("times", TIMES), hcq.zeros(ROWS * WIDE * 4, hcq.f32, "GPU")
    for value in range(60):
        src, out = image(value), image(0)
        times(out, src, vals=(2.0,), global_size=(WIDE, ROWS, 1))
        hcq.copy(plain, out)
        del src, out
        if value % 20 == 19:
            assert (plain.numpy() == 2 * value).all()
    src, out = image(1), image(0)
    with hcq.capture() as graph:
        times(out, src, vals=(3.0,), global_size=(WIDE, ROWS, 1))
        hcq.copy(plain, out)
    del src, out
    gc.collect()
    others = [image(9) for _ in range(5)]
    graph.replay().wait()
    assert (plain.numpy() == 3).all() and (others[0].numpy() == 9).all()


def test_threads_launch_one_kernel_over_images_of_their_own(gpu):
    times, wrong = gpu.program("times", TIMES), []

    def work(number):
        stream = gpu.stream()
        for round_ in range(40):
            value = 1000 * number + round_
            src, out = image(value), image(0)
            gpu.synchronize()
            times(out, src, vals=(2.0,), global_size=(WIDE, ROWS, 1), stream=stream)
            stream.synchronize()
            if not (out.numpy() == 2 * value).all():
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("staging", ["0", "1"])
def test_random_copies_of_parts_are_those_of_bytes(gpu, monkeypatch, staging):
    hcq.Device.close("GPU")
    monkeypatch.setenv("HCQ_FORCE_STAGING", staging)
    rng, pixels = random.Random(3), ROWS * WIDE
    bufs = [image(0), image(0), image(0, (WIDE, ROWS, 4)), *(hcq.zeros(pixels * 4, hcq.f32, "GPU") for _ in range(2))]
    model = [np.random.default_rng(at).integers(0, 255, pixels * PIXEL, dtype="u1") for at in range(len(bufs))]
    for buf, array in zip(bufs, model, strict=True):
        buf.copyin(array)

    def part(buf, at, count):
        return buf.view(count * PIXEL, hcq.dtypes.uint8, at * PIXEL).ensure_allocated()

    for _ in range(400):
        to, here = rng.randrange(len(bufs)), rng.randrange(len(bufs))
        count = rng.randrange(1, pixels + 1)
        first, second = rng.randrange(pixels - count + 1), rng.randrange(pixels - count + 1)
        hcq.copy(part(bufs[to], first, count), part(bufs[here], second, count))
        source = model[here][second * PIXEL : (second + count) * PIXEL].copy()
        model[to][first * PIXEL : (first + count) * PIXEL] = source
    for buf, array in zip(bufs, model, strict=True):
        assert (np.frombuffer(buf.as_buffer(), "u1") == array).all()
    del bufs, buf
    hcq.Device.close("GPU")
