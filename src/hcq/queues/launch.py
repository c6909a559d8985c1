"""The one place that checks a launch before anything is queued: sizes, buffers and values.

Everything here raises LaunchError and changes nothing. What does not live here: parameter types that a library records
(the loader's), and writing kernargs (program). The native CPU launch makes the same checks in native/.
"""

from __future__ import annotations

import math
import operator
import struct
from typing import TYPE_CHECKING, Any

from hcq import _native
from hcq.errors import LaunchError
from hcq.runtime.later import loaded

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hcq.runtime.compiled import DeviceLimits

Dims = tuple[int, int, int]

ONE: Dims = (1, 1, 1)
MAX_GROUPS = 1 << 48
VALUE_TYPES = {
    "i8": ("b", "int8"),
    "u8": ("B", "uint8"),
    "i16": ("h", "int16"),
    "u16": ("H", "uint16"),
    "i32": ("i", "int32"),
    "u32": ("I", "uint32"),
    "i64": ("q", "int64"),
    "u64": ("Q", "uint64"),
    "f16": ("e", "float16"),
    "bf16": ("H", "bfloat16"),
    "f32": ("f", "float32"),
    "f64": ("d", "float64"),
    "boolean": ("?", "bool"),
    "f8e4m3fn": ("B", "float8_e4m3fn"),
    "f8e5m2": ("B", "float8_e5m2"),
}
"""The types of value parameters that a library may record: codes of the struct module, and NumPy's names. A structure
of N bytes is "bytesN", and lies at a multiple of 8."""

ACCESSES = (None, "r", "w", "rw")
"""What a launch may do to the memory of a buffer: not known, read, write, both."""

STRUCTURE_ALIGNMENT = 8
VALUE_MIN = -(2**31)
VALUE_MAX = 2**32 - 1

_SMALL_FLOATS = ("bf16", "f8e4m3fn", "f8e5m2")


def check_sizes(global_size: Any, local_size: Any, limits: DeviceLimits) -> tuple[Dims, Dims]:
    """The counts of work-groups and of work-items per group as (x, y, z) each; None means (1, 1, 1).

    A group count of 0 is fine: the launch runs nothing. `limits` are the device's.
    """
    groups = ONE if global_size is None else _dims("global_size", global_size, limits.max_groups, 0)
    items = ONE if local_size is None else _dims("local_size", local_size, limits.max_group_size, 1)
    total = items[0] * items[1] * items[2]
    if total > limits.max_group_items:
        raise LaunchError(
            f"local_size {items} is {total} work-items a group: this device runs at most {limits.max_group_items}"
        )
    count = groups[0] * groups[1] * groups[2]
    if count > MAX_GROUPS:
        raise LaunchError(f"global_size {groups} has {count} groups, the limit is 2^48")
    return groups, items


def check_group(local_size: Any, limits: DeviceLimits) -> Dims:
    """check_sizes for a group alone."""
    return check_sizes(ONE, local_size, limits)[1]


def runs_nothing(groups: Dims) -> bool:
    """Whether a launch of that many groups has no work."""
    return 0 in groups


def check_buffers(device: Any, bufs: Iterable[Any]) -> list[Any]:
    """The handles (objects with `va_addr`) behind `bufs`, in order.

    Takes allocated Buffers of `device`, or of one whose memory it reaches (`device.reaches`), and the handles that are
    their `_buf`, which are trusted.
    """
    handles = []
    for index, buf in enumerate(bufs):
        if hasattr(buf, "va_addr"):
            handles.append(buf)
            continue
        owner = getattr(buf, "device", None)
        if not isinstance(owner, str) or not hasattr(buf, "is_allocated"):
            raise LaunchError(
                f"argument {index} is {_shown(buf)}: expected a Buffer of {device.dname} or its _buf; "
                "values go into vals=(...)"
            )
        handle = getattr(buf, "_buf", None)
        if handle is None:
            raise LaunchError(f"buffer {index} is not allocated: call allocate() or ensure_allocated() first")
        if not device.reaches(buf):
            raise LaunchError(
                f"buffer {index} lives on {owner}, which {device.dname} does not reach: hcq.copy it into a buffer there"
            )
        if not hasattr(handle, "va_addr"):
            raise LaunchError(f"buffer {index} is memory of {owner} without an address that {device.dname} could use")
        handles.append(handle)
    return handles


