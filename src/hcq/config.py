"""Every environment variable that hcq reads, typed and documented, in one table.

A variable is an object here; calling it reads the environment now, so that a change made by the program (or a test) is
seen and an empty environment works. A value that can't be understood raises ValueError naming the variable, the value
and what was expected. The flags that pick a device (`CUDA=1`) are named after devices, so they live with the registry.
What does not live here: anything that acts on a value.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_FALSE = frozenset({"0", "false", "no", "off"})
_TRUE = frozenset({"1", "true", "yes", "on"})

_table: dict[str, Variable] = {}


class Variable:
    """One environment variable: `name`, `default`, and `doc` for the reference. Threads may share it."""

    kind = "text"

    def __init__(self, name: str, default: object, doc: str) -> None:
        self.name = name
        self.default = default
        self.doc = doc
        _table[name] = self

    def raw(self) -> str | None:
        """The text in the environment, stripped; None where it is unset or empty."""
        return (os.environ.get(self.name) or "").strip() or None

    def shown(self) -> object:
        """The value in force, for listings."""
        raw = self.raw()
        return self.default if raw is None else raw

    def row(self) -> str:
        """This variable's line in the table of docs/environment.md."""
        default = "" if self.default is None else f"{self.default:d}" if isinstance(self.default, int) else self.default
        return f"| `{self.name}` | {self.kind} | {default} | {self.doc} |"

    def _refuse(self, expected: str) -> ValueError:
        return ValueError(f"{self.name}={self.raw()!r}: expected {expected}")


class Flag(Variable):
    """A switch: 0, false, no, off; 1, true, yes, on. Any other whole number counts as on."""

    kind = "switch"

    def __call__(self) -> bool:
        raw = self.raw()
        if raw is None:
            return bool(self.default)
        lowered = raw.lower()
        if lowered in _FALSE:
            return False
        if lowered in _TRUE:
            return True
        try:
            return int(raw) != 0
        except ValueError:
            raise self._refuse("0 or 1") from None


class Count(Variable):
    """A whole number that is not negative."""

    kind = "number"

    def __call__(self) -> int:
        raw = self.raw()
        if raw is None:
            return int(str(self.default))
        if not raw.isdecimal():
            raise self._refuse("a whole number, 0 or more")
        return int(raw)


class Size(Variable):
    """A number of bytes, with an optional unit: 1048576, 64K, 64 KiB, 2G."""

    kind = "bytes"

    def __call__(self) -> int:
        raw = self.raw()
        if raw is None:
            return int(str(self.default))
        text = raw.upper().removesuffix("B").removesuffix("I").rstrip()
        digits = text.rstrip("KMGT")
        unit = text[len(digits) :]
        digits = digits.rstrip()
        if unit not in _UNITS or not digits.isdecimal():
            raise self._refuse("a number of bytes such as 1048576, 64K or 2GiB")
        return int(digits) * _UNITS[unit]


class Choice(Variable):
    """One of a few words."""

    kind = "word"

    def __init__(self, name: str, default: str, words: tuple[str, ...], doc: str) -> None:
        super().__init__(name, default, doc)
        self.words = words

    def __call__(self) -> str:
        raw = self.raw()
        if raw is None:
            return str(self.default)
        if raw.lower() not in self.words:
            raise self._refuse(f"one of {', '.join(self.words)}")
        return raw.lower()


class Text(Variable):
    """Any text; None where unset or empty."""

    kind = "text"

    def __call__(self) -> str | None:
        raw = self.raw()
        if raw is None:
            return None if self.default is None else str(self.default)
        return raw


DEVICE = Text(
    "HCQ_DEVICE", None, "The default device, named outright (CLANG:1). Wins over the flags named like devices."
)
LOG = Text("HCQ_LOG", None, "Log level of the logger 'hcq' (debug, info, warning, error), written to standard error.")

CC = Text(
    "HCQ_CC", None, "C compiler of the CLANG device: a name or path, and arguments; else clang, gcc, cc, then ziglang."
)
CACHE_DIR = Text("HCQ_CACHE_DIR", None, "Directory of the compile cache; by default hcq in the user's cache directory.")
CACHE_LIMIT = Size("HCQ_CACHE_LIMIT", 2 << 30, "Bytes that the compile cache may hold; least recently used entries go.")
DISABLE_COMPILER_CACHE = Flag(
    "DISABLE_COMPILER_CACHE", False, "Compile every time: compilers made now have no cachekey."
)
ASSERT_COMPILE = Flag("ASSERT_COMPILE", False, "A compile that the cache can't answer raises CompileError.")

