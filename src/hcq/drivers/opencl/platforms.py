"""Which OpenCL devices a machine has, in what order, and which one a name means.

What does not live here: anything done with a device once it is chosen.
"""

from __future__ import annotations

import threading
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hcq import _native, config
from hcq.drivers import finding
from hcq.errors import DeviceUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

_NO_PLATFORM = "install a driver's OpenCL part, or PoCL for the CPU: `apt install pocl-opencl-icd`, or `pip install "
_NO_PLATFORM += "'pyopencl[pocl]'`; OCL_ICD_VENDORS names the folder of .icd files that is looked into"

_use = finding.Use("OpenCL", "GPU", "its threads are not here")
_building = threading.Lock()


def interface() -> ModuleType:
    """pyopencl. Raises DeviceUnavailable where it is not installed, and in a child forked after OpenCL was used."""
    _use.check()
    try:
        import pyopencl
    except ImportError as error:
        raise DeviceUnavailable(f"pyopencl can't be imported ({error})", "pip install 'hcq[opencl]'") from error
    return pyopencl


@contextmanager
def building() -> Iterator[None]:
    """While a program is built: pyopencl warns of whatever a compiler says, be it that all is well, as Intel's does."""
    with _building, warnings.catch_warnings():  # which is the process's: one thread at a time
        warnings.simplefilter("ignore", interface().CompilerWarning)
        yield


def load_commands() -> None:
    """Have native code find OpenCL's functions, those of the loader that pyopencl uses: handles are shared with it."""
    try:
        _native.opencl_load(interface()._cl.__file__)
    except RuntimeError as error:
        raise DeviceUnavailable(
            f"no use of the OpenCL loader: {error}", "a newer one: pip install -U pyopencl"
        ) from error


def devices() -> list[Any]:
    """The OpenCL devices here, GPUs first, then accelerators, CPUs last; among equals as the platforms give them. Those
    without shared virtual memory, which can't be opened, come behind all others.

    Only those of HCQ_OPENCL_PLATFORM where that is set. Raises DeviceUnavailable where there are none.
    """
    cl = interface()
    try:
        _use.begin()
        platforms = cl.get_platforms()
    except cl.Error as error:
        raise DeviceUnavailable(f"no OpenCL platform here ({error})", _NO_PLATFORM) from error
    wanted = config.OPENCL_PLATFORM()
    if wanted is not None:
        platforms = _named(platforms, wanted)
    found: list[Any] = []
    refusals = []
    for platform in platforms:
        try:
            found += platform.get_devices()
        except cl.Error as error:  # a platform without devices says so by an error
            refusals.append(f"{platform.name.strip()}: {error}")
    if not found:
        raise DeviceUnavailable(f"no OpenCL device here ({'; '.join(refusals) or 'no platform has one'})", _NO_PLATFORM)
    return sorted(found, key=lambda device: _rank(cl, device))


def choose(name: str) -> Any:
    """The OpenCL device that a canonical name (GPU, GPU:1, GPU:pthread) means; raises DeviceUnavailable."""
    return finding.choose(
        name,
        devices(),
        lambda device: (device.name, device.platform.name),
        "OpenCL device or platform",
        "count from 0; HCQ_OPENCL_PLATFORM may hide some",
    )


def identity(device: Any) -> str:
    """A device and its driver in one line: what binaries are good for."""
    parts = device.platform.name, device.platform.version, device.name, device.version, device.driver_version
    return " | ".join(" ".join(part.split()) for part in parts)


def sharing(device: Any) -> int:
    """What shared virtual memory a device has, in bits of CL_DEVICE_SVM_CAPABILITIES; 0 where it has none."""
    try:
        return int(device.svm_capabilities)
    except interface().Error:  # before OpenCL 2.0
        return 0


def find(wanted: str) -> Any:
    """The device with that identity; raises DeviceUnavailable."""
    for device in devices():
        if identity(device) == wanted:
            return device
    raise DeviceUnavailable(f"the OpenCL device {wanted} is not here", "compile on the machine that has it")


def _rank(cl: ModuleType, device: Any) -> tuple[bool, int]:
    kind = 0 if device.type & cl.device_type.GPU else 2 if device.type & cl.device_type.CPU else 1
    return not sharing(device), kind


def _named(platforms: list[Any], wanted: str) -> list[Any]:
    if wanted.isdecimal():
        chosen = platforms[int(wanted) : int(wanted) + 1]
    else:
        chosen = [platform for platform in platforms if wanted.lower() in platform.name.lower()]
    if not chosen:
        names = "; ".join(f"{index} {platform.name.strip()}" for index, platform in enumerate(platforms))
        raise DeviceUnavailable(
            f"HCQ_OPENCL_PLATFORM={wanted} is none of the platforms here: {names}", "a number, or a part of the name"
        )
    return chosen
