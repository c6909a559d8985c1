"""The arrays of the rows of hcq.ops, and each operation on them in NumPy and in hcq."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np


@lru_cache(maxsize=1)
def inputs(name: str) -> tuple[Any, ...]:
    """The arrays of one operation; those of another are let go of."""
    rng = np.random.default_rng(1)

    def numbers(*shape: int) -> Any:
        return rng.random(shape, dtype=np.float32)

    if name == "add":
        return numbers(4096, 4096), numbers(4096, 4096)
    if name in ("softmax", "rms_norm", "layer_norm"):
        return (numbers(8192, 2048),)
    if name == "gather":
        return numbers(100_000, 256), rng.integers(0, 100_000, 65536, dtype=np.int32)
    if name == "sort":
        return (numbers(1 << 22),)
    if name == "histogram":
        return (numbers(1 << 24),)
    if name == "matmul":
        return numbers(1024, 1024), numbers(1024, 1024)
    if name == "matmul_small":
        return numbers(128, 64, 64), numbers(128, 64, 64)
    if name == "conv2d":
        return numbers(8, 32, 66, 66), numbers(64, 32, 3, 3)
    if name in ("sum", "cumsum"):
        return (numbers(1 << 24),)
    return (numbers(4096, 4096),)


def _softmax(x: Any) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _layer_norm(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + np.float32(1e-5))


def _rms_norm(x: Any) -> Any:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-6))


def _convolve(x: Any, w: Any) -> Any:
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), (2, 3))  # n, c, y, x, 3, 3
    return np.tensordot(windows, w, ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)


def in_numpy(name: str) -> Callable[[], Any]:
    """The operation, ready to run."""
    given = inputs(name)
    out = np.empty((4096, 4096), np.float32) if name in ("add", "exp", "fill") else None

    def fill(x: Any) -> Any:
        out.fill(3.0)  # type: ignore[union-attr]
        return out

    made: dict[str, Callable[..., Any]] = {
        "fill": fill,
        "add": lambda x, y: np.add(x, y, out=out),
        "cast": lambda x: x.astype(np.float16),
        "exp": lambda x: np.exp(x, out=out),
        "sum": np.sum,
        "sum_columns": lambda x: np.sum(x, axis=0),
        "cumsum": np.cumsum,
        "softmax": _softmax,
        "layer_norm": _layer_norm,
        "rms_norm": _rms_norm,
        "transpose": lambda x: np.ascontiguousarray(x.T),
        "gather": lambda x, index: np.take(x, index, axis=0),
        "histogram": lambda x: np.histogram(x, 256, (0.0, 1.0))[0],
        "sort": np.sort,
        "conv2d": _convolve,
        "matmul": np.matmul,
        "matmul_small": np.matmul,
    }
    return lambda: made[name](*given)


def in_hcq(name: str, device: str = "LLVM") -> Callable[[], Any]:
    """The operation on buffers of a CPU device, ready to run; it gives the buffer of the result."""
    import hcq
    from hcq import ops

    given = [hcq.array(each, device) for each in inputs(name)]
    made: dict[str, Callable[..., Any]] = {
        "fill": lambda x, out: ops.fill(out if out is not None else hcq.empty((4096, 4096), hcq.f32, device), 3.0),
        "cast": lambda x, out: ops.cast(x, hcq.f16, out=out),
        "sum": lambda x, out: ops.sum(x, out=out),
        "sum_columns": lambda x, out: ops.sum(x, axis=0, out=out),
        "histogram": lambda x, out: ops.histogram(x, 256, 0.0, 1.0, out=out),
        "matmul_small": lambda x, y, out: ops.matmul(x, y, out=out),
    }
    run = made.get(name) or getattr(ops, name)
    out = run(*given, out=None)
    return lambda: run(*given, out=out)
