"""The PYTHON device: portable kernels run slowly, literally and strictly. The reference for all other devices.

It takes the text of the kernel compiler's middle form (hcq.kernels.text), runs every work-item by Python, and makes an
error of what other devices leave undefined. Each noun has a module, as in every driver; besides, translate writes a
kernel as Python, memory knows which bytes were written, order finds work-items that disagree. What does not live here:
what operations mean (hcq.kernels.arithmetic).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hcq.drivers.python.device import PythonDevice


def open_python(name: str) -> PythonDevice:
    """PYTHON, PYTHON:1 ...: always there."""
    from hcq.drivers.python.device import PythonDevice
    from hcq.runtime.registry import device_index

    device_index(name)
    return PythonDevice(name)