def pack_values(vals: Sequence[Any], types: Sequence[str] | None = None) -> bytes:
    """`vals` as they stand in kernargs: 32-bit integers, and NumPy scalars at their own size and natural alignment.

    Where the library records the parameters' types (keys of VALUE_TYPES), a Python number becomes one of its
    parameter's type: floats are rounded, integers must be exact; a NumPy scalar must be of that type already.
    """
    packed = bytearray()
    for index, value in enumerate(vals):
        data, alignment = _value(index, value) if types is None else _typed_value(index, value, types[index])
        packed += bytes(-len(packed) % alignment)
        packed += data
    return bytes(packed)


def check_count(what: str, given: int, expected: int | None) -> None:
    """Refuse a wrong number of arguments, where the library recorded how many there are (else `expected` is None)."""
    if expected is not None and given != expected:
        raise LaunchError(f"the function takes {expected} {what}, and {given} were given")


def check_accesses(accesses: Any, count: int | None) -> tuple[str | None, ...] | None:
    """What is done to each buffer of a program, as its user says: 'r', 'w', 'rw' or None for each; None says nothing.

    `count` is how many buffers it takes, where that is known. Raises ValueError.
    """
    if accesses is None:
        return None
    given = tuple(accesses)
    if any(access not in ACCESSES for access in given):
        raise ValueError(f"accesses {given!r}: expected 'r', 'w', 'rw' or None for each buffer")
    if count is not None and len(given) != count:
        raise ValueError(f"accesses {given!r} are for {len(given)} buffers: the function takes {count}")
    return given


def check_local_memory(name: str, nbytes: Any, most: int) -> int:
    """Bytes of local memory that a program's groups are to get beside what its kernel declares; `most` is the device's
    limit."""
    try:
        count = operator.index(nbytes)
    except TypeError:
        raise LaunchError(f"{name}: {_shown(nbytes)} of local memory: expected a whole number of bytes") from None
    if not 0 <= count <= most:
        raise LaunchError(f"{name}: {count} bytes of local memory: this device gives a group 0 to {most}")
    return count


def check_read_only(name: str, index: int, accesses: Sequence[str | None] | None) -> None:
    """That the program only reads buffer `index`, which is a read-only array: else its results would be lost."""
    access = accesses[index] if accesses is not None and index < len(accesses) else None
    if access is None:
        raise LaunchError(
            f"{name}: array {index} is read-only, and nothing says whether {name} writes it: "
            "pass a writable copy, or say so in program.accesses ('r')"
        )
    if access != "r":
        raise LaunchError(f"{name}: array {index} is read-only, and {name} writes it: pass a writable array")


def _dims(what: str, size: Any, largest: Dims, smallest: int) -> Dims:
    try:
        counts = [operator.index(count) for count in size]
    except TypeError:
        raise LaunchError(f"{what} {size!r} is not (x, y, z) in whole numbers") from None
    if len(counts) != 3:
        raise LaunchError(f"{what} {size!r} has {len(counts)} dimensions: expected three, (x, y, z)")
    for axis, count, limit in zip("xyz", counts, largest, strict=True):
        if count < smallest:
            empty = "an empty group runs nothing" if count == 0 else "sizes are not negative"
            raise LaunchError(f"{what} {size!r} is {count} in {axis}: {empty}")
        if count > limit:
            raise LaunchError(f"{what} {size!r} is {count} in {axis}: this device takes at most {limit}")
    return counts[0], counts[1], counts[2]


