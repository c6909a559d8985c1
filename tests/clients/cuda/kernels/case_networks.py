"""Rows, attention, matrix instructions, copies that run beside the work: what networks are made of."""

import ml_dtypes
import numpy as np
from cuda_cases import blocks, case, generator, near, same
from scipy import special


def softmax(x):
    return special.softmax(x.astype("f8"), axis=-1)


@case
def softmax_in_one_pass(gpu):
    x = (generator().standard_normal((5, 300)) * 4).astype("f4")
    out = gpu.zeros(x.shape, "f4")
    gpu.kernel("rows", "softmax_f32")(5, 128, gpu.array(x), out, 300)
    near(out.get(), softmax(x), 1e-5, 1e-9)
    half, out = x.astype("f2"), gpu.zeros(x.shape, "f2")
    gpu.kernel("rows", "softmax_f16")(5, 64, gpu.array(half), out, 150)
    near(out.get(), softmax(half), 2e-3, 1e-6)


@case
def layer_norms(gpu):
    r = generator()
    x, gain, bias = r.standard_normal((4, 333)) * 3 + 1, r.random(333), r.random(333)
    for dtype, name, tolerance in (("f4", "layer_norm_f32", 1e-4), ("f2", "layer_norm_f16", 4e-3)):
        given = [each.astype(dtype) for each in (x, gain, bias)]
        out = gpu.zeros(x.shape, dtype)
        gpu.kernel("rows", name)(4, 128, *(gpu.array(each) for each in given), out, 333, 1e-5)
        y, g, b = (each.astype("f8") for each in given)
        normal = (y - y.mean(1, keepdims=True)) / np.sqrt(y.var(1, keepdims=True) + 1e-5)
        near(out.get(), normal * g + b, tolerance, tolerance)


@case
def root_mean_square_norm(gpu):
    x, gain = (generator(k).standard_normal(shape).astype(ml_dtypes.bfloat16) for k, shape in ((1, (3, 200)), (2, 200)))
    out = gpu.zeros(x.shape, "u2")
    given = gpu.array(x.view("u2")), gpu.array(gain.view("u2"))
    gpu.kernel("rows", "rms_norm_bf16")(3, 64, *given, out, 200, 1e-6)
    y = x.astype("f8")
    expected = y / np.sqrt((y * y).mean(1, keepdims=True) + 1e-6) * gain.astype("f8")
    near(out.get().view(ml_dtypes.bfloat16).astype("f8"), expected, 2**-7, 1e-6)


@case
def cross_entropy_and_gelu(gpu):
    x, classes = generator().standard_normal((6, 77)).astype("f4"), np.array([0, 5, 76, 33, 12, 1], "i8")
    loss = gpu.zeros(6, "f4")
    gpu.kernel("rows", "cross_entropy")(6, 64, gpu.array(x), gpu.array(classes), loss, 77)
    near(loss.get(), -np.log(softmax(x)[np.arange(6), classes]), 1e-5)
    out = gpu.zeros(x.size, "f4")
    gpu.kernel("rows", "gelu")(4, 128, gpu.array(x.ravel()), out, x.size)
    y = x.ravel().astype("f8")
    near(out.get(), 0.5 * y * (1 + np.tanh(0.7978845608 * (y + 0.044715 * y**3))), 1e-5, 1e-6)


def attention(q, k, v, scale, causal=False):
    scores = q.astype("f8") @ k.astype("f8").swapaxes(-1, -2) * scale
    if causal:
        scores = np.where(np.tril(np.ones(scores.shape[-2:], bool)), scores, -np.inf)
    return softmax(scores) @ v.astype("f8")


@case
def attention_in_tiles(gpu):
    heads, length = 2, 75
    q, k, v = (generator(i).standard_normal((heads, length, 32)).astype("f4") for i in range(3))
    given = [gpu.array(each) for each in (q, k, v)]
    for causal in (False, True):
        out = gpu.zeros(q.shape, "f4")
        kernel = gpu.kernel("attention", "attention_f32")
        kernel((blocks(length, 32), heads), 32, *given, out, length, 32**-0.5, int(causal))
        near(out.get(), attention(q, k, v, 32**-0.5, causal), 1e-4, 1e-5)


@case
def attention_in_half_precision(gpu):
    heads, length = 2, 50
    q, k, v = (generator(i).standard_normal((heads, length, 32)).astype("f2") for i in range(3))
    out = gpu.zeros(q.shape, "f2")
    given = [gpu.array(each) for each in (q, k, v)]
    gpu.kernel("attention", "attention_f16")((blocks(length, 8), heads), 128, *given, out, length, 32**-0.5)
    near(out.get(), attention(q, k, v, 32**-0.5), 1e-2, 5e-3)


