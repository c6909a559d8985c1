"""What the tests of DISK share: contents, whole files as buffers, descriptors, and files taken out of memory."""

from __future__ import annotations

import os

import numpy

from hcq import Buffer, dtypes

U8 = dtypes.uint8


def data_of(count, seed=1):
    return numpy.random.default_rng(seed).integers(0, 256, count, dtype=numpy.uint8).tobytes()


def whole(path, mode=""):
    return Buffer(f"DISK:{path}{mode}", os.path.getsize(path), U8).allocate()


def descriptors(path):
    """How many descriptors of this process are open on the file."""
    found = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            found += os.path.samestat(os.stat(f"/proc/self/fd/{name}"), os.stat(path))
        except OSError:
            continue
    return found


def forget_pages(path):
    """Take the file out of the system's memory, so that the engines are asked."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)
