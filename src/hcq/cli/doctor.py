"""`hcq doctor`: one page about this machine and this installation, to paste into a bug report.

It reads only what it names: of the environment the variables of hcq.config and the devices' flags; the home directory,
which may carry a person's name, is shown as `~`. It opens every device, runs each compiler found
with --version, and changes nothing.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hcq.cli.devices import survey, what
from hcq.cli.output import bytes_text, print_json

LIBRARIES = (
    "numpy",
    "llvmlite",
    "scipy",
    "pillow",
    "scikit-image",
    "ml_dtypes",
    "ziglang",
    "pyopencl",
    "cuda-bindings",
    "torch",
)
FEATURES = (
    "sse4_2",
    "avx",
    "avx2",
    "fma",
    "f16c",
    "avx512",
    "avx_vnni",
    "amx",
    "sha_ni",
    "asimd",
    "neon",
    "sve",
    "bf16",
    "fphp",
)
COMPILER_TIMEOUT_S = 20


def show(as_json: bool) -> int:
    """Print the page, as text or as JSON. Always done: what is wrong here is what the page says."""
    page = examine()
    if as_json:
        print_json(page)
        return 0
    for title, facts in page.items():
        print(f"{title}")
        width = max((len(name) for name in facts), default=0)
        for name, value in facts.items():
            print(f"  {name:{width}}  {_text(value)}")
    return 0


def examine() -> dict[str, dict[str, Any]]:
    """All of the page, section by section. A section that can't be had says why in its place."""
    sections: dict[str, Callable[[], Mapping[str, Any]]] = {
        "hcq": _installation,
        "machine": _machine,
        "limits": _limits,
        "libraries": _libraries,
        "C compilers": _compilers,
        "compile cache": _cache,
        "environment": _environment,
        "threads and fork": _threads,
        "devices": _devices,
    }
    page: dict[str, dict[str, Any]] = {}
    for title, section in sections.items():
        try:
            page[title] = dict(section())
        except Exception as error:  # the page is for when something is broken: the rest of it is still wanted
            page[title] = {"not to be had": f"{type(error).__name__}: {error}"}
    return page


# Sections


def _installation() -> dict[str, Any]:
    import hcq

    facts: dict[str, Any] = {"version": hcq.__version__, "installed at": _home(Path(hcq.__file__).parent)}
    facts["python"] = f"{platform.python_implementation()} {platform.python_version()} ({_home(sys.executable)})"
    facts["python flags"] = (
        ", ".join(name for name in ("debug", "optimize", "dev_mode") if getattr(sys.flags, name)) or "none"
    )
    try:
        from hcq import _native

        facts["native module"] = _home(_native.__file__ or "built in")
    except ImportError as error:
        facts["native module"] = f"can't be imported: {error}"
    return facts


def _machine() -> dict[str, Any]:
    info = _cpuinfo()
    flags = set(info.get("flags", info.get("features", "")).split())
    facts: dict[str, Any] = {
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "distribution": _distribution(),
        "C library": " ".join(platform.libc_ver()).strip() or "unknown",
        "processor": info.get("model name") or platform.processor() or "unknown",
        "features": " ".join(sorted(flag for flag in flags if flag.startswith(FEATURES))) or "unknown",
    }
    try:
        import llvmlite.binding as llvm

        facts["LLVM calls it"] = llvm.get_host_cpu_name()
    except Exception as error:
        facts["LLVM calls it"] = f"unknown: {error}"
    facts["cores"] = f"{os.cpu_count()}, of them usable by this process {_usable_cores()}"
    facts["memory"] = _memory()
    facts["load"] = " ".join(f"{load:.2f}" for load in os.getloadavg()) if hasattr(os, "getloadavg") else "unknown"
    return facts


def _limits() -> dict[str, Any]:
    facts: dict[str, Any] = {"cgroup processor quota": _cgroup_cpu(), "cgroup memory": _cgroup_memory()}
    try:
        import resource
    except ImportError:  # Windows
        return facts
    for name in ("NOFILE", "MEMLOCK", "AS", "NPROC", "CORE"):
        soft = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))[0]
        facts[f"RLIMIT_{name}"] = "unlimited" if soft == resource.RLIM_INFINITY else soft
    for name in ("vm/max_map_count", "vm/overcommit_memory", "kernel/yama/ptrace_scope"):
        facts[name] = _read(f"/proc/sys/{name}") or "unknown"
    facts["transparent huge pages"] = _read("/sys/kernel/mm/transparent_hugepage/enabled") or "unknown"
    facts["/dev/shm free"] = _free("/dev/shm")
    facts["io_uring"] = _uring()
    return facts


def _uring() -> str:
    from hcq import _native

    return "yes" if _native.disk_has_uring() else "no: the system refuses it, and DISK reads by threads"


def _libraries() -> dict[str, Any]:
    from importlib.metadata import PackageNotFoundError, version

    facts: dict[str, Any] = {}
    for name in LIBRARIES:
        try:
            facts[name] = version(name)
        except PackageNotFoundError:
            facts[name] = "not installed"
    try:
        import llvmlite.binding as llvm

        facts["llvmlite"] += f" (LLVM {'.'.join(str(part) for part in llvm.llvm_version_info)})"
    except Exception as error:
        facts["llvmlite"] += f" (can't be used: {error})"
    return facts


