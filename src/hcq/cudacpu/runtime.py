"""The few calls of the CUDA runtime that cuda.core makes, by the driver API.

cuda-bindings has NVIDIA's runtime library inside. That asks the driver for tables that only NVIDIA's libraries know,
and without them each of its calls is cudaErrorSymbolNotFound. cuda.core makes three: for `Device.sync()`, for
`Device.pci_bus_id` and for `system.get_num_devices()`. `attach()` puts functions in their place in
`cuda.bindings.runtime`, now or when it is imported. What does not live here: the rest of the runtime, which stays as
it is.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

_MODULE = "cuda.bindings.runtime"


def attach() -> None:
    """Puts the functions in their place, once the module is there. Any thread; to be called once."""
    module = sys.modules.get(_MODULE)
    if module is not None:
        _fill(module)
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    """Has the module loaded as ever, and then filled."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _MODULE:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _fill(module)


def _fill(module: Any) -> None:
    from cuda.bindings import driver

    def answer(result: tuple[Any, ...]) -> tuple[Any, ...]:
        """The driver's errors have the numbers of the runtime's."""
        try:
            error = module.cudaError_t(int(result[0]))
        except ValueError:
            error = module.cudaError_t.cudaErrorUnknown
        return (error, *result[1:]) if len(result) > 1 else (error,)

    def cudaDeviceSynchronize() -> tuple[Any, ...]:
        error, context = driver.cuCtxGetCurrent()
        if int(error) == 0 and not int(context):  # the runtime takes device 0 then
            driver.cuInit(0)
            error, context = driver.cuDevicePrimaryCtxRetain(0)
            if int(error) == 0:
                driver.cuCtxSetCurrent(context)
        return answer(driver.cuCtxSynchronize())

    def cudaDeviceGetPCIBusId(length: int, device: int) -> tuple[Any, ...]:
        return answer(driver.cuDeviceGetPCIBusId(length, device))

    def cudaGetDeviceCount() -> tuple[Any, ...]:
        driver.cuInit(0)
        return answer(driver.cuDeviceGetCount())

    for function in (cudaDeviceSynchronize, cudaDeviceGetPCIBusId, cudaGetDeviceCount):
        setattr(module, function.__name__, function)
