"""The steps of the demo, the same on every device: which kernel takes which buffers, in how many groups, and how much
memory it has to move at least.

A picture is three planes of width * height bytes (red, green, blue). What does not live here: the kernels' source.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp

ROWS_A_GROUP = 16
"""Rows that one work-group takes: enough to reuse what the caches hold, few enough to keep all cores busy."""

PIXELS_A_GROUP = 1 << 16
MOST_COUNTING_GROUPS = 64
BINS = 256

TRIAD_FLOATS_A_GROUP = 1 << 16


@dataclass(frozen=True)
class Step:
    """One launch. `moves` is what it has to read and write at least, in bytes; `arguments` name buffers."""

    title: str
    kernel: str
    arguments: tuple[str, ...]
    values: tuple[int, ...]
    groups: tuple[int, int, int]
    items: tuple[int, int, int]
    moves: int


@dataclass(frozen=True)
class Plan:
    """What to do with one picture: buffers by name in bytes, and the steps in order."""

    width: int
    height: int
    sigma: float
    buffers: dict[str, int]
    steps: tuple[Step, ...]

    @property
    def pixels(self) -> int:
        return self.width * self.height


def make_plan(width: int, height: int, sigma: float) -> Plan:
    """The plan for a picture of that size, blurred by a Gaussian of `sigma` pixels.

    Raises ValueError where the picture is smaller than the blur reaches.
    """
    weights = gaussian_weights(sigma)
    radius = len(weights) // 2
    if min(width, height) <= radius:
        raise ValueError(f"a blur of sigma {sigma:g} reaches {radius} pixels: more than {width} x {height} has")
    pixels = width * height
    bands = (-(-height // ROWS_A_GROUP), 1, 1)
    bands_of_planes = (bands[0], 3, 1)
    ranges = (-(-pixels // PIXELS_A_GROUP), 1, 1)
    counted = max(PIXELS_A_GROUP, -(-pixels // MOST_COUNTING_GROUPS))
    counters = -(-pixels // counted)
    one = (1, 1, 1)
    buffers = {
        "photo": 3 * pixels,
        "blurred": 3 * pixels,
        "bright": pixels,
        "edges": pixels,
        "counts": counters * BINS * 4,
        "shift": BINS * 4,
        "equalised": 3 * pixels,
    }
    size, ranged = (width, height, ROWS_A_GROUP), (pixels, PIXELS_A_GROUP)
    steps = (
        Step("blur", "blur", ("blurred", "photo"), size, bands_of_planes, one, 6 * pixels),
        Step("luma of the blurred", "luma", ("bright", "blurred"), ranged, ranges, one, 4 * pixels),
        Step("edges", "edges", ("edges", "bright"), size, bands, one, 2 * pixels),
        Step("luma of the photo", "luma", ("bright", "photo"), ranged, ranges, one, 4 * pixels),
        Step("histogram", "histogram", ("counts", "bright"), (pixels, counted), (counters, 1, 1), one, pixels),
        Step(
            "equalising table", "equalising_table", ("shift", "counts"), (counters, pixels), one, (BINS, 1, 1),
            buffers["counts"] + buffers["shift"],
        ),
        Step(
            "equalise", "equalise", ("equalised", "photo", "bright", "shift"), ranged, ranges, one, 7 * pixels,
        ),
    )  # fmt: skip
    return Plan(width, height, sigma, buffers, steps)


def gaussian_weights(sigma: float) -> list[int]:
    """A Gaussian of `sigma` pixels, cut at three sigma as SciPy's `truncate=3`, in whole 256ths whose sum is 256.

    Raises ValueError for a sigma that is not in 0.5 to 10.
    """
    if not 0.5 <= sigma <= 10:
        raise ValueError(f"sigma is {sigma:g}: expected 0.5 to 10 pixels")
    radius = int(3 * sigma + 0.5)
    exact = [exp(-0.5 * (k / sigma) ** 2) for k in range(-radius, radius + 1)]
    scale = 256 / sum(exact)
    weights = [int(weight * scale + 0.5) for weight in exact]
    missing = 256 - sum(weights)
    # What rounding left over goes, symmetrically, to where it changes the shape least; an odd one to the centre.
    errors = sorted(
        range(1, radius + 1),
        key=lambda k: (exact[radius + k] * scale - weights[radius + k]) * (missing or 1),
        reverse=True,
    )
    for k in errors[: abs(missing) // 2]:
        for side in (radius + k, radius - k):
            weights[side] += 1 if missing > 0 else -1
    weights[radius] += 256 - sum(weights)
    return weights
