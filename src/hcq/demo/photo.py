"""Reading a photograph into planes, laying it out larger, and composing what came of it into one picture."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFont, UnidentifiedImageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]

SHIPPED = "coffee.png"
"""The photograph used when none is given: a cup of coffee, 600 x 400, shipped in scikit-image's wheel."""

MOST_PIXELS = 1 << 27
"""Larger pictures are refused: at some 20 bytes a pixel on each device they would fill a small machine."""

LEAST_SIDE = 32
"""Smaller pictures are refused: the blur reaches further than they are wide."""


def shipped() -> Path:
    """Where the shipped photograph is. Raises FileNotFoundError where scikit-image is missing. Doesn't import it."""
    spec = find_spec("skimage")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "data" / SHIPPED
        if path.exists():
            return path
    raise FileNotFoundError(
        f"{SHIPPED} comes with scikit-image: pip install 'hcq[demo]', or give a photograph of yours"
    )


def read(path: Path) -> Pixels:
    """The photograph as three planes: shape (3, height, width), uint8, red, green, blue; turned as its camera says.

    Raises OSError where the file can't be read, ValueError where it is no picture, too small or too large.
    """
    try:
        with Image.open(path) as opened:
            width, height = opened.size
            if width * height > MOST_PIXELS:
                raise ValueError(f"{path}: {width} x {height} pixels are more than the demo takes ({MOST_PIXELS})")
            if min(width, height) < LEAST_SIDE:
                raise ValueError(f"{path}: {width} x {height} pixels; the demo needs {LEAST_SIDE} each way")
            from PIL import ImageOps

            image = ImageOps.exif_transpose(opened).convert("RGB")
            return np.ascontiguousarray(np.asarray(image).transpose(2, 0, 1))
    except (UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise ValueError(f"{path} is no picture that Pillow can read: {error}") from None


def enlarged(planes: Pixels, pixels: int) -> Pixels:
    """At least `pixels` pixels, in a picture as wide as high to within a tile: the photograph mirrored side by side.

    So a small photograph becomes a job too large for the caches without a blurred, made-up picture.
    """
    _, height, width = planes.shape
    across = max(1, round((pixels * width / height) ** 0.5 / width))
    down = max(1, -(-pixels // (across * width * height)))
    row = np.concatenate([planes if i % 2 == 0 else planes[:, :, ::-1] for i in range(across)], axis=2)
    return np.ascontiguousarray(np.concatenate([row if i % 2 == 0 else row[:, ::-1] for i in range(down)], axis=1))


def compose(panels: list[tuple[str, Pixels]], path: Path) -> None:
    """Write the panels (planes, or one grey plane), two in a row and each with its title under it, as one PNG."""
    height, width = panels[0][1].shape[-2:]
    gap = max(8, width // 50)
    font = ImageFont.load_default(size=max(14, width // 30))
    title_height = 2 * max(14, width // 30)
    rows = -(-len(panels) // 2)
    sheet = Image.new("RGB", (2 * width + 3 * gap, rows * (height + title_height) + gap), "white")
    draw = ImageDraw.Draw(sheet)
    for i, (title, pixels) in enumerate(panels):
        left = gap + (i % 2) * (width + gap)
        top = gap + (i // 2) * (height + title_height)
        image = Image.fromarray(pixels if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(1, 2, 0)))
        sheet.paste(image.convert("RGB"), (left, top))
        middle = (left + width // 2, top + height + (title_height - gap) // 2)
        draw.text(middle, title, fill="black", font=font, anchor="mm")
    sheet.save(path, format="PNG")
