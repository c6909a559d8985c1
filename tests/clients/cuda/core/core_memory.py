"""Memory: pools, page-locked and managed memory, copies and fills, views by DLPack, memory of several devices."""

from __future__ import annotations

import numpy as np
from core_common import device, download, kernel, lines, upload, view
from cuda.core import (
    Buffer,
    Device,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    Host,
    LegacyPinnedMemoryResource,
    ManagedMemoryResource,
    PinnedMemoryResource,
    VirtualMemoryResource,
    launch,
)
from cuda.core.utils import StridedMemoryView, args_viewable_as_strided_memory, copy_batch, prefetch_batch

INCREMENT = """
extern "C" __global__ void increment(int* data, int by, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) data[i] += by;
}
"""
COUNT = 3000


def increment(stream, data, by=1):
    launch(stream, lines(COUNT), kernel(INCREMENT, "increment"), data, np.int32(by), np.int32(COUNT))


def example_a_pool_of_ones_own():
    gpu = device()
    stream = gpu.create_stream()
    pool = DeviceMemoryResource(gpu, options=DeviceMemoryResourceOptions(max_size=64 << 20))
    assert pool.is_handle_owned and pool.is_device_accessible and not pool.is_host_accessible
    buffers = [pool.allocate(COUNT * 4, stream=stream) for _ in range(4)]
    stream.sync()
    used = pool.attributes.used_mem_current
    assert used >= 4 * COUNT * 4 and pool.attributes.reserved_mem_current >= used
    for value, buffer in enumerate(buffers):
        buffer.fill(value, stream=stream)
    buffers[0].copy_from(buffers[3], stream=stream)
    increment(stream, buffers[0])
    assert (download(buffers[0], np.int32, stream) == 0x03030303 + 1).all()
    for buffer in buffers:
        buffer.close(stream)
    stream.sync()
    assert pool.attributes.used_mem_current == 0 and pool.attributes.used_mem_high >= used
    again = pool.allocate(COUNT * 4, stream=stream)
    again.close(stream)
    pool.close()


def example_the_devices_own_pool():
    gpu = device()
    stream, pool = gpu.create_stream(), gpu.memory_resource
    with pool.allocate(COUNT * 4, stream=stream) as buffer:
        assert buffer.size == COUNT * 4 and buffer.device_id == gpu.device_id and buffer.memory_resource == pool
        buffer.fill(np.int32(7), stream=stream)
        increment(stream, buffer)
        assert (download(buffer, np.int32, stream) == 8).all()
    assert buffer.is_closed


def example_memory_in_the_order_of_the_stream():
    gpu = device()
    stream = gpu.create_stream()
    results = []
    for value in range(8):  # each is freed before the host waits for anything
        buffer = gpu.allocate(COUNT * 4, stream=stream)
        buffer.fill(np.int32(value), stream=stream)
        increment(stream, buffer)
        kept = LegacyPinnedMemoryResource().allocate(COUNT * 4)
        buffer.copy_to(kept, stream=stream)
        buffer.close(stream)
        results.append(kept)
    stream.sync()
    assert [int(view(kept, np.int32)[COUNT - 1]) for kept in results] == list(range(1, 9))


def example_page_locked_and_managed_memory():
    gpu = device()
    stream = gpu.create_stream()
    resources = [LegacyPinnedMemoryResource(), PinnedMemoryResource(), ManagedMemoryResource()]
    for resource in resources:
        assert resource.is_device_accessible and resource.is_host_accessible
        buffer = resource.allocate(COUNT * 4, stream=stream)
        stream.sync()
        view(buffer, np.int32)[:] = np.arange(COUNT)
        increment(stream, buffer, 5)
        stream.sync()
        assert (np.from_dlpack(buffer).view(np.int32) == np.arange(COUNT) + 5).all()
        buffer.close(stream)


def example_virtual_memory():
    gpu = device()
    stream = gpu.create_stream()
    buffer = VirtualMemoryResource(gpu).allocate(COUNT * 4, stream=stream)
    assert buffer.size >= COUNT * 4
    buffer.fill(0, stream=stream)
    increment(stream, buffer, 3)
    assert (download(buffer, np.int32, stream)[:COUNT] == 3).all()
    buffer.close()


def example_fills_of_one_two_and_four_bytes():
    gpu = device()
    stream = gpu.create_stream()
    for value in (np.uint8(0xA5), np.uint16(0x1234), np.uint32(0xDEADBEEF)):
        buffer = gpu.allocate(COUNT * 4, stream=stream)
        buffer.fill(value, stream=stream)
        assert (download(buffer, value.dtype, stream) == value).all()


def example_memory_of_somebody_else():
    gpu = device()
    stream = gpu.create_stream()
    array = np.arange(COUNT, dtype=np.int32)  # ordinary memory: this device's kernels see it
    buffer = Buffer.from_handle(array.ctypes.data, array.nbytes, owner=array)
    assert buffer.owner is array
    increment(stream, buffer, 2)
    stream.sync()
    assert (array == np.arange(COUNT) + 2).all()


