"""The file that rows about reading share: made once a run, beside the workers' own folders, and gone with them."""

from __future__ import annotations

import os
import random
from pathlib import Path


def path(size: int) -> str:
    """A file of `size` bytes without a pattern, on the disk."""
    folder = Path(os.environ.get("HCQ_BENCH_SCRATCH") or ".").resolve().parent
    found = folder / f"file-{size}"
    if not found.exists():
        aside = folder / f"file-{size}-{os.getpid()}"
        piece = bytearray(random.Random(size).randbytes(1 << 20))
        with aside.open("wb") as file:
            for number in range(size >> 20):
                piece[:8] = number.to_bytes(8, "little")
                file.write(piece)
            file.write(b"\x5a" * (size & ((1 << 20) - 1)))
            file.flush()
            os.fsync(file.fileno())
        aside.replace(found)
    return str(found)


def prepare(name: str, cold: bool) -> None:
    """Takes the file out of the system's memory, or into it."""
    with open(name, "rb", buffering=0) as file:
        if cold:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        else:
            piece = bytearray(1 << 20)
            while file.readinto(piece):
                pass
