"""Reading files to a CUDA device's memory by cuFile (GPUDirect Storage), where that goes past the host.

What does not live here: cuFile's functions (native/cuda/files.cpp), and the ring of page-locked memory that everything
else goes through (hcq.queues.allocator).
"""

from __future__ import annotations

import os
import threading
import weakref
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from hcq import _native, config
from hcq.runtime import logs, process

if TYPE_CHECKING:
    from hcq.drivers.cuda.device import CUDADevice

LEAST = 1 << 20
"""Bytes from which a read is worth a call of its own."""

_NAMES = ("libcufile.so.0", "libcufile.so")
_SYSTEMS = {
    0xEF53: "ext4",
    0x58465342: "XFS",
    0x6969: "NFS",
    0x0BD00BD0: "Lustre",
    0x47504653: "GPFS",
    0x19830326: "BeeGFS",
}
_MODULE = "/sys/module/nvidia_fs"
_AROUND = "the kernel module nvidia-fs is not in use, without which cuFile copies by way of the host"
_MEANINGS = {
    5001: "nvidia-fs is not loaded",
    5004: "nvidia-fs is of another version",
    5007: "not on this machine",
    5008: "not for this file",
    5009: "not for this GPU",
    5020: "the file isn't opened for direct I/O",
    5025: "no permission",
    5034: "its configuration says no",
}

_lock = threading.Lock()
_known: weakref.WeakKeyDictionary[Any, _native.CudaFile | None] = weakref.WeakKeyDictionary()
_told: set[str] = set()


def reader(device: CUDADevice, src: Any, size: int) -> _native.CudaFile | None:
    """What reads the file behind `src`, a handle of DISK's; None where the way through page-locked memory is to be
    taken, for a reason that the log has (HCQ_LOG=info)."""
    mode = config.CUDA_FILE()
    file = getattr(src, "file", None)
    if mode == "off" or size < LEAST or file is None or src.segment is not None or file.native is None:
        return None
    with _lock:
        if file not in _known:
            reason = why_not(mode, device.is_cpu_implementation)
            made = reason if reason else _opened(mode, file)
            if isinstance(made, str):
                _tell(f"{file.path} is read by way of page-locked memory: {made}")
            _known[file] = None if isinstance(made, str) else made
        return _known[file]


def give_up(src: Any, error: int) -> None:
    """cuFile has failed with a file: it is read otherwise from now on."""
    with _lock:
        _known[src.file] = None
    _tell(f"{src.file.path} is read by way of page-locked memory from now on: cuFileRead gave {meaning(error)}")


def why_not(mode: str, on_cpu: bool) -> str:
    """Why cuFile isn't to be used for any file; "" where it is."""
    if mode == "auto" and on_cpu:
        return "hcq.cudacpu's memory is the host's"
    if mode == "auto" and not os.path.exists(_MODULE):  # looked at first: cuFile has threads and a log of its own
        return _AROUND
    reason = _native.cuda_load_cufile([*_NAMES, *_in_wheels()])
    if reason:
        return reason
    return "" if mode == "on" else past_the_host(*_native.cuda_file_facts())


def past_the_host(major: int, minor: int, systems: int) -> str:
    """Why cuFile would itself copy by way of the host, one piece after the other, which the ring does better."""
    if (major, minor) == (0, 0):
        return _AROUND
    return "" if systems else "nvidia-fs supports no file system here"


def meaning(error: int) -> str:
    """An error of cuFile's in words."""
    number = abs(error)
    return f"{number} ({_MEANINGS[number]})" if number in _MEANINGS else str(number)


def _opened(mode: str, file: Any) -> _native.CudaFile | str:
    system = _native.cuda_file_system(file.descriptor)
    if mode == "auto" and system not in _SYSTEMS:
        return f"its file system ({system:#x}) is none of those that go past the host: {', '.join(_SYSTEMS.values())}"
    try:
        descriptor = os.open(f"/proc/self/fd/{file.descriptor}", os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        return f"no direct I/O ({error.strerror})"
    try:
        return _native.CudaFile(descriptor)
    except RuntimeError as error:
        number = int(str(error).rpartition(" ")[2])
        return f"cuFileHandleRegister gave {meaning(number)}"


def _in_wheels() -> list[str]:
    spec = find_spec("nvidia")
    found = []
    for path in (spec.submodule_search_locations or ()) if spec else ():
        for folder in sorted(os.listdir(path)):
            found += [os.path.join(path, folder, "lib", name) for name in _NAMES]
    return [name for name in found if os.path.exists(name)]


def _tell(text: str) -> None:
    if text not in _told:
        _told.add(text)
        logs.logger("cuda").info(text)


def _fresh() -> None:
    global _lock
    _lock = threading.Lock()
    _known.clear()


process.at_fork_in_child(_fresh)  # another thread of the parent may have held it
