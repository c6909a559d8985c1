"""cp.reduce.async.bulk combines element by element, and what tells an mbarrier of copies does so in every space."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from ptx_host import HEAD, Loaded

DTYPES = {
    "u32": np.uint32, "s32": np.int32, "u64": np.uint64, "s64": np.int64, "b32": np.uint32, "b64": np.uint64,
    "f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
}  # fmt: skip
MODELS = {
    "add": lambda a, b: a + b,
    "min": np.minimum,
    "max": np.maximum,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "inc": lambda a, b: np.where(a >= b, 0, a + 1).astype(a.dtype),
    "dec": lambda a, b: np.where((a == 0) | (a > b), b, a - 1).astype(a.dtype),
}
TO_GLOBAL = (
    "add.u32", "add.s32", "add.u64", "add.f32", "add.f64", "add.noftz.f16", "add.noftz.bf16", "inc.u32", "dec.u32",
    "min.s32", "max.u32", "min.u64", "max.s64", "min.f16", "max.bf16", "and.b32", "or.b64", "xor.b32",
)  # fmt: skip
TO_SHARED = (
    "add.u32",
    "add.s32",
    "add.u64",
    "inc.u32",
    "dec.u32",
    "min.s32",
    "max.u32",
    "and.b32",
    "or.b32",
    "xor.b32",
)
COUNT = 16
BODY = """.reg .b64 %in, %out, %v, %g; .reg .b32 %s, %bar, %n; .reg .pred %p;
.shared .align 128 .b8 from[128]; .shared .align 128 .b8 to[128]; .shared .align 8 .b64 done;
ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; mov.u32 %s, from; mov.u32 %bar, done; mov.u32 %n, {bytes};
"""


def launched(name: str, body: str, given: np.ndarray, out: np.ndarray) -> None:
    head = BODY.format(bytes=given.nbytes)
    Loaded(f"{HEAD}.visible .entry {name}(.param .u64 in, .param .u64 out) {{\n{head}{body}\nret; }}\n").launch(
        name, given, out
    )


def operands(operation: str) -> tuple[np.ndarray, np.ndarray]:
    kind = DTYPES[operation.rsplit(".", 1)[1]]
    draw = np.random.default_rng(len(operation))
    if operation.startswith(("inc", "dec")):
        return draw.integers(0, 4, COUNT).astype(kind), draw.integers(0, 4, COUNT).astype(kind)
    if kind in (np.float16, np.float32, np.float64, ml_dtypes.bfloat16):
        return draw.normal(size=COUNT).astype(kind), draw.normal(size=COUNT).astype(kind)
    bits = draw.integers(0, 256, (2, COUNT * np.dtype(kind).itemsize), dtype=np.uint8)
    return bits[0].view(kind), bits[1].view(kind)


def into(space: str, first: str, array: np.ndarray, base: str = "%in") -> str:
    return "\n".join(
        f"ld.global.b64 %v, [{base}+{n}]; st.{space}.b64 [{first}+{n}], %v;" for n in range(0, array.nbytes, 8)
    )


@pytest.mark.parametrize("operation", TO_GLOBAL)
def test_elements_in_global_memory_are_combined_with_those_that_come(operation: str) -> None:
    old, given = operands(operation)
    out = old.copy()
    launched(
        "k",
        f"""{into("shared", "from", given)}
        cp.reduce.async.bulk.global.shared::cta.bulk_group.{operation} [%out], [%s], %n;
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;""",
        given,
        out,
    )
    wanted = MODELS[operation.partition(".")[0]](old, given)
    assert out.tobytes() == wanted.astype(old.dtype).tobytes()


@pytest.mark.parametrize("operation", TO_SHARED)
def test_elements_in_shared_memory_are_combined_and_counted_by_the_mbarrier(operation: str) -> None:
    old, given = operands(operation)
    out = old.copy()
    store = "\n".join(
        f"ld.shared.b64 %v, [to+{n}]; @%p st.global.b64 [%out+{n}], %v;" for n in range(0, given.nbytes, 8)
    )
    launched(
        "k",
        f"""{into("shared", "from", given)}
        {into("shared", "to", given, "%out")}
        .reg .b32 %t; mov.u32 %t, to;
        mbarrier.init.shared.b64 [%bar], 1; mbarrier.arrive.expect_tx.shared.b64 %v, [%bar], %n;
        cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.{operation}
            [%t], [%s], %n, [%bar];
        mbarrier.test_wait.shared.b64 %p, [%bar], %v;
        {store}""",
        given,
        out,
    )
    assert out.tobytes() == MODELS[operation.partition(".")[0]](old, given).astype(old.dtype).tobytes()


@pytest.mark.parametrize("space", ["", ".shared", ".shared::cta"])
def test_an_arrival_of_copies_is_counted_by_an_mbarrier_at_any_address(space: str) -> None:
    at = "%bar" if space else "%g"
    out = np.zeros(2, np.uint32)
    launched(
        "k",
        f"""cvta.shared.u64 %g, %v; mov.u64 %v, done; cvta.shared.u64 %g, %v; .reg .pred %q; .reg .b32 %r<2>;
        mbarrier.init.shared.b64 [%bar], 2; mbarrier.arrive.shared.b64 %v, [%bar];
        mbarrier.test_wait.shared.b64 %p, [%bar], %v;
        cp.async.mbarrier.arrive{space}.b64 [{at}];
        mbarrier.test_wait.shared.b64 %q, [%bar], %v; or.pred %p, %p, %q;
        cp.async.mbarrier.arrive.noinc{space}.b64 [{at}];
        mbarrier.test_wait.shared.b64 %q, [%bar], %v;
        selp.b32 %r0, 1, 0, %p; selp.b32 %r1, 1, 0, %q; st.global.v2.b32 [%out], {{%r0, %r1}};""",
        np.zeros(8, np.uint8),
        out,
    )
    assert out.tolist() == [0, 1]


def test_asynchronous_stores_for_devices_of_others_are_stores_and_sums() -> None:
    given, out = np.array([5, 7], np.uint32), np.array([100, 200], np.uint32)
    launched(
        "k",
        """.reg .b32 %a, %b; ld.global.v2.b32 {%a, %b}, [%in];
        st.async.mmio.release.sys.global.b32 [%out], %a; red.async.mmio.release.sys.global.add.u32 [%out+4], %b;""",
        given,
        out,
    )
    assert out.tolist() == [5, 207]
