"""The picture of a profile: a timeline as an SVG, a row for each thread, for a report."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from hcq.profiling import layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hcq.profiling.session import Profile
    from hcq.profiling.spans import Span

_WIDTH, _LEFT, _ROW, _GAP, _HEAD = 1200, 190, 22, 10, 40
_COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#9d755d", "#eeca3b")
_PLAIN = {"copy": "#8c8c8c", "wait": "#d9d9d9", "launch": "#bcd0e6", "submit": "#9fb9d6", "compile": "#c9a66b"}
_LETTER = 6.3  # pixels of a character, about


def write(profile: Profile, path: str) -> str:
    """Write the picture to `path`, which must end in .svg."""
    if not path.lower().endswith(".svg"):
        raise ValueError(f"{path!r}: the picture of a timeline is an SVG, so the path must end in .svg")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(_lines(profile)) + "\n")
    return path


def _lines(profile: Profile) -> Iterator[str]:
    spans = profile.spans
    rows = [(process, thread) for process in layout.arrange(profile) for thread in process.threads if thread.spans]
    begin = min((span.start for span in spans), default=profile.began)
    end = max((span.end for span in spans), default=begin + 1)
    scale = (_WIDTH - _LEFT - 20) / (end - begin)
    names = dict.fromkeys(span.name for span in spans if span.kind == "kernel")
    colours = {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(names)}
    places, y, previous = [], _HEAD, None
    for process, _ in rows:
        y += _GAP if process is not previous and previous is not None else 0
        places.append(y)
        y, previous = y + _ROW, process
    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{y + 20}" font-family="sans-serif">'
    yield f'<rect width="{_WIDTH}" height="{y + 20}" fill="white"/>'
    yield from _axis(end - begin, scale, y)
    for (process, thread), top in zip(rows, places, strict=True):
        said = escape(f"{process.name} {thread.name}")
        yield f'<text x="{_LEFT - 8}" y="{top + 15}" font-size="11" text-anchor="end">{said}</text>'
        for left, right, span, count in _merged(spans, thread.spans, begin, scale):
            colour = colours.get(span.name) if span.kind == "kernel" else _PLAIN.get(span.kind, "#c0c0c0")
            width = max(right - left, 0.5)
            what = span.name if count == 1 else f"{count} spans, the first {span.name}"
            took = f"{(span.end - span.start) / 1000:.3f} us" if count == 1 else ""
            yield (
                f'<rect x="{left:.2f}" y="{top + 2}" width="{width:.2f}" height="{_ROW - 4}" fill="{colour}">'
                f"<title>{escape(f'{what} {took}'.strip())}</title></rect>"
            )
            if count == 1 and width > len(span.name) * _LETTER + 6:
                yield (
                    f'<text x="{left + 3:.2f}" y="{top + 15}" font-size="10" fill={quoteattr("black")}>'
                    f"{escape(span.name)}</text>"
                )
    yield "</svg>"


def _merged(
    spans: Sequence[Span], indices: Sequence[int], begin: int, scale: float
) -> Iterator[tuple[float, float, Span, int]]:
    """(left, right, first span, how many) in pixels: what is narrower than half a pixel joins what it touches."""
    current: tuple[float, float, Span, int] | None = None
    for index in indices:
        span = spans[index]
        left, right = _LEFT + (span.start - begin) * scale, _LEFT + (span.end - begin) * scale
        if current is not None:
            if right - current[1] < 0.5 and left - current[1] < 0.5:
                current = current[0], max(right, current[1]), current[2], current[3] + 1
                continue
            yield current
        current = left, right, span, 1
    if current is not None:
        yield current


def _axis(length: int, scale: float, bottom: int) -> Iterator[str]:
    power = 10 ** (len(str(max(length // 8, 1))) - 1)
    step = next(power * factor for factor in (1, 2, 5, 10, 20) if power * factor * 8 >= length)
    unit, divisor = next((u, d) for u, d in (("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1)) if step >= d)
    for time in range(0, length + 1, step):
        x = _LEFT + time * scale
        yield f'<line x1="{x:.2f}" y1="{_HEAD - 10}" x2="{x:.2f}" y2="{bottom}" stroke="#e6e6e6"/>'
        yield f'<text x="{x:.2f}" y="{_HEAD - 16}" font-size="10" text-anchor="middle">{time / divisor:g} {unit}</text>'
