"""A CUDA driver on the CPU: programs of the CUDA driver API run without a GPU and without NVIDIA's driver.

    python -m hcq.cudacpu script.py arguments      # or: -m module arguments

or, before anything has loaded CUDA:

    import hcq.cudacpu
    hcq.cudacpu.install()

docs/cudacpu.md says what runs and what is faithful. What does not live here: the driver (native/cudacpu), the compiler
(compiler, ptx, lower).
"""

from __future__ import annotations

import atexit
import ctypes
import os
import sys
import threading
from typing import TYPE_CHECKING

from hcq.errors import DeviceUnavailable

if TYPE_CHECKING:
    from hcq.cudacpu.loading import Loader

__all__ = ["child_environment", "install", "installed", "library_path"]

_SONAME = "libcuda.so.1"
_lock = threading.Lock()
_loader: Loader | None = None


def library_path() -> str:
    """Where this package's libcuda.so.1 is. Raises DeviceUnavailable where it was not built (not on Linux)."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), _SONAME)
    if not os.path.exists(path):
        raise DeviceUnavailable(f"hcq.cudacpu was built without {_SONAME}: it exists on Linux only")
    return path


def installed() -> bool:
    """Whether this process's CUDA driver is the one on the CPU."""
    return _loader is not None


def install() -> None:
    """Make this process's CUDA driver the one on the CPU; once it is, further calls do nothing.

    Loads the library with global symbols, so that whoever opens libcuda.so.1 later gets it. Processes that are started
    from here have their own; `child_environment` makes it this one too. A forked child has none, as with a GPU. Any
    thread. Raises DeviceUnavailable where another CUDA driver was loaded before: a process has one.
    """
    global _loader
    with _lock:
        if _loader is not None:
            return
        path = library_path()
        other = _loaded_driver()
        if other is not None and not os.path.samefile(other, path):
            raise DeviceUnavailable(
                f"another CUDA driver is loaded already ({other}): call hcq.cudacpu.install() before whatever loads"
                " CUDA, or start the program by `python -m hcq.cudacpu`"
            )
        from hcq.cudacpu import runtime
        from hcq.cudacpu.loading import Loader

        loader = Loader(ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL))
        loader.install()
        atexit.register(loader.remove)
        runtime.attach()
        _loader = loader


def child_environment() -> dict[str, str]:
    """What the environment of a process must have for its CUDA driver to be this one, where it is a Python process with
    hcq: HCQ_CUDA for hcq's own CUDA device, LD_LIBRARY_PATH for whoever opens libcuda.so.1. Wins over nothing else that
    is in LD_LIBRARY_PATH already, but stands first."""
    before = os.environ.get("LD_LIBRARY_PATH", "")
    folder = os.path.dirname(library_path())
    parts = [folder, *(part for part in before.split(os.pathsep) if part and part != folder)]
    return {"HCQ_CUDA": "cpu", "LD_LIBRARY_PATH": os.pathsep.join(parts)}


def _loaded_driver() -> str | None:
    """The file of the libcuda.so.1 that this process has, if it has one."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            for line in maps:
                path = line.rstrip("\n").partition("/")[2]
                name = path.rpartition("/")[2]
                if name == _SONAME or name.startswith("libcuda.so."):
                    return "/" + path
    except OSError:  # no /proc
        return None
    return None
