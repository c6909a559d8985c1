"""hcq: one contract - device, buffer, program, hardware command queue, signal - over every accelerator.

The public names, and nothing else. Each is imported when it is first asked for, so that `import hcq` stays light.
"""

from __future__ import annotations

import os as _os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from hcq.errors import CompileError as CompileError
    from hcq.formats.loading import load as load
    from hcq.formats.saving import save as save
    from hcq.graph.recording import capture as capture
    from hcq.kernels.launch import kernel as kernel
    from hcq.profiling.session import profile as profile
    from hcq.queues.allocator import HCQAllocator as HCQAllocator
    from hcq.queues.allocator import HCQBuffer as HCQBuffer
    from hcq.queues.command_queue import HWCommandQueue as HWCommandQueue
    from hcq.queues.command_queue import HWComputeQueue as HWComputeQueue
    from hcq.queues.command_queue import HWCopyQueue as HWCopyQueue
    from hcq.queues.command_queue import hcq_command as hcq_command
    from hcq.queues.device import HCQCompiled as HCQCompiled
    from hcq.queues.profile import hcq_profile as hcq_profile
    from hcq.queues.program import HCQProgram as HCQProgram
    from hcq.queues.signal import HCQSignal as HCQSignal
    from hcq.runtime.allocator import Allocator as Allocator
    from hcq.runtime.allocator import LRUAllocator as LRUAllocator
    from hcq.runtime.allocator import MallocAllocator as MallocAllocator
    from hcq.runtime.buffer import Buffer as Buffer
    from hcq.runtime.buffer import BufferOptions as BufferOptions
    from hcq.runtime.buffer import empty as empty
    from hcq.runtime.buffer import zeros as zeros
    from hcq.runtime.compiled import Compiled as Compiled
    from hcq.runtime.compiled import DeviceLimits as DeviceLimits
    from hcq.runtime.compiler import Compiler as Compiler
    from hcq.runtime.copy import copy as copy
    from hcq.runtime.counters import MemoryStats as MemoryStats
    from hcq.runtime.counters import memory_stats as memory_stats
    from hcq.runtime.interop import array as array
    from hcq.runtime.registry import Device as Device
    from hcq.validation.switch import checks as checks

__version__ = "0.1.0"

# Types and words of the kernel language (docs/kernels.md).
_TYPES = ("bool_", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64")
_WORDS = (
    *("ptr", "vec", "constexpr", "global_id", "local_id", "group_id", "global_size", "local_size", "num_groups"),
    *("local", "private", "barrier", "static_range", "where", "select", "minimum", "maximum", "bitcast"),
    *("atomic_add", "atomic_sub", "atomic_min", "atomic_max", "atomic_and", "atomic_or", "atomic_xor"),
    *("atomic_exchange", "atomic_cas", "subgroup_size", "subgroup_lane", "subgroup_id", "subgroup_add"),
    *("subgroup_min", "subgroup_max", "shuffle", "shuffle_xor", "shuffle_up", "shuffle_down"),
    *("sqrt", "rsqrt", "fma", "fmod", "floor", "ceil", "trunc", "rint", "copysign", "isnan", "isinf", "isfinite"),
    *("popcount", "clz", "ctz", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "pow", "cbrt", "hypot"),
    *("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
    *("erf", "erfc"),
)

_MODULES = ("cache", "config", "dtypes", "errors", "formats", "ops", "testing")

_NAMES = {
    "hcq.runtime.registry": ("Device",),
    "hcq.runtime.compiled": ("Compiled", "DeviceLimits"),
    "hcq.runtime.compiler": ("Compiler",),
    "hcq.errors": ("CompileError",),
    "hcq.formats.loading": ("load",),
    "hcq.formats.saving": ("save",),
    "hcq.graph": ("capture",),
    "hcq.runtime.buffer": ("Buffer", "BufferOptions", "empty", "zeros"),
    "hcq.runtime.interop": ("array",),
    "hcq.runtime.allocator": ("Allocator", "LRUAllocator", "MallocAllocator"),
    "hcq.runtime.copy": ("copy",),
    "hcq.runtime.counters": ("MemoryStats", "memory_stats"),
    "hcq.queues.command_queue": ("HWCommandQueue", "HWComputeQueue", "HWCopyQueue", "hcq_command"),
    "hcq.queues.signal": ("HCQSignal",),
    "hcq.queues.program": ("HCQProgram",),
    "hcq.queues.device": ("HCQCompiled",),
    "hcq.queues.allocator": ("HCQAllocator", "HCQBuffer"),
    "hcq.queues.profile": ("hcq_profile",),
    "hcq.profiling.session": ("profile",),
    "hcq.kernels.launch": ("kernel",),
    "hcq.kernels.types": _TYPES,
    "hcq.kernels.builtins": _WORDS,
    "hcq.validation.switch": ("checks",),
}

_HOME = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted([*_HOME, *_MODULES, "__version__"])


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _HOME:
        value: Any = getattr(import_module(_HOME[name]), name)
    elif name in _MODULES:
        value = import_module(f"hcq.{name}")
    else:
        raise AttributeError(f"module 'hcq' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if _os.environ.get("HCQ_LOG"):
    from hcq.runtime.logs import configure as _configure

    _configure()

if _os.environ.get("PROFILE", "0") != "0":
    from hcq.config import PROFILE as _PROFILE

    if _PROFILE():
        from hcq.profiling.environment import start as _start

        _start()

if _os.environ.get("HCQ_CHECK", "").strip().lower() not in ("", "0", "false", "no", "off"):
    from hcq.validation.switch import from_environment as _from_environment

    _from_environment()
