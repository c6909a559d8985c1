"""What a device does not say of itself, found out by a launch: whether its `fma` rounds once.

Vulkan leaves that open, and has no property for it. What does not live here: what becomes of a kernel where it does not
(lower.fused).
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final

from hcq.errors import CompileError, InvalidProgram
from hcq.kernels import lower, types
from hcq.kernels.ir import Builder, Function, Value
from hcq.runtime import watch

if TYPE_CHECKING:
    from hcq.kernels.types import Scalar

_BITS: Final = {types.f32: 12, types.f64: 30}
"""1 + 2^-n, squared, has a last digit that a product rounded by itself loses."""

_known: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()


def target(device: Any, function: Function) -> str | None:
    """A device's `kernel_target` for a kernel; with what launches told of it, where the kernel depends on that."""
    words: str | None = getattr(device, "kernel_target", None)
    if words is None or "llvmpipe" in words or not any(op.code == "fma" for op in function.walk()):
        return words
    if device not in _known:
        found = [f"fma{each.bits}" for each in _BITS if rounds_once(device, each)]
        _known[device] = " ".join([words, *found])
    return _known[device]


def rounds_once(device: Any, element: Scalar) -> bool:
    """Whether a device's own `fma` rounds once. Launches a kernel, of which nobody who watches is told, and waits for
    it. False where the device has no such type."""
    from hcq.runtime.buffer import Buffer

    function = _function(element)
    language = device.kernel_language
    words = f"{device.kernel_target} fma{element.bits}" if language == "spirv" else None
    step = 2.0 ** -_BITS[element]
    number = element.dtype.numpy.type
    with watch.quiet():
        try:
            name = function.name if language == "ir" else lower.entry_name(function.name)
            program = device.program(name, lower.source(function, language, words))
        except (CompileError, InvalidProgram):
            return False
        out = Buffer(device.dname, 1, element.dtype).allocate()
        vals = number(1 + step), number(-1 - 2 * step)
        program(out, vals=vals, wait=True)
        found = bool(out.numpy()[0] == step * step)
        del out  # still while nobody is told
    return found


def _function(element: Scalar) -> Function:
    """out[0] = fma(a, a, c)."""
    out, a, c = Value(types.pointer(element), "out"), Value(element, "a"), Value(element, "c")
    function = Function("rounds_once", [out, a, c])
    b = Builder(function.body)
    b.store(out, b.const(0, types.i32), b.op("fma", (a, a, c), (element,)).result)
    b.op("return")
    return function