@case
def warp_matrices(gpu):
    k = 48
    a, b = generator(1).standard_normal((16, k)).astype("f2"), generator(2).standard_normal((k, 16)).astype("f2")
    expected = a.astype("f8") @ b.astype("f8")
    out = gpu.zeros((16, 16), "f4")
    gpu.kernel("wmma", "warp_matrix")(1, 32, gpu.array(a), gpu.array(b), out, k)
    near(out.get(), 2 * expected, 1e-5, 1e-5)
    out = gpu.zeros((16, 16), "f2")
    gpu.kernel("wmma", "warp_matrix_half")(1, 32, gpu.array(a), gpu.array(np.ascontiguousarray(b.T)), out, k)
    near(out.get(), expected, 5e-3, 5e-2)


@case
def warp_matrices_by_way_of_shared_memory(gpu):
    k = 48
    a, b = generator(1).standard_normal((32, k)).astype("f2"), generator(2).standard_normal((k, 32)).astype("f2")
    bias, out = generator(3).standard_normal(32).astype("f4"), gpu.zeros((32, 32), "f2")
    kernel = gpu.kernel("wmma", "warp_matrix_shared")
    kernel(1, 128, gpu.array(a), gpu.array(b), gpu.array(bias), out, k)
    near(out.get(), np.maximum(a.astype("f8") @ b.astype("f8") + bias, 0), 1e-3, 1e-3)


@case
def matrix_instruction_of_eight(gpu):
    k = 24
    a, b = generator(1).standard_normal((16, k)).astype("f2"), generator(2).standard_normal((8, k)).astype("f2")
    out = gpu.zeros((16, 8), "f4")
    gpu.kernel("tensor", "mma_k8")(1, 32, gpu.array(a), gpu.array(b), out, k)
    near(out.get(), a.astype("f8") @ b.astype("f8").T, 1e-5, 1e-5)


@case(oldest=80)
def matrix_instructions(gpu):
    r = generator()

    def run(name, a, b, expected, out, tolerance):
        given = gpu.array(a), gpu.array(b)
        gpu.kernel("tensor", name)(1, 32, *given, out, *([a.shape[1]] if name == "mma_k16" else []))
        near(out.get(), expected, tolerance, tolerance, name)

    def wide(x):
        return x.astype("f8")

    a, b = r.standard_normal((16, 32)).astype("f2"), r.standard_normal((32, 8)).astype("f2")
    run("mma_k16", a, b, wide(a) @ wide(b), gpu.zeros((16, 8), "f4"), 1e-5)
    a, b = (r.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((16, 16), (8, 16)))
    run("mma_bf16", a.view("u2"), b.view("u2"), wide(a) @ wide(b).T, gpu.zeros((16, 8), "f4"), 1e-5)
    a, b = (r.standard_normal(shape).astype("f4") for shape in ((16, 8), (8, 8)))
    run("mma_tf32", a, b, 1 + tf32(a) @ tf32(b).T, gpu.zeros((16, 8), "f4"), 1e-5)
    a, b = (r.integers(-128, 128, shape).astype("i1") for shape in ((16, 32), (8, 32)))
    run("mma_int8", a, b, a.astype("i4") @ b.astype("i4").T, gpu.zeros((16, 8), "i4"), 0)
    a, b = r.standard_normal((8, 4)), r.standard_normal((8, 4))
    run("mma_f64", a, b, a @ b.T + np.tile([0.5, 0.25], 4), gpu.zeros((8, 8), "f8"), 1e-13)


def tf32(x):
    """Ten bits of fraction, ties away from zero."""
    return ((x.view("u4") + 0x1000) & np.uint32(0xFFFFE000)).view("f4").astype("f8")


@case
def stages_of_a_pipeline(gpu):
    x = generator().random((7, 512), np.float32)
    out = gpu.zeros(x.shape, "f4")
    gpu.kernel("pipeline", "staged")(1, 128, gpu.array(x), out, 7)
    same(out.get(), x + x[:, ::-1])


@case(oldest=80)
def copies_beside_the_work(gpu):
    n = 101
    x = generator().random(n, np.float32)
    out = gpu.zeros(640, "f4")
    given = np.zeros(512, "f4")
    given[:n] = x
    gpu.kernel("pipeline", "by_hand")(1, 128, gpu.array(given), out, n)
    same(out.get(), np.concatenate([given[127::-1], given[::-1]]))


@case(oldest=80)
def barriers_in_memory(gpu):
    x = generator().integers(0, 5, (2, 96)).astype("i4")
    out = gpu.zeros(x.shape, "i4")
    gpu.kernel("barrier", "turns")(2, 96, gpu.array(x), out, 6)
    for _ in range(6):
        x = x + np.roll(x, -1, 1)
    same(out.get(), x)
