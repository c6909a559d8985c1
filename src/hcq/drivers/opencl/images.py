"""Images of the GPU device: what BufferOptions(image=...) asks for, whether the device has it, and the handles of them.

What does not live here: OpenCL's image objects, their addresses, and copies from and to them (native/opencl/images).
"""

from __future__ import annotations

import math
from operator import index
from typing import Any, NamedTuple

from hcq import _native, dtypes
from hcq.queues.allocator import HCQBuffer

_ORDERS = {1: 0x10B0, 2: 0x10B2, 4: 0x10B5}
"""CL_R, CL_RG and CL_RGBA, by channels."""

_TYPES = {
    "int8": 0x10D7,
    "int16": 0x10D8,
    "int32": 0x10D9,
    "uint8": 0x10DA,
    "uint16": 0x10DB,
    "uint32": 0x10DC,
    "float16": 0x10DD,
    "float32": 0x10DE,
}
"""Channel types, CL_SIGNED_INT8 and following, by the names of dtypes."""


class Shape(NamedTuple):
    """What an image is: `channels` numbers of a dtype a pixel."""

    dtype: str
    height: int
    width: int
    channels: int

    @property
    def pixel(self) -> int:
        """Bytes a pixel."""
        return self.channels * int(dtypes.of(self.dtype).itemsize)

    @property
    def nbytes(self) -> int:
        """Bytes of all rows, without gaps."""
        return self.height * self.width * self.pixel

    @property
    def format(self) -> tuple[int, int]:
        """OpenCL's channel order and type."""
        return _ORDERS[self.channels], _TYPES[self.dtype]

    def __str__(self) -> str:
        return f"an image of {self.height} rows of {self.width} pixels of {self.channels} x {self.dtype}"


class ImageHandle(HCQBuffer):
    """An image, or a part of one that copies take: `image` is the whole's Shape, `start` the whole's address.

    Nothing is at its address: the host and other devices don't reach it.
    """

    image: Shape
    start: int

    def __init__(self, va_addr: int, size: int, image: Shape, start: int) -> None:
        super().__init__(va_addr, size)
        self.opaque = True
        self.image = image
        self.start = start

    def check_pixels(self, first: int, size: int) -> None:
        """ValueError unless these bytes of the handle are whole pixels of it."""
        pixel = self.image.pixel
        if first % pixel or size % pixel or first + size > self.size:
            raise ValueError(
                f"{size} bytes from byte {first} on of {self.image}: expected whole pixels, {pixel} bytes each"
            )


def asked_for(image: Any) -> Shape:
    """The shape that `BufferOptions.image` means: a pair (dtype, shape), or a dtype that has a shape, whose numbers are
    floats of its itemsize. Shapes are (height, width, channels). Raises ValueError."""
    try:
        if hasattr(image, "itemsize"):
            shape, dtype = image.shape, {2: "float16", 4: "float32"}[image.itemsize]
        else:
            given, shape = image
            dtype = dtypes.of(given).name
        height, width, channels = map(index, shape)
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ValueError(
            f"image={image!r:.90}: expected (dtype, (height, width, channels)), such as (hcq.f32, (64, 128, 4)), or a "
            "dtype of 2 or 4 bytes with such a shape"
        ) from None
    if dtype not in _TYPES or channels not in _ORDERS or height < 1 or width < 1:
        raise ValueError(
            f"no image has {channels} x {dtype} a pixel in {height} rows of {width}: expected 1, 2 or 4 of "
            f"{', '.join(_TYPES)}, and at least a pixel"
        )
    return Shape(dtype, height, width, channels)


class Support:
    """What images one device has, and the making of them."""

    def __init__(self, cl: Any, context: Any, device: Any) -> None:
        self._context = context
        self.largest = device.image2d_max_height, device.image2d_max_width
        self._most = device.max_mem_alloc_size
        flags, kind = cl.mem_flags.READ_WRITE, cl.mem_object_type.IMAGE2D
        formats = cl.get_supported_image_formats(context, flags, kind)
        self._formats = {(each.channel_order, each.channel_data_type) for each in formats}

    @staticmethod
    def of(cl: Any, context: Any, device: Any) -> Support | None:
        """None where the device has no images."""
        return Support(cl, context, device) if device.image_support else None

    def make(self, shape: Shape, nbytes: int) -> tuple[Any, int]:
        """An image: what keeps it, and its address. Raises ValueError, MemoryError."""
        self._check(shape, nbytes)
        held, address, error = _native.opencl_image(
            self._context.int_ptr, *shape.format, shape.width, shape.height, shape.pixel
        )
        if held is None:
            raise MemoryError(f"OpenCL gives no memory for {shape}: {error}")
        return held, address

    def _check(self, shape: Shape, nbytes: int) -> None:
        """That the device has such an image: ValueError; MemoryError for one that is larger than its memory gives."""
        if nbytes != shape.nbytes:
            raise ValueError(
                f"{shape} has {shape.nbytes} bytes, and the buffer {nbytes}: its size must be "
                f"{math.prod(shape[1:])} elements of {shape.dtype}"
            )
        if shape.height > self.largest[0] or shape.width > self.largest[1]:
            raise ValueError(f"{shape}: this device has at most {self.largest[0]} rows of {self.largest[1]}")
        if shape.format not in self._formats:
            raise ValueError(f"{shape}: this device has no such pixels that kernels read and write")
        if nbytes > self._most:
            raise MemoryError(f"{shape}: this device gives {self._most} bytes at once at most")