def _compilers() -> dict[str, Any]:
    from shutil import which

    facts: dict[str, Any] = {}
    for name in ("clang", "gcc", "cc"):
        path = which(name)
        facts[name] = f"{_first_line([path, '--version'])} ({_home(path)})" if path else "not found"
    return facts


def _cache() -> dict[str, Any]:
    from hcq import cache

    directory = cache.directory
    if directory is None:
        return {"directory": "none: libraries are kept in memory only (see HCQ_CACHE_DIR)"}
    facts: dict[str, Any] = {"directory": _home(directory)}
    if directory.exists():
        status = directory.stat()
        facts["mode"] = f"{status.st_mode & 0o7777:o}" + (
            "" if status.st_uid == os.getuid() else ", owned by somebody else"
        )
        facts["writable"] = os.access(directory, os.W_OK)
        facts["disk free"] = _free(directory)
    else:
        facts["exists"] = "not yet"
    stats = cache.stats()
    facts["entries"] = stats.entries
    facts["size"] = f"{bytes_text(stats.bytes)} of {bytes_text(stats.limit_bytes)}"
    return facts


def _environment() -> dict[str, Any]:
    from hcq import Device, config

    names = [*config.VARIABLES, *Device._devices, "CPU", "OMP_NUM_THREADS", "PYTHONDEVMODE", "CC", "XDG_CACHE_HOME"]
    facts = {name: _home(os.environ[name]) for name in dict.fromkeys(names) if os.environ.get(name)}
    return facts or {"set": "none of hcq's variables"}


def _threads() -> dict[str, Any]:
    import multiprocessing
    import threading

    from hcq import config

    chosen = config.CPU_THREADS()
    return {
        "worker threads": chosen or f"{_usable_cores()} (affinity mask and cgroup quota)",
        "start method of multiprocessing": multiprocessing.get_start_method(allow_none=True)
        or f"{multiprocessing.get_all_start_methods()[0]} (default)",
        "Python threads now": threading.active_count(),
        "switch interval": f"{sys.getswitchinterval() * 1e3:g} ms",
    }


def _devices() -> dict[str, Any]:
    facts: dict[str, Any] = {}
    for row in survey():
        if row.state == "open":
            default = " (default)" if row.default else ""
            lacking = f", {row.reason}" if row.reason else ""
            facts[row.name] = (
                f"open{lacking}{default}: {what(row.info)}, compiler: {row.info['compiler version'] or 'none'}"
            )
        else:
            facts[row.name] = f"{row.state}: {row.reason}"
    return facts


# Helpers


def _text(value: object) -> str:
    return ", ".join(str(item) for item in value) if isinstance(value, list | tuple) else str(value)


def _home(path: object) -> str:
    """The path with the home directory as `~`."""
    home = str(Path.home())
    text = str(path)
    return "~" + text.removeprefix(home) if len(home) > 1 and text.startswith(home) else text


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return None


def _cpuinfo() -> dict[str, str]:
    """The first processor of /proc/cpuinfo, names in lower case."""
    facts: dict[str, str] = {}
    for line in (_read("/proc/cpuinfo") or "").split("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        facts[name.strip().lower()] = value.strip()
    return facts


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "unknown")
    except OSError:
        return "unknown"


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory() -> str:
    values = {}
    for line in (_read("/proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        if name in ("MemTotal", "MemAvailable"):
            values[name] = int(value.split()[0]) * 1024
    if not values:
        return "unknown"
    return f"{bytes_text(values.get('MemTotal'))}, {bytes_text(values.get('MemAvailable'))} available"


def _cgroup(*names: str) -> str | None:
    """The first of these files in this process's control group (version 2, then 1), or in the root group."""
    for line in (_read("/proc/self/cgroup") or "").splitlines():
        _, controllers, path = line.split(":", 2)
        roots = ["/sys/fs/cgroup"] if not controllers else [f"/sys/fs/cgroup/{controllers}"]
        for root in roots:
            for name in names:
                for place in (f"{root}{path.rstrip('/')}/{name}", f"{root}/{name}"):
                    text = _read(place)
                    if text is not None:
                        return text
    return None


def _cgroup_cpu() -> str:
    text = _cgroup("cpu.max")
    if text is not None:
        quota, _, period = text.partition(" ")
        return "none" if quota == "max" else f"{int(quota) / int(period or 100_000):g} cores"
    allowed, every = _cgroup("cpu.cfs_quota_us"), _cgroup("cpu.cfs_period_us")
    if allowed is None or every is None or int(allowed) < 0:
        return "none"
    return f"{int(allowed) / int(every):g} cores"


def _cgroup_memory() -> str:
    text = _cgroup("memory.max", "memory.limit_in_bytes")
    # Version 1 says "no limit" as a number near 2^63.
    return "none" if text is None or not text.isdecimal() or int(text) > 1 << 60 else bytes_text(int(text))


def _free(path: str | Path) -> str:
    try:
        status = os.statvfs(path)
    except (OSError, AttributeError):
        return "unknown"
    return bytes_text(status.f_bavail * status.f_frsize)


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMPILER_TIMEOUT_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"does not run: {error}"
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0] if lines else f"says nothing, exit code {done.returncode}"
