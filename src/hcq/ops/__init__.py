"""hcq.ops: the kernels that people expect, written once in the kernel language, for every device that runs kernels.

They take buffers (and numbers), queue their work on the buffers' device, and return the buffer that holds the result:
`out`, where it is given, else a new one. Shapes are those that buffers were made with; types follow NumPy. They don't
wait. What does not live here: the language (hcq.kernels), gradients, graphs of operations - a framework's.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NAMES = {
    "hcq.ops.elementwise": ("map", "fill", "cast", "copy"),
    "hcq.ops.arithmetic": (
        *("add", "subtract", "multiply", "divide", "power", "minimum", "maximum", "where"),
        *("negative", "absolute", "sqrt", "exp", "log", "sin", "cos", "tanh", "erf", "sigmoid", "relu", "gelu", "silu"),
        *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal"),
    ),
    "hcq.ops.reduce": ("sum", "prod", "min", "max", "mean"),
    "hcq.ops.extremes": ("argmin", "argmax"),
    "hcq.ops.matrix": ("matmul",),
    "hcq.ops.normalise": ("softmax", "layer_norm", "rms_norm"),
    "hcq.ops.rearrange": ("transpose", "gather", "scatter", "scatter_add"),
    "hcq.ops.scan": ("cumsum",),
    "hcq.ops.sorting": ("sort", "argsort", "histogram"),
    "hcq.ops.convolve": ("conv2d",),
    "hcq.ops.shapes": ("reshape",),
}

_HOME = {name: module for module, names in _NAMES.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOME:
        from difflib import get_close_matches

        near = get_close_matches(name, __all__, n=1, cutoff=0.7) if not name.startswith("_") else []
        meant = f". Did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"module 'hcq.ops' has no attribute {name!r}{meant}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
