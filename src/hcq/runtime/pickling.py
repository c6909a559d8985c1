"""Pickling of buffers: their contents travel, views travel with their root, NPY buffers carry their array.

What does not live here: how memory is exported (native/memory/export.cpp).
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from hcq._native import Buffer

if TYPE_CHECKING:
    from hcq.runtime.options import BufferOptions

_FIVE = 5  # the pickle protocol with buffers out of band


def reduce_buffer(buf: Buffer, protocol: Any) -> tuple[Any, ...]:
    """`Buffer.__reduce_ex__`: waits for queued work; contents go out of band where the pickler takes them.

    What arrives has memory of its own. An unallocated buffer stays unallocated. DISK buffers travel as their name: the
    file is opened again.
    """
    state = getattr(buf, "__dict__", None) or None
    root = buf._base
    if root is not None:
        shape = buf.shape if buf.shape != (buf.size,) else None
        return restore_view, (type(buf), root, buf.size, buf.dtype, buf.offset, buf.options, shape), state
    contents = None
    allocated = buf.is_allocated()
    kind = buf.device.partition(":")[0]
    if allocated and kind == "NPY":
        contents = buf._buf
    elif allocated and kind != "DISK":
        contents = _contents(buf, protocol)
    facts = (buf.device, buf.size, buf.dtype, buf.options, buf.lb_refcount)
    shape = buf.shape if buf.shape != (buf.size,) else None
    return restore, (type(buf), *facts, shape, allocated, contents), state


def restore(
    cls: type[Buffer],
    device: str,
    size: int,
    dtype: Any,
    options: BufferOptions | None,
    lb_refcount: int,
    shape: tuple[int, ...] | None,
    allocated: bool,
    contents: Any,
) -> Buffer:
    """A root buffer as `reduce_buffer` described it."""
    buf = cls.__new__(cls)
    Buffer.__init__(buf, device, size, dtype, options=options, lb_refcount=lb_refcount)
    if allocated and device.partition(":")[0] == "NPY":
        buf.allocate(contents)
    elif allocated:
        buf.allocate()
        if contents is not None:
            buf.copyin(contents)
    if shape is not None:
        buf._shape = shape
    return buf


def restore_view(
    cls: type[Buffer],
    root: Buffer,
    size: int,
    dtype: Any,
    offset: int,
    options: BufferOptions | None,
    shape: tuple[int, ...] | None,
) -> Buffer:
    """A view as `reduce_buffer` described it; the root was pickled before, once however many views it has."""
    view = cls.__new__(cls)
    Buffer.__init__(view, root.device, size, dtype, options=options, base=root, offset=offset)
    if shape is not None:
        view._shape = shape
    return view


def _contents(buf: Buffer, protocol: Any) -> Any:
    exporter = buf._export()
    memory = memoryview(exporter) if exporter is not None else buf.as_buffer()
    return pickle.PickleBuffer(memory) if int(protocol) >= _FIVE else bytes(memory)
