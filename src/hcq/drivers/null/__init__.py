"""The NULL device: full command queues on host memory, programs that run no code. The template for new drivers.

Each noun has a module, as in every driver: device, allocator, compiler, program, queue. Copy the folder, and replace
what each says about itself. What does not live here: making the device fail on purpose (hcq.testing).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from hcq.drivers.null.device import NullDevice


def open_null(name: str) -> NullDevice:
    """NULL, NULL:1 ...: always there. A driver that needs something of the machine raises DeviceUnavailable here.

    What may follow the colon is the driver's own affair; `device_index` refuses all but whole numbers.
    """
    from hcq.drivers.null.device import NullDevice
    from hcq.runtime.registry import device_index

    device_index(name)
    return NullDevice(name)
