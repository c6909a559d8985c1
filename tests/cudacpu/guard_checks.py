"""Checks of the driver on the CPU: what HCQ_CUDACPU_CHECK=1 does to memory. Run by inside.py."""

import ctypes
import os

from driver import cuda, out

U64 = ctypes.c_uint64
SIZE = ctypes.c_size_t


def alloc(size):
    return out(U64, cuda.cuMemAlloc_v2, SIZE(size)).value


def faults(address):
    """Whether a process that reads there is ended for it."""
    pid = os.fork()
    if pid == 0:
        ctypes.string_at(address, 1)
        os._exit(0)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def check_a_guard_stands_behind_each_block():
    for size in (256, 4096, 100 * 256):
        block = alloc(size)
        assert not faults(block + size - 1)
        assert faults(block + size)
        assert faults(block - 4096)


def check_freed_memory_is_not_touched_again():
    block = alloc(1000)
    cuda.cuMemFree_v2(U64(block))
    other = alloc(1000)
    assert other != block and faults(block)


def check_memory_of_pools_is_guarded_too():
    block = out(U64, cuda.cuMemAllocAsync, SIZE(512), None).value
    assert not faults(block) and faults(block + 512)
    cuda.cuMemFreeAsync(U64(block), None)
    cuda.cuCtxSynchronize()
    assert faults(block)


def check_host_memory_is_guarded_too():
    block = out(ctypes.c_void_p, cuda.cuMemHostAlloc, SIZE(256), 0).value
    assert not faults(block) and faults(block + 256)
