"""mma, wmma, ldmatrix, stmatrix and movmatrix against NumPy, with fragments laid out as the PTX manual's figures do.

The layouts here are written from the figures, one by one; the translation has one rule for all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import pytest
from model import evaluate
from ptx_host import Loaded

from hcq.cudacpu import lower
from hcq.cudacpu.ptx.errors import Unsupported

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
NUMPY = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "f32": np.float32, "f64": np.float64,
    "s8": np.int8, "u8": np.uint8, "s32": np.int32, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip
Place = Callable[[int, int, int], tuple[int, int]]  # (group, thread in group, element) -> row, column


@dataclass(frozen=True)
class Mma:
    """One shape: where the elements of A and B are that a thread has, and how many."""

    shape: tuple[int, int, int]
    a: Place
    b: Place
    count_a: int
    count_b: int


def c_place(g: int, t: int, i: int) -> tuple[int, int]:
    return g + 8 * (i // 2), t * 2 + i % 2


K8_16BIT = Mma(
    (16, 8, 8), lambda g, t, i: (g if i < 2 else g + 8, t * 2 + (i & 1)), lambda g, t, i: (t * 2 + i, g), 4, 2
)
K16_16BIT = Mma(
    (16, 8, 16),
    lambda g, t, i: (g if i in (0, 1, 4, 5) else g + 8, t * 2 + (i & 1) + (0 if i < 4 else 8)),
    lambda g, t, i: (t * 2 + (i & 1) + (0 if i < 2 else 8), g), 8, 4,
)  # fmt: skip
K4_TF32 = Mma((16, 8, 4), lambda g, t, i: (g if i == 0 else g + 8, t), lambda g, t, i: (t, g), 2, 1)
K8_TF32 = Mma(
    (16, 8, 8), lambda g, t, i: (g if i in (0, 2) else g + 8, t if i < 2 else t + 4),
    lambda g, t, i: (t + 4 * i, g), 4, 2,
)  # fmt: skip
M8_F64 = Mma((8, 8, 4), lambda g, t, i: (g, t), lambda g, t, i: (t, g), 1, 1)
K16_F64 = Mma(
    (16, 8, 16), lambda g, t, i: (g if i % 2 == 0 else g + 8, i // 2 * 4 + t), lambda g, t, i: (i * 4 + t, g), 8, 4
)
M8_8BIT = Mma((8, 8, 16), lambda g, t, i: (g, t * 4 + i), lambda g, t, i: (t * 4 + i, g), 4, 4)
K16_8BIT = Mma(
    (16, 8, 16), lambda g, t, i: (g if i < 4 else g + 8, t * 4 + (i & 3)), lambda g, t, i: (t * 4 + i, g), 8, 4
)
K32_8BIT = Mma(
    (16, 8, 32),
    lambda g, t, i: (g if i < 4 or 8 <= i < 12 else g + 8, t * 4 + (i & 3) + (0 if i < 8 else 16)),
    lambda g, t, i: (t * 4 + (i & 3) + (0 if i < 4 else 16), g), 16, 8,
)  # fmt: skip
CASES = [
    (K8_16BIT, "f32.f16.f16.f32"), (K16_16BIT, "f32.f16.f16.f32"), (K16_16BIT, "f16.f16.f16.f16"),
    (K8_16BIT, "f16.f16.f16.f16"), (K8_16BIT, "f32.bf16.bf16.f32"), (K16_16BIT, "f32.bf16.bf16.f32"),
    (K4_TF32, "f32.tf32.tf32.f32"), (K8_TF32, "f32.tf32.tf32.f32"), (M8_F64, "f64.f64.f64.f64"),
    (K16_F64, "f64.f64.f64.f64"), (M8_8BIT, "s32.s8.u8.s32"), (K16_8BIT, "s32.u8.u8.s32"), (K32_8BIT, "s32.s8.s8.s32"),
    (K32_8BIT, "f32.e4m3.e5m2.f32"), (K32_8BIT, "f16.e5m2.e4m3.f16"),
]  # fmt: skip


def values(draw: np.random.Generator, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    """Whole numbers, so that sums are exact whatever their order; a few of them are what only this type has."""
    low, high = {"u8": (0, 256), "s8": (-128, 128), "s32": (-(1 << 20), 1 << 20)}.get(kind, (-8, 9))
    return draw.integers(low, high, shape).astype(NUMPY[kind])


def fragments(matrix: np.ndarray, place: Place, count: int) -> np.ndarray:
    """What the 32 lanes hold: (32, count) elements."""
    return np.array([[matrix[place(n // 4, n % 4, i)] for i in range(count)] for n in range(32)], matrix.dtype)


def gathered(held: np.ndarray, place: Place, shape: tuple[int, int]) -> np.ndarray:
    """The matrix that 32 lanes hold."""
    matrix = np.zeros(shape, held.dtype)
    for n in range(32):
        for i in range(held.shape[1]):
            matrix[place(n // 4, n % 4, i)] = held[n, i]
    return matrix


def names(letter: str, count: int) -> str:
    return "{" + ", ".join(f"%{letter}{n}" for n in range(count)) + "}"


def mma_kernel(name: str, opcode: str, words: int, counts: tuple[int, int, int, int]) -> str:
    """Loads A, B, C of each lane, and stores D. Registers are of `words` bytes for A and B."""
    kind = "f64" if words == 8 else "b32"
    size = 8 if words == 8 else 4
    lines = [f".visible .entry {name}(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd) {{"]
    lines.append(f".reg .{kind} %a<{counts[0]}>, %b<{counts[1]}>, %c<{counts[2]}>, %d<{counts[3]}>;")
    lines.append(".reg .b64 %p<5>; .reg .b32 %lane; mov.u32 %lane, %tid.x;")
    for n, letter in enumerate("abcd"):
        lines.append(f"ld.param.u64 %p{n}, [p{letter}]; mad.wide.u32 %p{n}, %lane, {counts[n] * size}, %p{n};")
    for n, letter in enumerate("abc"):
        lines += [f"ld.global.{kind} %{letter}{k}, [%p{n}+{k * size}];" for k in range(counts[n])]
    d, a, b, c = (names(letter, count) for letter, count in zip("dabc", (counts[3], *counts[:3]), strict=True))
    lines.append(f"{opcode} {d}, {a}, {b}, {c};")
    lines += [f"st.global.{kind} [%p3+{k * size}], %d{k};" for k in range(counts[3])]
    return "\n".join([*lines, "ret; }", ""])


def registers(held: np.ndarray, size: int) -> int:
    return held.shape[1] * held.dtype.itemsize // size


@pytest.fixture(scope="module", params=["threads", "regions"])
def form(request: pytest.FixtureRequest) -> lower.Options:
    """Each form that a kernel with operations of a warp can have (docs/design/cudacpu.md)."""
    return lower.Options(regions=request.param == "regions")


@pytest.fixture(scope="module")
def mma_module(form: lower.Options) -> Loaded:
    text = HEAD
    for n, (shape, types) in enumerate(CASES):
        d, a, b, c = types.split(".")
        size = 8 if a == "f64" else 4
        elements = shape.shape[0] // 4
        counts = (
            shape.count_a * np.dtype(NUMPY[a]).itemsize // size, shape.count_b * np.dtype(NUMPY[b]).itemsize // size,
            elements * np.dtype(NUMPY[c]).itemsize // size, elements * np.dtype(NUMPY[d]).itemsize // size,
        )  # fmt: skip
        name = "m{}n{}k{}".format(*shape.shape)
        text += mma_kernel(f"k{n}", f"mma.sync.aligned.{name}.row.col.{types}", size, counts)
    return Loaded(text, options=form)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0].shape}-{case[1]}")
def test_mma_is_the_product_of_what_the_fragments_hold(mma_module: Loaded, case: tuple[Mma, str]) -> None:
    shape, types = case
    to, kind_a, kind_b, kind_c = types.split(".")
    m, n, k = shape.shape
    draw = np.random.default_rng(3)
    a, b, c = values(draw, kind_a, (m, k)), values(draw, kind_b, (k, n)), values(draw, kind_c, (m, n))
    count = m // 4
    out = np.zeros((32, count), NUMPY[to])
    mma_module.launch(
        f"k{CASES.index(case)}",
        *(np.ascontiguousarray(each) for each in (
            fragments(a, shape.a, shape.count_a), fragments(b, shape.b, shape.count_b), fragments(c, c_place, count)
        )), out, block=(32,),
    )  # fmt: skip
    wide = np.float64 if to.startswith("f") else np.int64
    wanted = (a.astype(wide) @ b.astype(wide) + c.astype(wide)).astype(NUMPY[to])
    np.testing.assert_array_equal(gathered(out, c_place, (m, n)), wanted)


@pytest.fixture(scope="module")
def small_module(form: lower.Options) -> Loaded:
    """Elements of 4 and 1 bits."""
    four = "mma.sync.aligned.m16n8k64.row.col.satfinite.s32.s4.u4.s32"
    one = "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.{}.popc"
    counts = (4, 2, 4, 4)
    bits = (mma_kernel(each, one.format(each), 4, counts) for each in ("xor", "and"))
    return Loaded(HEAD + mma_kernel("four", four, 4, counts) + "".join(bits), options=form)


def small_fragments(matrix: np.ndarray, bits: int, count: int, is_a: bool) -> np.ndarray:
    """Registers of elements of less than a byte: (32, count) words."""
    each = 32 // bits
    out = np.zeros((32, count), np.uint32)
    for lane in range(32):
        for n in range(count):
            line = lane // 4 + (8 * (n % 2) if is_a else 0)
            first = (n // 2 if is_a else n) * 4 * each + lane % 4 * each
            elements = matrix[line, first : first + each] if is_a else matrix[first : first + each, line]
            out[lane, n] = sum((int(x) & ((1 << bits) - 1)) << bits * i for i, x in enumerate(elements))
    return out


def test_mma_of_four_bits_clamps_where_it_is_told_to(small_module: Loaded) -> None:
    draw = np.random.default_rng(8)
    a, b = draw.integers(-8, 8, (16, 64)), draw.integers(0, 16, (64, 8))
    c = draw.integers(-(1 << 20), 1 << 20, (16, 8))
    c[0], c[1] = (1 << 31) - 1, -(1 << 31)
    out = np.zeros((32, 4), np.int32)
    held = np.ascontiguousarray(fragments(c.astype(np.int32), c_place, 4))
    small_module.launch("four", small_fragments(a, 4, 4, True), small_fragments(b, 4, 2, False), held, out, block=(32,))
    wanted = np.clip(a @ b + c, -(1 << 31), (1 << 31) - 1).astype(np.int32)
    np.testing.assert_array_equal(gathered(out, c_place, (16, 8)), wanted)


@pytest.mark.parametrize("combine", ["xor", "and"])
def test_mma_of_bits_counts_those_that_differ_or_that_both_have(small_module: Loaded, combine: str) -> None:
    draw = np.random.default_rng(9)
    a, b, c = draw.integers(0, 2, (16, 256)), draw.integers(0, 2, (256, 8)), draw.integers(-9, 9, (16, 8))
    out = np.zeros((32, 4), np.int32)
    held = np.ascontiguousarray(fragments(c.astype(np.int32), c_place, 4))
    small_module.launch(
        combine, small_fragments(a, 1, 4, True), small_fragments(b, 1, 2, False), held, out, block=(32,)
    )
    both = a @ b if combine == "and" else a @ (1 - b) + (1 - a) @ b
    np.testing.assert_array_equal(gathered(out, c_place, (16, 8)), (both + c).astype(np.int32))


def test_mma_sums_floats_from_k_zero_upwards_by_fused_steps(mma_module: Loaded) -> None:
    case = next(each for each in CASES if each == (K16_16BIT, "f32.f16.f16.f32"))
    draw = np.random.default_rng(10)
    a, b = (draw.normal(size=shape).astype(np.float16) for shape in ((16, 16), (16, 8)))
    c = draw.normal(size=(16, 8)).astype(np.float32)
    out = np.zeros((32, 4), np.float32)
    held = [fragments(a, K16_16BIT.a, 8), fragments(b, K16_16BIT.b, 4), fragments(c, c_place, 4)]
    mma_module.launch(f"k{CASES.index(case)}", *map(np.ascontiguousarray, held), out, block=(32,))
    wanted = np.array([[_fused_sum(a[i], b[:, j], c[i, j]) for j in range(8)] for i in range(16)])
    found = gathered(out, c_place, (16, 8)).view(np.uint32)
    np.testing.assert_array_equal(found, wanted)


def test_each_warp_of_a_block_has_matrices_of_its_own(mma_module: Loaded) -> None:
    case = next(each for each in CASES if each == (K16_16BIT, "f32.f16.f16.f32"))
    draw, warps = np.random.default_rng(13), 3
    a, b = values(draw, "f16", (warps, 16, 16)), values(draw, "f16", (warps, 16, 8))
    c = values(draw, "f32", (warps, 16, 8))
    held = [
        np.concatenate([fragments(each, place, count) for each in matrices])
        for matrices, place, count in ((a, K16_16BIT.a, 8), (b, K16_16BIT.b, 4), (c, c_place, 4))
    ]
    out = np.zeros((32 * warps, 4), np.float32)
    mma_module.launch(f"k{CASES.index(case)}", *map(np.ascontiguousarray, held), out, block=(32 * warps,))
    for n in range(warps):
        wanted = a[n].astype(np.float32) @ b[n].astype(np.float32) + c[n]
        np.testing.assert_array_equal(gathered(out[32 * n : 32 * n + 32], c_place, (16, 8)), wanted)


def test_a_form_is_what_was_asked_for(mma_module: Loaded, matrices_module: Loaded, form: lower.Options) -> None:
    kinds = {each.kind for module in (mma_module, matrices_module) for each in module.kernels.values()}
    assert kinds == {"regions" if form.regions else "threads"}


def test_mma_of_tf32_takes_no_notice_of_the_lower_bits(mma_module: Loaded) -> None:
    case = next(each for each in CASES if each[0] is K8_TF32)
    draw = np.random.default_rng(11)
    a, b, c = values(draw, "f32", (16, 8)), values(draw, "f32", (8, 8)), values(draw, "f32", (16, 8))
    held = [fragments(a, K8_TF32.a, 4), fragments(b, K8_TF32.b, 2), fragments(c, c_place, 4)]
    noisy = [(each.view(np.uint32) | 0x1FFF).view(np.float32) for each in held[:2]]
    outs = [np.zeros((32, 4), np.float32) for _ in range(2)]
    for factors, out in zip((held[:2], noisy), outs, strict=True):
        mma_module.launch(f"k{CASES.index(case)}", *map(np.ascontiguousarray, (*factors, held[2])), out, block=(32,))
    np.testing.assert_array_equal(*outs)


def _fused_sum(row: np.ndarray, column: np.ndarray, start: np.float32) -> int:
    bits = int(start.view(np.uint32))
    for x, y in zip(row.astype(np.float32), column.astype(np.float32), strict=True):
        bits = evaluate("fma.rn.f32", int(x.view(np.uint32)), int(y.view(np.uint32)), bits)
    return bits


WMMA = [
    ("m16n16k16", "f16", "f32", "row", "col", "row"), ("m16n16k16", "f16", "f16", "col", "row", "col"),
    ("m32n8k16", "f16", "f32", "row", "row", "col"), ("m8n32k16", "f16", "f32", "col", "col", "row"),
    ("m16n16k16", "bf16", "f32", "row", "row", "row"), ("m16n16k8", "tf32", "f32", "row", "col", "row"),
    ("m8n8k4", "f64", "f64", "row", "col", "row"), ("m16n16k16", "s8", "s32", "row", "col", "row"),
    ("m32n8k16", "u8", "s32", "col", "row", "row"),
]  # fmt: skip


def wmma_kernel(name: str, case: tuple[str, ...]) -> str:
    shape, kind, total, row_a, row_b, row_c = case
    m, n, k = (int(x) for x in shape.replace("n", " ").replace("k", " ")[1:].split())
    bits = np.dtype(NUMPY[kind]).itemsize * 8
    count_a, count_b = (8, 8) if kind == "f16" else (m * k * bits // 1024, n * k * bits // 1024)
    count_c = m * n // 32 // (2 if total == "f16" else 1)
    if kind == "f64":
        count_a = count_b = 1
    word = "f64" if kind == "f64" else "b32"
    of_sum = {"f16": "b32", "s32": "b32", "f32": "f32", "f64": "f64"}[total]
    types = f"{total}.{total}" if kind == "f16" else f"{total}.{kind}.{kind}.{total}"
    lead = {"a": k if row_a == "row" else m, "b": n if row_b == "row" else k, "c": n if row_c == "row" else m}
    return f""".visible .entry {name}(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd) {{
.reg .{word} %a<{count_a}>, %b<{count_b}>; .reg .{of_sum} %c<{count_c}>, %d<{count_c}>;
.reg .b64 %p<4>; .reg .b32 %s<3>;
ld.param.u64 %p0, [pa]; ld.param.u64 %p1, [pb]; ld.param.u64 %p2, [pc]; ld.param.u64 %p3, [pd];
mov.u32 %s0, {lead["a"] + 16}; mov.u32 %s1, {lead["b"]}; mov.u32 %s2, {lead["c"] + 8};
wmma.load.a.sync.aligned.{row_a}.{shape}.global.{kind} {names("a", count_a)}, [%p0], %s0;
wmma.load.b.sync.aligned.{row_b}.{shape}.global.{kind} {names("b", count_b)}, [%p1], %s1;
wmma.load.c.sync.aligned.{row_c}.{shape}.global.{total} {names("c", count_c)}, [%p2], %s2;
wmma.mma.sync.aligned.{row_a}.{row_b}.{shape}.{types} {names("d", count_c)}, {names("a", count_a)}, \
{names("b", count_b)}, {names("c", count_c)};
wmma.store.d.sync.aligned.{row_c}.{shape}.global.{total} [%p3], {names("d", count_c)}, %s2;
ret; }}
"""


@pytest.fixture(scope="module")
def wmma_module(form: lower.Options) -> Loaded:
    return Loaded(HEAD + "".join(wmma_kernel(f"w{n}", case) for n, case in enumerate(WMMA)), options=form)


@pytest.mark.parametrize("case", WMMA, ids="-".join)
def test_wmma_loads_multiplies_and_stores_matrices_in_memory(wmma_module: Loaded, case: tuple[str, ...]) -> None:
    shape, kind, total, row_a, row_b, row_c = case
    m, n, k = (int(x) for x in shape.replace("n", " ").replace("k", " ")[1:].split())
    draw = np.random.default_rng(4)
    a, b, c = values(draw, kind, (m, k)), values(draw, kind, (k, n)), values(draw, total, (m, n))

    def stored(matrix: np.ndarray, layout: str, pad: int) -> np.ndarray:
        lines = matrix if layout == "row" else matrix.T
        return np.ascontiguousarray(np.pad(lines, ((0, 0), (0, pad))))

    out = stored(np.zeros_like(c), row_c, 8)
    wmma_module.launch(
        f"w{WMMA.index(case)}", stored(a, row_a, 16), stored(b, row_b, 0), stored(c, row_c, 8), out, block=(32,)
    )
    wide = np.float64 if total.startswith("f") else np.int64
    wanted = (a.astype(wide) @ b.astype(wide) + c.astype(wide)).astype(NUMPY[total])
    found = out[:, :-8] if row_c == "row" else out[:, :-8].T
    np.testing.assert_array_equal(found, wanted)
    assert not out[:, -8:].any()


def matrices_kernel() -> str:
    """ldmatrix of four, two and one matrices, also transposed; stmatrix back; movmatrix."""
    text = HEAD
    for count in (1, 2, 4):
        for trans in ("", ".trans"):
            text += f""".visible .entry l{count}{trans[1:]}(.param .u64 given, .param .u64 out) {{
.reg .b64 %p<4>; .reg .b32 %r<4>, %q<9>; .shared .align 16 .b8 tile[1024];
ld.param.u64 %p0, [given]; ld.param.u64 %p1, [out]; mov.u32 %q0, %tid.x; mov.u32 %q1, tile;
mad.wide.u32 %p0, %q0, 16, %p0; mad.lo.u32 %q2, %q0, 16, %q1;
ld.global.v4.b32 {{%q3, %q4, %q5, %q6}}, [%p0]; st.shared.v4.b32 [%q2], {{%q3, %q4, %q5, %q6}};
{"" if count == 4 else f"setp.ge.u32 %lt, %q0, {8 * count}; @%lt mov.u32 %q2, 0x7fffffff;"}
ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {names("r", count)}, [%q2];
mad.wide.u32 %p1, %q0, 16, %p1;
{"".join(f"st.global.b32 [%p1+{4 * n}], %r{n};" for n in range(count))}
add.u32 %q2, %q2, 512;
stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%q2], {names("r", count)};
mad.lo.u32 %q2, %q0, 16, %q1; ld.shared.v4.b32 {{%q3, %q4, %q5, %q6}}, [%q2+512];
st.global.v4.b32 [%p1+512], {{%q3, %q4, %q5, %q6}};
movmatrix.sync.aligned.m8n8.trans.b16 %q3, %r0; st.global.b32 [%p1+1024], %q3;
ret; }}
""".replace(".shared .align", ".reg .pred %lt; .shared .align")
    return text


@pytest.fixture(scope="module")
def matrices_module(form: lower.Options) -> Loaded:
    return Loaded(matrices_kernel(), options=form)


@pytest.mark.parametrize("trans", ["", "trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_stmatrix_and_movmatrix_move_matrices_as_the_figures_say(
    matrices_module: Loaded, count: int, trans: str
) -> None:
    draw = np.random.default_rng(5)
    tile = draw.integers(0, 1 << 16, (4, 8, 8)).astype(np.uint16)
    out = np.zeros((3, 32, 8), np.uint16)
    matrices_module.launch(f"l{count}{trans}", tile, out, block=(32,))
    for n in range(count):
        matrix = tile[n].T if trans else tile[n]
        held = np.array([[matrix[lane // 4, lane % 4 * 2 + i] for i in range(2)] for lane in range(32)])
        np.testing.assert_array_equal(out[0][:, 2 * n : 2 * n + 2], held)
        np.testing.assert_array_equal(out[1].reshape(4, 8, 8)[n], tile[n])
    first = tile[0] if trans else tile[0].T
    held = np.array([[first[lane // 4, lane % 4 * 2 + i] for i in range(2)] for lane in range(32)])
    np.testing.assert_array_equal(out[2][:, :2], held)


@pytest.mark.parametrize(
    "instruction",
    [
        "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%f0}, {%r0}, {%r1}, {%f0}",
        "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0}, {%r0}, {%r1}, {%f0}, %r2, 0",
        "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32 {%f0}, {%r0}, {%r1}, {%f0}",
        "ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r0, %r1}, [%r2]",
        "cvt.rs.f16x2.f32 %r0, %f0, %f0, %r1",
        "cvt.rn.satfinite.ue5m3x2.f32 %h0, %f0, %f0",
        "fma.rn.oob.f16 %h0, %h1, %h1, %h1",
    ],
)
def test_what_is_not_run_is_refused_by_name_with_its_line(instruction: str) -> None:
    body = ".reg .f32 %f<2>; .reg .b32 %r<4>; .reg .b16 %h<3>;"
    with pytest.raises(Unsupported) as caught:
        Loaded(f"{HEAD}.visible .entry k() {{\n{body}\n{instruction};\nret; }}\n")
    assert caught.value.line == 6
    assert instruction.split(" ")[0] in str(caught.value)
