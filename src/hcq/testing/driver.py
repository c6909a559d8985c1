"""What the suite must know of a driver: its device, what it lacks and why, and the kernels written for it.

The drivers that hcq ships are described in shipped.py; a third party writes its own description.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

# What a device may lack. A driver has every tag that its description does not name in `lacks`.
TAGS: Mapping[str, str] = {
    "compiles": "has a compiler: dev.compiler.compile(src) gives a library",
    "computes": "runs programs: the kernels of the description do what their names say",
    "queues": "has hardware command queues (an HCQCompiled)",
    "async": "runs queued work while Python goes on",
    "host_memory": "the host reads and writes the device's memory at va_addr; the queues reach any address of the host",
    "zero_copy": "the allocator has as_buffer",
    "host_pointers": "memory of the caller can be a buffer's memory (hcq.array with copy=False)",
    "peers": "D:1, D:2 ... are further devices",
    "inject": "hcq.testing.inject works on it",
    "fork": "may be opened again in a forked child",
    "typed": "libraries record the types of parameters",
    "wide_signals": "signals hold 64 bits",
    "shared_signals": "signals can be placed in memory of the caller, and work between processes",
    "native": "launches, queues and retirement are the native ones (tests of a hundred thousand submits end in time)",
    "plain": "has functions that run once a launch and take no sizes, such as the kernel plain",
    "kernels": "runs portable kernels: it has a kernel_language",
    "log": "a compile error has the compiler's log with line numbers",
}

# The kernels the suite knows. Buffers are of 32-bit integers; a driver leaves out what it can't have.
KERNELS: Mapping[str, str] = {
    "fill": "fill(out, n, value): out[i] = value for i < n",
    "iota": "iota(out, n, start): out[i] = start + i for i < n",
    "add": "add(out, a, b, n): out[i] = a[i] + b[i] for i < n, wrapping",
    "increment": "increment(out): out[0] += 1",
    "append": "append(log, value): log[0] += 1, then log[log[0]] = value",
    "spin": "spin(out, n): busy for about n nanoseconds, then out[0] = n",
    "plain": "plain(out): out[0] += 1; a function that takes no sizes",
    "nothing": "nothing(): no arguments, no effect",
    "values": "values(out, i8 a, i16 b, i32 c, i64 d, f32 e, f64 f): the six as the 64-bit patterns out[2*k:2*k+2], "
    "integers sign-extended, floats widened to f64",
    "raw": "raw(out, u32 a): out[0] = a's bits",
    "sixty_four": "sixty_four(out, b1 ... b31, v0 ... v31): out[0] = sum of all bN[0] and all vN, wrapping",
    "grid": "grid(out): g the linear group, i the linear item, n items a group: out[g * n + i] += g * 1000 + i + 1",
    "meet": "meet(out, rounds): local memory; item i of n ends with out[g*n+i] = sum over rounds of what its "
    "right neighbour (i+1) % n had stored in that round: neighbour + round",
}


@dataclass(frozen=True)
class DriverUnderTest:
    """One driver as the suite sees it. Plain data; may be shared by threads.

    device: the name to open. factory: registered under that name first, where it is not known otherwise (called with
    the canonical name, returns a Compiled). kernels: sources by the names of KERNELS, for `dev.compiler`. lacks: the
    tags it does not have, with the reason. exclusions: promise ids or test names that can never hold, with the reason.
    expected_failures: the same for what should hold and does not yet; when such a test passes, that is a failure.
    setup: Python source that makes the device known in a fresh process. bad_source: what the compiler must refuse.
    warning_source: a function's name and a source of it that the compiler warns of.
    core: whether to run the tests of hcq itself that use no device, too.
    """

    device: str
    factory: Callable[[str], Any] | None = None
    kernels: Mapping[str, str] = field(default_factory=dict)
    lacks: Mapping[str, str] = field(default_factory=dict)
    exclusions: Mapping[str, str] = field(default_factory=dict)
    expected_failures: Mapping[str, str] = field(default_factory=dict)
    setup: str = ""
    bad_source: str = ""
    warning_source: tuple[str, str] | None = None
    core: bool = False

    def __post_init__(self) -> None:
        for tag in self.lacks:
            if tag not in TAGS:
                raise ValueError(f"{self.device} lacks {tag!r}, which is no tag; the tags are {', '.join(TAGS)}")
        for name in self.kernels:
            if name not in KERNELS:
                raise ValueError(f"{self.device} brings {name!r}, which the suite doesn't know: {', '.join(KERNELS)}")

    def peer(self, number: int) -> str:
        """The name of the n-th further device of the same driver: 1 gives D:1, or D:2 where this is D:1 itself."""
        kind, _, own = self.device.partition(":")
        return f"{kind}:{int(own or 0) + number}"


def known(device: str) -> DriverUnderTest:
    """The description of a driver that hcq ships; for any other device name one that has every tag and no kernels."""
    from hcq.testing.shipped import describe

    return describe(device)


def described(path: str) -> DriverUnderTest:
    """The description at `module:attribute`. Raises ImportError or ValueError that say what is wrong with the path."""
    module, colon, attribute = path.partition(":")
    if not (module and colon and attribute):
        raise ValueError(f"--driver {path}: expected module:attribute of a DriverUnderTest, such as my.suite:MINE")
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except ImportError as error:
        raise ImportError(f"--driver {path}: {error}") from error
    if not isinstance(found, DriverUnderTest):
        raise ValueError(f"--driver {path} names no DriverUnderTest")
    return found