LRU = Flag("LRU", True, "Keep freed device memory for the next allocation of the same size and options.")
MEMORY_LIMIT = Size("HCQ_MEMORY_LIMIT", 0, "Bytes of buffers (live and cached) a device may hold; 0 is no limit.")
FORCE_STAGING = Flag(
    "HCQ_FORCE_STAGING",
    False,
    "Send host copies through the staging ring, and give VULKAN addresses of its own, for tests.",
)

CPU_THREADS = Count(
    "HCQ_CPU_THREADS", 0, "Worker threads of the CPU devices; 0 follows the affinity mask and cgroup quota."
)
QUEUE_LIMIT = Size("HCQ_QUEUE_LIMIT", 64 << 20, "Bytes of queued commands per queue before a submitter waits.")
TIMEOUT_MS = Count(
    "HCQ_TIMEOUT_MS", 30_000, "Milliseconds that synchronize waits at a standing queue; then SignalTimeout."
)
KERNEL_TIMEOUT_MS = Count(
    "HCQ_KERNEL_TIMEOUT_MS", 300_000, "Milliseconds a command may run before its device is lost; 0 never."
)

OPENCL_PLATFORM = Text(
    "HCQ_OPENCL_PLATFORM", None, "The platform that GPU devices are looked for on: its number, or part of its name."
)

VULKAN_VALIDATION = Flag(
    "HCQ_VULKAN_VALIDATION", False, "Open VULKAN devices with the validation layer, which has to be installed."
)

CUDA = Choice(
    "HCQ_CUDA",
    "auto",
    ("auto", "cpu"),
    "Whose driver CUDA devices are opened with: NVIDIA's (auto), or hcq.cudacpu, which runs CUDA on the CPU (cpu).",
)
CUDA_POOL = Size("HCQ_CUDA_POOL", 256 << 20, "Bytes of freed memory that the pool of a CUDA device keeps.")
CUDA_FILE = Choice(
    "HCQ_CUDA_FILE",
    "auto",
    ("auto", "on", "off"),
    "Whether cuFile reads files to CUDA's memory: where that goes past the host (auto), wherever it works, or never.",
)
CUDACPU_DEVICES = Count("HCQ_CUDACPU_DEVICES", 1, "Devices that the CUDA driver on the CPU (docs/cudacpu.md) shows.")
CUDACPU_CC = Text("HCQ_CUDACPU_CC", "8.6", "Compute capability of its devices; PTX for a later one is refused.")
CUDACPU_MEMORY = Size("HCQ_CUDACPU_MEMORY", 0, "Memory of each of its devices; 0 is half of the machine's.")
CUDACPU_PEERS = Flag("HCQ_CUDACPU_PEERS", True, "Its devices reach each other's memory.")
CUDACPU_WITHOUT = Text(
    "HCQ_CUDACPU_WITHOUT", "", "What its devices do without, with commas between: memory-operations, pools, graphs ..."
)
CUDACPU_CHECK = Flag(
    "HCQ_CUDACPU_CHECK", False, "Its kernels check their memory accesses and barriers, and say who did what wrong."
)

DISK_ENGINE = Choice(
    "HCQ_DISK_ENGINE",
    "auto",
    ("auto", "uring", "threads"),
    "Who reads files that are not in memory: a ring of the kernel's (uring), threads, or what there is (auto).",
)

CHECK = Text(
    "HCQ_CHECK",
    None,
    "Check order, lifetimes and bounds of all work (docs/checks.md): 1, or strict; unset or 0 checks nothing.",
)

PROFILE = Flag(
    "PROFILE", False, "Record every kernel and copy from `import hcq` on; write a trace when the interpreter leaves."
)
PROFILEPATH = Text(
    "PROFILEPATH",
    None,
    "File of that trace, .json or .pftrace; by default hcq-PID.pftrace, or .json without perfetto.",
)
PROFILE_RECORDS = Count(
    "HCQ_PROFILE_RECORDS", 2 << 20, "Records (64 bytes each) that profiles keep, 1024 or more; later ones are dropped."
)
PROFILE_OWNER = Text(
    "HCQ_PROFILE_OWNER", None, "Set by a process with PROFILE=1, so that those it starts write files of their own."
)

VARIABLES: Mapping[str, Variable] = _table
