"""What a device does not say of itself, found out by launches: whether its `fma` rounds once, and whether its division
and square root are rounded correctly.

Vulkan leaves both open, and has no properties for them. What does not live here: what becomes of a kernel where they
are not (lower.fused, lower.quotient).
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final

from hcq.errors import CompileError, InvalidProgram
from hcq.kernels import lower, types
from hcq.kernels.ir import Builder, Function, Value
from hcq.runtime import watch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.kernels.types import Scalar

CODES: Final = ("fma", "div", "sqrt")
_ITEMS: Final = 64
_SAMPLES: Final = 64 * _ITEMS

_known: weakref.WeakKeyDictionary[Any, dict[str, bool]] = weakref.WeakKeyDictionary()


def target(device: Any, function: Function) -> str | None:
    """A device's `kernel_target` for a kernel, with what launches told of the operations in it."""
    words: str | None = getattr(device, "kernel_target", None)
    if words is None:
        return None
    known = _known.setdefault(device, {})
    found = [words]
    for code, element in sorted(_wanted(function), key=str):
        word = f"{code}{element.bits}"
        if word in words.split():
            continue
        if word not in known:
            known[word] = is_exact(device, code, element)
        if known[word]:
            found.append(word)
    return " ".join(found)


def _wanted(function: Function) -> set[tuple[str, Scalar]]:
    """The operations of a kernel that are in question, and what they are computed in."""
    ops = (op for op in function.walk() if op.code in CODES)
    return {(op.code, types.computed(types.element_of(op.result.type))) for op in ops}


def is_exact(device: Any, code: str, element: Scalar) -> bool:
    """Whether a device's own operation gives what ir.OPS says, for some thousand operands. Launches a kernel, of which
    nobody who watches is told, and waits for it. False where the device has no such type."""
    import numpy as np

    from hcq.runtime.buffer import Buffer

    function = _function(code, element)
    language = device.kernel_language
    words = f"{device.kernel_target} {code}{element.bits}" if language == "spirv" else None
    given, wanted = _samples(code, element)
    with watch.quiet():
        try:
            name = function.name if language == "ir" else lower.entry_name(function.name)
            program = device.program(name, lower.source(function, language, words))
        except (CompileError, InvalidProgram):
            return False
        buffers = [Buffer(device.dname, _SAMPLES, element.dtype).allocate() for _ in range(4)]
        for buffer, values in zip(buffers[1:], given, strict=True):
            buffer.copyin(memoryview(values).cast("B"))
        program(*buffers, global_size=(_SAMPLES // _ITEMS, 1, 1), local_size=(_ITEMS, 1, 1), wait=True)
        found = bool(np.array_equal(buffers[0].numpy(), wanted))
        del buffer, buffers  # still while nobody is told
    return found


def _samples(code: str, element: Scalar) -> tuple[Sequence[Any], Any]:
    """Operands, and what is right: of fma a case whose product has one digit more than is kept."""
    import numpy as np

    number = element.dtype.numpy.type
    if code == "fma":
        step = 2.0 ** (-12 if element is types.f32 else -30)
        one = [np.full(_SAMPLES, each, number) for each in (1 + step, 1 + step, -1 - 2 * step)]
        return one, np.full(_SAMPLES, step * step, number)
    chance = np.random.default_rng(1)
    a, b = (
        (1 + chance.random(_SAMPLES)).astype(number) * number(2) ** chance.integers(-40, 40, _SAMPLES) for _ in "ab"
    )
    a, b = a.astype(number), b.astype(number)
    return (a, b, a), a / b if code == "div" else np.sqrt(a)


def _function(code: str, element: Scalar) -> Function:
    """out[i] = the operation on as many of a[i], b[i] and c[i] as it takes."""
    parameters = [Value(types.pointer(element), name) for name in ("out", "a", "b", "c")]
    function = Function("probe", parameters)
    s = Builder(function.body)
    i = s.id("global_id", 0)
    count = {"fma": 3, "div": 2, "sqrt": 1}[code]
    operands = [s.load(each, i) for each in parameters[1 : 1 + count]]
    s.store(parameters[0], i, s.op(code, operands, (element,)).result)
    s.op("return")
    return function
