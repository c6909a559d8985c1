"""The rows of hcq.cudacpu, the CUDA driver on the CPU. What does not live here: other rows."""

from __future__ import annotations

from benchmarks.row import Budget, Entry, Row

_SIDE = 512

ROWS: tuple[Row, ...] = (
    Row(
        "cudacpu.product",
        "cudacpu",
        f"CUDA on the CPU: f32 matrix product of {_SIDE}, tiles of 32",
        "GFLOP/s",
        (
            Entry("cudacpu", "product", "", {"size": _SIDE}),
            Entry("numpy", "product", "BLAS", {"size": _SIDE}),
        ),
        Budget("0.4 of NumPy", 2.5, "BLAS"),
        size=2 * _SIDE**3,
        most=50,
    ),
    Row(
        "cudacpu.product16",
        "cudacpu",
        f"CUDA on the CPU: f32 matrix product of {_SIDE}, tiles of 16",
        "GFLOP/s",
        (
            Entry("cudacpu", "product", "", {"size": _SIDE, "tile": 16}),
            Entry("numpy", "product", "BLAS", {"size": _SIDE}),
        ),
        Budget("0.4 of NumPy", 2.5, "BLAS"),
        size=2 * _SIDE**3,
        most=50,
    ),
    Row(
        "cudacpu.barrier",
        "cudacpu",
        "CUDA on the CPU: a barrier, a thread, in blocks of 256",
        "ns",
        (Entry("cudacpu", "barrier", "", {"block": 256}),),
        Budget("1 ns", 1e-9),
        most=20,
        note="With the store to shared memory and the load from it that stand between two barriers; on all cores.",
    ),
    Row(
        "cudacpu.barrier.once",
        "cudacpu",
        "CUDA on the CPU: a barrier, a thread, in blocks of 32 that have two",
        "ns",
        (Entry("cudacpu", "barrier", "", {"block": 32, "rounds": 1, "blocks": 4096}),),
        Budget("1 ns", 1e-9),
        most=20,
        note="With all that a block costs beside.",
    ),
    Row(
        "cudacpu.launch",
        "cudacpu",
        "CUDA on the CPU: launch of 32 threads and wait, by ctypes",
        "us",
        (
            Entry("cudacpu", "launch"),
            Entry("numpy", "launch", "np.add, one element"),
            Entry("raw", "vectorcall", "built-in with 3 arguments"),
        ),
        Budget("5 us", 5e-6),
    ),
)