def _value(index: int, value: Any) -> tuple[bytes, int]:
    numpy = loaded("numpy")  # who has a NumPy scalar has imported NumPy
    if numpy is not None and isinstance(value, numpy.generic):
        if value.dtype.kind not in "biuf" and not _is_small_float(value):
            raise LaunchError(f"value {index} is {_shown(value)}: expected a boolean, an integer or a floating scalar")
        return value.tobytes(), value.dtype.alignment
    if isinstance(value, float):
        raise LaunchError(
            f"value {index} is the float {value!r}, and the library records no type for it: "
            "pass a NumPy scalar such as numpy.float32(...)"
        )
    try:
        number = operator.index(value)
    except TypeError:
        raise LaunchError(f"value {index} is {_shown(value)}: expected an integer or a NumPy scalar") from None
    if not VALUE_MIN <= number <= VALUE_MAX:
        raise LaunchError(
            f"value {index} is {number}: values are 32-bit integers from -2^31 to 2^32-1; "
            "pass larger ones as NumPy scalars"
        )
    return struct.pack("<I", number & 0xFFFFFFFF), 4


def _typed_value(index: int, value: Any, kind: str) -> tuple[bytes, int]:
    if kind.startswith("bytes"):
        return _structure(index, value, int(kind[5:])), STRUCTURE_ALIGNMENT
    code, dtype = VALUE_TYPES[kind]
    size = struct.calcsize(code)
    numpy = loaded("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        if value.dtype.name != dtype:
            raise LaunchError(f"value {index} is {_shown(value)}: the parameter is {kind}")
        return value.tobytes(), size
    if kind in _SMALL_FLOATS:
        return _small_float(index, value, kind), size
    floating = kind[0] == "f"
    if isinstance(value, float):
        if not floating:
            raise LaunchError(f"value {index} is the float {value!r}: the parameter is {kind}")
        number: float = value
    else:
        try:
            number = operator.index(value)
        except TypeError:
            raise LaunchError(f"value {index} is {_shown(value)}: the parameter is {kind}") from None
        if size == 4 and not floating and VALUE_MIN <= number <= VALUE_MAX:
            return struct.pack("<I", number & 0xFFFFFFFF), 4
    try:
        data = struct.pack("<" + code, number)
    except (struct.error, OverflowError):
        raise LaunchError(f"value {index} is {value!r}: it does not fit into the parameter, {kind}") from None
    if isinstance(number, int) and struct.unpack("<" + code, data)[0] != number:
        raise LaunchError(f"value {index} is {value!r}: {kind}, the parameter's type, can't hold it exactly")
    return data, size


def _structure(index: int, value: Any, size: int) -> bytes:
    data, wrong = _native.structure_bytes(value)
    if data is None:
        raise LaunchError(f"value {index} is {_shown(value)}: the parameter is a structure of {size} bytes")
    if len(data) != size:
        raise LaunchError(f"value {index} has {len(data)} bytes: the parameter is a structure of {size} bytes")
    if wrong:
        raise LaunchError(f"value {index} is a structure with {wrong} in it, which no kernel reads: {_shown(value)}")
    return data


def _small_float(index: int, value: Any, kind: str) -> bytes:
    from hcq import dtypes

    try:
        given = value if isinstance(value, float) else operator.index(value)
        once = _as_bfloat16(float(given)) if kind == "bf16" else float(given)  # ml_dtypes rounds a float32 of it
        held = dtypes.of(VALUE_TYPES[kind][1]).numpy.type(once)
    except (TypeError, ValueError, OverflowError):
        raise LaunchError(f"value {index} is {_shown(value)}: the parameter is {kind}") from None
    number = float(held)
    if not math.isfinite(number) and number != given and not (math.isnan(given) and math.isnan(number)):
        raise LaunchError(f"value {index} is {value!r}: it does not fit into the parameter, {kind}")
    if isinstance(given, int) and number != given:
        raise LaunchError(f"value {index} is {value!r}: {kind}, the parameter's type, can't hold it exactly")
    return bytes(held.tobytes())


def _as_bfloat16(value: float) -> float:
    """To the nearest of 8 binary digits, ties to even, in steps of no less than 2**-133."""
    if value == 0 or not math.isfinite(value):
        return value
    step = max(math.frexp(value)[1] - 8, -133)
    return math.copysign(math.ldexp(round(math.ldexp(value, -step)), step), value)


def _is_small_float(value: Any) -> bool:
    # ml_dtypes' bfloat16 and 8-bit floats: kind "V" like NumPy's records, but a type of their own
    return value.dtype.kind == "V" and type(value).__module__.partition(".")[0] == "ml_dtypes"


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) <= 60 else text[:57] + '...'} ({type(value).__name__})"
