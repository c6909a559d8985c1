"""The rows of hcq.ops: each operation beside NumPy's on the same arrays, in bytes that it must move a second at least.

Arrays are of f32, made alike on both sides (workers/operations.py). What does not live here: other rows.
"""

from __future__ import annotations

from benchmarks.row import MIB, STATED, Budget, Entry, Row

_TRIAD = Entry("raw", "triad", "triad in C with OpenMP")
_LOOPS = {"fill", "add", "exp", "sum", "sum_columns"}


def _row(name: str, title: str, size: int, budget: Budget = STATED, unit: str = "GB/s", most: int = 8) -> Row:
    """`size`: the bytes that the operation must read and write, or the additions and multiplications."""
    entries = [
        Entry("hcq", "operation", "LLVM", {"name": name}),
        Entry("hcq", "operation", "CLANG", {"name": name, "device": "CLANG"}),
        Entry("numpy", "operation", "BLAS" if unit == "GFLOP/s" else "", {"name": name}),
    ]
    return Row(f"ops.{name}", "ops", f"ops: {title}", unit, tuple(entries), budget, size=size, most=most)


def _stream(name: str, title: str, size: int) -> Row:
    """A streaming operation, against what a stream of three arrays reaches in C."""
    row = _row(name, title, size)
    # The triad moves 192 MiB: what this one may take is its share of that, over 0.9.
    budget = Budget("0.9 of C with OpenMP's triad, a byte", size / (3 * 64 * MIB) / 0.9, _TRIAD.label)
    loop = (_loop(name),) if name in _LOOPS else ()
    return Row(row.id, row.group, row.title, row.unit, (*row.entries, *loop, _TRIAD), budget, size=size, most=8)


def _loop(name: str) -> Entry:
    return Entry("raw", "operation", "the same loop in C with OpenMP", {"name": name})


ROWS: tuple[Row, ...] = (
    _stream("fill", "fill 64 MiB", 64 * MIB),
    _stream("add", "add, 3 x 64 MiB", 3 * 64 * MIB),
    _stream("cast", "f32 to f16, 64 MiB", 96 * MIB),
    _stream("exp", "exp, 64 MiB to 64 MiB", 128 * MIB),
    _stream("sum", "sum of 64 MiB", 64 * MIB),
    _stream("sum_columns", "sums of the columns of 4096 x 4096", 64 * MIB),
    _row("cumsum", "running sum of 64 MiB", 128 * MIB),
    _row("softmax", "softmax of 8192 rows of 2048", 128 * MIB),
    _row("layer_norm", "layer norm of 8192 rows of 2048", 128 * MIB),
    _row("rms_norm", "RMS norm of 8192 rows of 2048", 128 * MIB),
    _row("transpose", "transpose of 4096 x 4096", 128 * MIB),
    _row("gather", "65536 of 100,000 rows of 256", 128 * MIB),
    _row("histogram", "histogram of 16 Mi numbers, 256 bins", 64 * MIB),
    _row("sort", "sort of 4 Mi numbers", 32 * MIB, most=2),
    _row("conv2d", "convolution 3 x 3, 8 x 32 x 64 x 64 to 64", 2 * 8 * 64 * 64 * 64 * 32 * 9, unit="GFLOP/s", most=4),
    _row(
        "matmul",
        "matrix product of 1024",
        2 * 1024**3,
        Budget("half of NumPy's BLAS", 2, "BLAS"),
        unit="GFLOP/s",
        most=16,
    ),
    _row("matmul_small", "128 matrix products of 64", 128 * 2 * 64**3, unit="GFLOP/s", most=64),
)
