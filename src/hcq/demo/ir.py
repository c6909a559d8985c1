"""The kernels of `hcq demo` in LLVM IR: steps, arguments and arithmetic as in picture.c, which says what each does.

A work-group takes a band of rows or a range of pixels; the loops inside run along a row, so that LLVM vectorises them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hcq.demo.ir_text import Function

if TYPE_CHECKING:
    from collections.abc import Sequence

TILE = 1024
BINS = 256

HEAD = """\
declare i32 @hcq.group_id(i32)
declare i32 @hcq.local_id(i32)
declare void @hcq.barrier()
declare float @llvm.sqrt.f32(float)
"""


def module(weights: Sequence[int]) -> str:
    """The module's text, with the blur's weights (an odd number of them, sum 256) in it."""
    radius = len(weights) // 2
    arrays = [
        f"@line = internal addrspace(3) global [{TILE + 2 * radius} x float] undef, align 64",
        f"@table = internal addrspace(3) global [{4 * BINS} x i32] undef, align 64",
        f"@sums = internal addrspace(3) global [{2 * BINS} x i32] undef, align 64",
        f"@darkest = internal addrspace(3) global [{BINS} x i32] undef, align 64",
    ]
    kernels = [_blur(weights), _luma(), _edges(), _histogram(), _equalising_table(), _equalise(), _triad()]
    return "\n".join([HEAD, *arrays, "", *(kernel.text() + "\n" for kernel in kernels)])


# Kernels


def _blur(weights: Sequence[int]) -> Function:
    f = Function("blur", ["ptr noalias %blurred", "ptr noalias %picture", *_ints("width", "height", "rows")])
    taps, radius = len(weights), len(weights) // 2
    width, height, rows = _wide(f, "width", "height", "rows")
    plane = f.mul("i64", f.mul("i64", _group(f, 1), width), height)
    first, last = _range(f, rows, height)
    with f.loop("0", width, str(TILE)) as x0:
        size = f.smaller("i64", str(TILE), f.sub("i64", width, x0))
        end = f.add("i64", size, str(2 * radius))
        inside = f.larger("i64", f.sub("i64", str(radius), x0), "0")
        outside = f.smaller("i64", end, f.add("i64", f.sub("i64", width, x0), str(radius)))
        column = f.add("i64", f.sub("i64", x0, str(radius)), inside)
        with f.loop(first, last) as y:
            sources = []
            for k in range(taps):
                at = _reflect(f, f.add("i64", y, str(k - radius)), height)
                sources.append(
                    f.at("i8", "%picture", f.add("i64", f.add("i64", plane, f.mul("i64", at, width)), column))
                )
            line = f.at("float", "@line", inside)
            with f.loop("0", f.sub("i64", outside, inside)) as i:
                pixels = [f.convert("zext", "i8", f.load("i8", source, i), "i16") for source in sources]
                total = f.mul("i16", pixels[radius], str(weights[radius]))
                for k in range(radius):
                    both = f.add("i16", pixels[k], pixels[taps - 1 - k])
                    # Wrapping is allowed: as unsigned numbers the sums fit, being at most 255 * 256.
                    total = f.get(f"add i16 {total}, {f.get(f'mul i16 {both}, {weights[k]}')}")
                f.store("float", f.convert("uitofp", "i16", total, "float"), line, i)
            for start, stop, edge in (("0", inside, inside), (outside, end, outside)):
                with f.loop(start, stop) as i:
                    mirrored = f.sub("i64", f.sub("i64", f.mul("i64", edge, "2"), "1"), i)
                    f.store("float", f.load("float", "@line", mirrored), "@line", i)
            row = f.at("i8", "%blurred", f.add("i64", f.add("i64", plane, f.mul("i64", y, width)), x0))
            with f.loop("0", size) as i:
                total = "32768.0"
                for k in range(taps):
                    value = f.load("float", "@line", f.add("i64", i, str(k)))
                    total = f.get(
                        f"fadd contract float {total}, {f.get(f'fmul contract float {value}, {weights[k]}.0')}"
                    )
                whole = f.get(f"lshr i32 {f.convert('fptosi', 'float', total, 'i32')}, 16")
                f.store("i8", f.convert("trunc", "i32", whole, "i8"), row, i)
    return f


def _luma() -> Function:
    f = Function("luma", ["ptr noalias %bright", "ptr noalias %picture", *_ints("pixels", "count")])
    pixels, count = _wide(f, "pixels", "count")
    planes = ["%picture", f.at("i8", "%picture", pixels), f.at("i8", "%picture", f.mul("i64", pixels, "2"))]
    with f.loop(*_range(f, count, pixels)) as i:
        total = "128"
        for weight, plane in zip((77, 150, 29), planes, strict=True):
            value = f.convert("zext", "i8", f.load("i8", plane, i), "i16")
            total = f.get(f"add i16 {total}, {f.get(f'mul i16 {value}, {weight}')}")
        f.store("i8", f.convert("trunc", "i16", f.get(f"lshr i16 {total}, 8"), "i8"), "%bright", i)
    return f


def _edges() -> Function:
    f = Function("edges", ["ptr noalias %edge", "ptr noalias %bright", *_ints("width", "height", "rows")])
    width, height, rows = _wide(f, "width", "height", "rows")
    with f.loop(*_range(f, rows, height)) as y:
        here = f.at("i8", "%bright", f.mul("i64", y, width))
        above = f.at("i8", here, f.select(f.get(f"icmp sgt i64 {y}, 0"), "i64", f.sub("i64", "0", width), "0"))
        last = f.sub("i64", height, "1")
        below = f.at("i8", here, f.select(f.get(f"icmp slt i64 {y}, {last}"), "i64", width, "0"))
        row = f.at("i8", "%edge", f.mul("i64", y, width))

        def gradient(left: str, x: str, right: str, above: str = above, here: str = here, below: str = below) -> str:
            pixel = {
                (line, column): f.convert("zext", "i8", f.load("i8", line, column), "i32")
                for line in (above, here, below)
                for column in (left, x, right)
            }

            def weighted(a: str, b: str, c: str) -> str:
                return f.add("i32", f.add("i32", a, f.mul("i32", b, "2")), c)

            across = f.sub(
                "i32",
                weighted(pixel[above, right], pixel[here, right], pixel[below, right]),
                weighted(pixel[above, left], pixel[here, left], pixel[below, left]),
            )
            down = f.sub(
                "i32",
                weighted(pixel[below, left], pixel[below, x], pixel[below, right]),
                weighted(pixel[above, left], pixel[above, x], pixel[above, right]),
            )
            square = f.add("i32", f.mul("i32", across, across), f.mul("i32", down, down))
            length = f.get(f"call float @llvm.sqrt.f32(float {f.convert('sitofp', 'i32', square, 'float')})")
            rounded = f.convert("fptosi", "float", f.get(f"fadd float {length}, 0.5"), "i32")
            return f.convert("trunc", "i32", f.smaller("i32", rounded, "255"), "i8")

        end = f.sub("i64", width, "1")
        with f.loop("1", end) as x:
            f.store("i8", gradient(f.sub("i64", x, "1"), x, f.add("i64", x, "1")), row, x)
        f.store("i8", gradient("0", "0", f.smaller("i64", "1", end)), row)
        f.store("i8", gradient(f.larger("i64", f.sub("i64", width, "2"), "0"), end, end), row, end)
    return f


def _histogram() -> Function:
    f = Function("histogram", ["ptr noalias %counts", "ptr noalias %bright", *_ints("pixels", "count")])
    pixels, count = _wide(f, "pixels", "count")
    first, last = _range(f, count, pixels)
    with f.loop("0", str(4 * BINS)) as i:
        f.store("i32", "0", "@table", i)

    def count_one(at: str, table: int) -> None:
        bin_ = f.convert("zext", "i8", f.load("i8", "%bright", at), "i64")
        if table:
            bin_ = f.add("i64", bin_, str(table * BINS))
        f.store("i32", f.add("i32", f.load("i32", "@table", bin_), "1"), "@table", bin_)

    rest = f.get(f"and i64 {f.sub('i64', last, first)}, 3")
    quarters = f.sub("i64", last, rest)
    with f.loop(first, quarters, "4") as i:
        for k in range(4):
            count_one(f.add("i64", i, str(k)), k)
    with f.loop(quarters, last) as i:
        count_one(i, 0)
    mine = f.at("i32", "%counts", f.mul("i64", _group(f, 0), str(BINS)))
    with f.loop("0", str(BINS)) as i:
        total = f.load("i32", "@table", i)
        for k in range(1, 4):
            total = f.add("i32", total, f.load("i32", "@table", f.add("i64", i, str(k * BINS))))
        f.store("i32", total, mine, i)
    return f


def _equalising_table() -> Function:
    f = Function("equalising_table", ["ptr noalias %shift", "ptr noalias %counts", *_ints("groups", "pixels")])
    groups, pixels = _wide(f, "groups", "pixels")
    value = f.convert("zext", "i32", f.get("call i32 @hcq.local_id(i32 0)"), "i64")
    value32 = f.convert("trunc", "i64", value, "i32")
    with f.summing("0", groups, "i32", "0") as (group, mine, new):
        at = f.add("i64", f.mul("i64", group, str(BINS)), value)
        new.append(f.add("i32", mine, f.load("i32", "%counts", at)))
    f.store("i32", mine, "@sums", value)
    seen = f.get(f"icmp ne i32 {mine}, 0")
    f.store("i32", f.select(seen, "i32", value32, str(BINS - 1)), "@darkest", value)
    f.do("call void @hcq.barrier()")
    now, step = 0, 1
    while step < BINS:
        upto = f.load("i32", "@sums", f.add("i64", value, str(now * BINS)))
        reaches = f.get(f"icmp sge i64 {value}, {step}")
        before = f.larger("i64", f.sub("i64", value, str(step)), "0")
        earlier = f.load("i32", "@sums", f.add("i64", before, str(now * BINS)))
        total = f.add("i32", upto, f.select(reaches, "i32", earlier, "0"))
        f.store("i32", total, "@sums", f.add("i64", value, str((1 - now) * BINS)))
        takes_part = f.get(f"icmp eq i64 {f.get(f'and i64 {value}, {2 * step - 1}')}, 0")
        with f.when(takes_part):
            other = f.load("i32", "@darkest", f.add("i64", value, str(step)))
            f.store("i32", f.smaller("i32", f.load("i32", "@darkest", value), other), "@darkest", value)
        f.do("call void @hcq.barrier()")
        now, step = 1 - now, 2 * step
    first = f.convert("zext", "i32", f.load("i32", "@darkest"), "i64")
    offset = str(now * BINS)
    below = f.convert("zext", "i32", f.load("i32", "@sums", f.add("i64", first, offset)), "i64")
    upto = f.convert("zext", "i32", f.load("i32", "@sums", f.add("i64", value, offset)), "i64")
    spread = f.sub("i64", pixels, below)
    scaled = f.mul("i64", f.larger("i64", f.sub("i64", upto, below), "0"), "255")
    rounded = f.add("i64", scaled, f.get(f"lshr i64 {spread}, 1"))
    flat = f.get(f"icmp eq i64 {spread}, 0")
    target = f.get(f"udiv i64 {rounded}, {f.select(flat, 'i64', '1', spread)}")
    moved = f.sub("i32", f.convert("trunc", "i64", target, "i32"), value32)
    f.store("i32", f.select(flat, "i32", "0", moved), "%shift", value)
    return f


def _equalise() -> Function:
    pointers = [f"ptr noalias %{name}" for name in ("equalised", "picture", "bright", "shift")]
    f = Function("equalise", [*pointers, *_ints("pixels", "count")])
    pixels, count = _wide(f, "pixels", "count")
    offsets = ["0", pixels, f.mul("i64", pixels, "2")]
    planes = [(f.at("i8", "%picture", offset), f.at("i8", "%equalised", offset)) for offset in offsets]
    with f.loop(*_range(f, count, pixels)) as i:
        by = f.load("i32", "%shift", f.convert("zext", "i8", f.load("i8", "%bright", i), "i64"))
        for source, target in planes:
            moved = f.add("i32", f.convert("zext", "i8", f.load("i8", source, i), "i32"), by)
            clamped = f.smaller("i32", f.larger("i32", moved, "0"), "255")
            f.store("i8", f.convert("trunc", "i32", clamped, "i8"), target, i)
    return f


def _triad() -> Function:
    parameters = ["ptr noalias %a", "ptr noalias %b", "ptr noalias %c", "float %scalar", *_ints("size", "count")]
    f = Function("triad", parameters)
    size, count = _wide(f, "size", "count")
    with f.loop(*_range(f, count, size)) as i:
        scaled = f.get(f"fmul contract float {f.load('float', '%c', i)}, %scalar")
        f.store("float", f.get(f"fadd contract float {f.load('float', '%b', i)}, {scaled}"), "%a", i)
    return f


# Helpers


def _ints(*names: str) -> list[str]:
    return [f"i32 %{name}" for name in names]


def _wide(f: Function, *names: str) -> list[str]:
    """The i32 parameters as i64: all indices are, so that addresses need no conversions inside loops."""
    return [f.convert("sext", "i32", f"%{name}", "i64") for name in names]


def _group(f: Function, dimension: int) -> str:
    return f.convert("zext", "i32", f.get(f"call i32 @hcq.group_id(i32 {dimension})"), "i64")


def _range(f: Function, count: str, size: str) -> tuple[str, str]:
    """What this group takes of `size` things, `count` to a group: first and one past the last."""
    first = f.mul("i64", _group(f, 0), count)
    return first, f.smaller("i64", f.add("i64", first, count), size)


def _reflect(f: Function, at: str, size: str) -> str:
    """Position -1 is 0 again, -2 is 1, and so on: SciPy's mode 'reflect'."""
    below = f.select(f.get(f"icmp slt i64 {at}, 0"), "i64", f.sub("i64", "-1", at), at)
    mirrored = f.sub("i64", f.sub("i64", f.mul("i64", size, "2"), "1"), below)
    return f.select(f.get(f"icmp sge i64 {below}, {size}"), "i64", mirrored, below)
