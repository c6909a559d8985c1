"""Streams and events: order between streams, timing, host functions, threads."""

from __future__ import annotations

import threading

import numpy as np
from core_common import device, download, kernel, lines, upload, view
from cuda.bindings import driver
from cuda.core import EventOptions, LegacyPinnedMemoryResource, Stream, StreamOptions, launch

SCALE = """
extern "C" __global__ void scale(float* data, float factor, float addend, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] = data[i] * factor + addend;
}
"""
COUNT = 5000


def scale(stream, data, factor, addend):
    arguments = (data, np.float32(factor), np.float32(addend), np.int32(COUNT))
    launch(stream, lines(COUNT), kernel(SCALE, "scale"), *arguments)


def example_two_streams_with_events_between_them():
    gpu = device()
    one, two = gpu.create_stream(), gpu.create_stream()
    data = upload(np.ones(COUNT, np.float32), one)
    expected = 1.0
    for step in range(10):  # each depends on what the other stream did
        first, second = (one, two) if step % 2 else (two, one)
        scale(first, data, 1.5, step)
        second.wait(first.record())
        expected = expected * 1.5 + step
    two.wait(one)
    assert (download(data, np.float32, two) == np.float32(expected)).all()


def example_events_time_what_is_between_them():
    gpu = device()
    stream, timed = gpu.create_stream(), EventOptions(timing_enabled=True)
    data = upload(np.ones(COUNT, np.float32), stream)
    begin = stream.record(options=timed)
    scale(stream, data, 2, 0)
    end = stream.record(options=timed)
    end.sync()
    assert begin.is_done and end.is_done
    assert 0 < end - begin < 60_000
    untimed = stream.record()
    untimed.sync()
    try:
        untimed - begin
    except RuntimeError:
        pass
    else:
        raise AssertionError("an event that is not timed was subtracted")


def example_host_functions_in_the_order_of_a_stream():
    gpu = device()
    stream = gpu.create_stream()
    shared = LegacyPinnedMemoryResource().allocate(COUNT * 4)
    data, seen = view(shared, np.float32), []
    data[:] = 1
    import ctypes

    look = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda which: seen.append((which, float(data[0]))))
    for step in range(1, 4):
        scale(stream, shared, 2, 0)
        (error,) = driver.cuLaunchHostFunc(
            stream.handle, driver.CUhostFn(ctypes.cast(look, ctypes.c_void_p).value), step
        )
        assert error == driver.CUresult.CUDA_SUCCESS
    stream.sync()
    assert seen == [(1, 2.0), (2, 4.0), (3, 8.0)]


def example_priorities_and_kinds_of_streams():
    gpu = device()
    for priority in (0, -1):
        made = gpu.create_stream(options=StreamOptions(nonblocking=priority == 0, priority=priority))
        assert made.priority == priority and made.is_nonblocking is (priority == 0)
        assert made.device.device_id == 0 and made.context == gpu.context
        scale(made, upload(np.ones(COUNT, np.float32), made), 2, 0)
        made.sync()
        made.close()
    wrapped = gpu.create_stream()
    assert Stream.from_handle(int(wrapped.handle)) == wrapped


def example_the_default_stream_waits_for_blocking_streams():
    gpu = device()
    blocking = gpu.create_stream(options=StreamOptions(nonblocking=False))
    data = upload(np.ones(COUNT, np.float32), gpu.default_stream)
    for step in range(4):
        scale(blocking if step % 2 else gpu.default_stream, data, 2, 1)
    gpu.sync()
    assert (download(data, np.float32, gpu.default_stream) == 31).all()


def example_threads_with_a_stream_each():
    gpu, results = device(), {}

    def work(which):
        mine = device()
        stream = mine.create_stream()
        data = upload(np.zeros(COUNT, np.float32), stream)
        for _ in range(20):
            scale(stream, data, 1, which)
        results[which] = download(data, np.float32, stream)

    kernel(SCALE, "scale")
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gpu.sync()
    assert all((results[i] == 20 * i).all() for i in range(4))
