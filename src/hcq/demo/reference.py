"""The demo's pictures by SciPy and NumPy alone, and how far a device's are from them.

All steps are arithmetic on whole numbers, or a correctly rounded square root of one, so a device must agree to the last
bit: the tolerance is zero. The blur's weights are multiples of 1/256; what that costs is measured against SciPy's
gaussian_filter in double precision, and must stay within what it can cost at worst (`gaussian_tolerance`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import ndimage

from hcq.demo.plan import gaussian_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

REACH = 3.0
"""Where the Gaussian is cut, in sigmas: SciPy's `truncate`."""


@dataclass(frozen=True)
class Difference:
    """How one result differs: `pixels` compared, `wrong` beyond `tolerance` among them, `largest` difference seen."""

    name: str
    against: str
    pixels: int
    wrong: int
    largest: float
    tolerance: float


def pictures(photo: Array, sigma: float, step: Callable[[], None] = lambda: None) -> dict[str, Array]:
    """Every result by name, from planes (3, height, width). `step` is called after each. Takes seconds."""
    weights = gaussian_weights(sigma)
    results: dict[str, Array] = {}

    def keep(name: str, value: Array) -> Array:
        results[name] = value
        step()
        return value

    blurred = keep("blurred", np.stack([_blur(plane, weights) for plane in photo]))
    bright = luma(blurred).astype(np.int32)
    across, down = ndimage.sobel(bright, axis=1), ndimage.sobel(bright, axis=0)
    length = np.sqrt((across * across + down * down).astype(np.float32))
    keep("edges", np.minimum(np.floor(length + np.float32(0.5)), 255).astype(np.uint8))
    bright = luma(photo)
    counts = keep("histogram", ndimage.histogram(bright, 0, 256, 256).astype(np.uint32))
    shift = keep("shift", equalising_shift(counts))
    moved = photo.astype(np.int16) + shift.astype(np.int16)[bright]
    keep("equalised", np.clip(moved, 0, 255).astype(np.uint8))
    return results


RESULTS = ("blurred", "edges", "histogram", "shift", "equalised")


def compare(got: Mapping[str, Array], photo: Array, expected: Mapping[str, Array], sigma: float) -> list[Difference]:
    """Every value of every result against the reference, and the blur against SciPy's own Gaussian."""
    named = {
        "blurred": "SciPy correlate1d",
        "edges": "SciPy sobel, NumPy sqrt",
        "histogram": "SciPy histogram",
        "shift": "NumPy cumsum",
        "equalised": "NumPy",
    }
    rows = [_differ(name, against, got[name], expected[name], 0) for name, against in named.items()]
    exact = np.stack([ndimage.gaussian_filter(plane.astype(np.float64), sigma, truncate=REACH) for plane in photo])
    rows.append(_differ("blurred", "SciPy gaussian_filter", got["blurred"], exact, gaussian_tolerance(sigma)))
    return rows


def gaussian_tolerance(sigma: float) -> float:
    """How far the blur can be from an exact Gaussian, in grey levels: a half from rounding the result, and what the
    rounded weights give a picture that is white wherever they are too large and black elsewhere."""
    rounded = np.array(gaussian_weights(sigma)) / 256
    radius = len(rounded) // 2
    exact = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    exact /= exact.sum()
    surplus = np.outer(rounded, rounded) - np.outer(exact, exact)
    return float(0.5 + 255 * surplus[surplus > 0].sum())


def luma(planes: Array) -> Array:
    """Brightness of (3, height, width) uint8 planes, uint8."""
    red, green, blue = planes.astype(np.int32)
    bright: Array = ((77 * red + 150 * green + 29 * blue + 128) >> 8).astype(np.uint8)
    return bright


def equalising_shift(counts: Array) -> Array:
    """What equalising adds to each of the 256 brightnesses, whose counts are given. int32."""
    upto = np.cumsum(counts.astype(np.int64))
    below = int(upto[np.flatnonzero(counts)[0]])
    spread = int(upto[-1]) - below
    if not spread:
        return np.zeros(256, np.int32)
    return ((np.maximum(upto - below, 0) * 255 + spread // 2) // spread - np.arange(256)).astype(np.int32)


def _blur(plane: Array, weights: list[int]) -> Array:
    columns = ndimage.correlate1d(plane.astype(np.int32), weights, axis=0, mode="reflect")
    both = ndimage.correlate1d(columns, weights, axis=1, mode="reflect")
    blurred: Array = ((both + 32768) >> 16).astype(np.uint8)
    return blurred


def _differ(name: str, against: str, got: Array, expected: Array, tolerance: float) -> Difference:
    if got.shape != expected.shape:
        raise ValueError(f"{name}: shape {got.shape}, expected {expected.shape}")
    away = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    wrong = int(np.count_nonzero(away > tolerance))
    return Difference(name, against, got.size, wrong, float(away.max()), tolerance)