def example_strided_views_of_arrays_and_buffers():
    gpu = device()
    stream = gpu.create_stream()
    host = np.arange(24, dtype=np.float32).reshape(4, 6)
    seen = StridedMemoryView.from_dlpack(host[:, ::2], stream_ptr=-1)
    assert (seen.shape, seen.strides, seen.dtype) == ((4, 3), (6, 2), np.float32)
    assert seen.device_id == -1 and not seen.is_device_accessible
    buffer = upload(host, stream)
    made = StridedMemoryView.from_buffer(buffer, (4, 6), dtype=np.dtype(np.float32))
    assert made.is_device_accessible and made.device_id == 0 and made.exporting_obj is buffer
    back = StridedMemoryView.from_dlpack(buffer, stream_ptr=int(stream.handle))
    assert back.ptr == int(buffer.handle) and back.is_device_accessible

    @args_viewable_as_strided_memory((0,))
    def describe(argument):
        found = argument.view(-1)
        return found.ptr, found.shape

    assert describe(host) == (host.ctypes.data, (4, 6))


class Array:
    """An array as other libraries export it."""

    def __init__(self, buffer, stream):
        self.__cuda_array_interface__ = {
            "version": 3,
            "data": (int(buffer.handle), False),
            "shape": (COUNT // 3, 3),
            "strides": None,
            "typestr": "<i4",
            "stream": int(stream.handle),
        }


def example_arrays_by_the_cuda_array_interface():
    gpu = device()
    producer, consumer = gpu.create_stream(), gpu.create_stream()
    buffer = upload(np.zeros(COUNT, np.int32), producer)
    increment(producer, buffer, 4)
    seen = StridedMemoryView.from_cuda_array_interface(Array(buffer, producer), stream_ptr=int(consumer.handle))
    assert (seen.ptr, seen.shape, seen.dtype) == (int(buffer.handle), (COUNT // 3, 3), np.int32)
    increment(consumer, buffer)
    assert (download(buffer, np.int32, consumer) == 5).all()


def example_two_devices_and_copies_between_them():
    assert len(Device.get_all_devices()) == 2
    streams, buffers = [], []
    for which in range(2):
        gpu = device(which)
        streams.append(gpu.create_stream())
        buffers.append(upload(np.full(COUNT, which * 10, np.int32), streams[-1]))
    for which in range(2):
        device(which)
        made = kernel(INCREMENT, "increment", which=which)
        launch(streams[which], lines(COUNT), made, buffers[which], np.int32(which + 1), np.int32(COUNT))
    assert Device(0).can_access_peer(1)
    device(0)
    done = streams[0].record()
    device(1)
    streams[1].wait(done)
    target = Device(1).allocate(COUNT * 4, stream=streams[1])
    target.copy_from(buffers[0], stream=streams[1])
    assert (download(target, np.int32, streams[1]) == 1).all()
    assert (download(buffers[1], np.int32, streams[1]) == 12).all()
    device(0)


def example_a_device_describes_itself():
    gpu = device()
    properties = gpu.properties
    assert properties.warp_size == 32 and properties.max_threads_per_block == 1024
    assert properties.can_use_64_bit_stream_mem_ops and properties.memory_pools_supported
    assert len(gpu.uuid) == 36 and gpu.name and gpu.compute_capability.major >= 5
    assert Device(0).uuid != Device(1).uuid and Device(0).pci_bus_id != Device(1).pci_bus_id


def example_copies_in_batches():
    gpu = device()
    stream = gpu.create_stream()
    sources = [upload(np.full(COUNT, value, np.int32), stream) for value in range(4)]
    targets = [gpu.allocate(COUNT * 4, stream=stream) for _ in sources]
    copy_batch(stream, sources, targets)
    for value, target in enumerate(targets):
        assert (download(target, np.int32, stream) == value).all()


def example_managed_memory_and_where_it_should_be():
    gpu = device()
    stream, pool = gpu.create_stream(), ManagedMemoryResource()
    buffers = [pool.allocate(COUNT * 4, stream=stream) for _ in range(2)]
    stream.sync()
    for buffer in buffers:
        view(buffer, np.int32)[:] = 1
    buffers[0].preferred_location = gpu
    assert buffers[0].preferred_location == gpu
    buffers[0].read_mostly = True
    assert buffers[0].read_mostly and not buffers[1].read_mostly
    prefetch_batch(stream, buffers, gpu)
    increment(stream, buffers[1])
    buffers[1].prefetch(Host(), stream=stream)
    stream.sync()
    assert [int(view(buffer, np.int32)[5]) for buffer in buffers] == [1, 2]


def example_pointers_are_told_apart():
    gpu = device()
    stream = gpu.create_stream()
    kinds = {
        gpu.memory_resource: (True, False),
        LegacyPinnedMemoryResource(): (True, True),
        ManagedMemoryResource(): (True, True),
    }
    for resource, expected in kinds.items():
        made = resource.allocate(64, stream=stream)
        found = Buffer.from_handle(int(made.handle), made.size)  # asks the driver what it is
        assert (found.is_device_accessible, found.is_host_accessible) == expected, resource
        made.close(stream)
