"""hcq.ops.conv2d, beside a convolution by windows in NumPy."""

import numpy as np
import pytest

import hcq
from hcq import ops
from hcq.ops import convolve


def reference(x, w, bias, stride, padding, dilation, groups):
    (sy, sx), (py, px), (dy, dx) = stride, padding, dilation
    x = np.pad(x.astype("f8"), ((0, 0), (0, 0), (py, py), (px, px)))
    kh, kw = w.shape[2:]
    windows = np.lib.stride_tricks.sliding_window_view(x, (dy * (kh - 1) + 1, dx * (kw - 1) + 1), (2, 3))
    windows = windows[:, :, ::sy, ::sx, ::dy, ::dx]
    parts = []
    for g in range(groups):
        inner, outer = w.shape[1], w.shape[0] // groups
        part = windows[:, g * inner : (g + 1) * inner]
        parts.append(np.einsum("ncyxab,ocab->noyx", part, w[g * outer : (g + 1) * outer].astype("f8")))
    y = np.concatenate(parts, 1)
    return y if bias is None else y + bias[:, None, None]


@pytest.fixture(params=["wide", "tiled"])
def form(request, monkeypatch):
    monkeypatch.setattr(convolve, "on_processor", lambda x: request.param == "wide")
    return request.param


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"),
    [
        ((1, 1), (0, 0), (1, 1), 1),
        ((2, 1), (1, 2), (1, 1), 1),
        ((1, 1), (2, 2), (2, 2), 2),
        ((1, 1), (1, 1), (1, 1), 4),
        ((3, 1), (0, 7), (1, 3), 1),
    ],
)
def test_convolutions(form, stride, padding, dilation, groups, biased):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2, 4, 9, 11)).astype("f4")
    w = rng.normal(size=(8, 4 // groups, 3, 3)).astype("f4")
    bias = rng.normal(size=8).astype("f4") if biased else None
    got = ops.conv2d(
        hcq.array(x, "LLVM"),
        hcq.array(w, "LLVM"),
        hcq.array(bias, "LLVM") if biased else None,
        *(stride, padding, dilation, groups),
    ).numpy()
    wanted = reference(x, w, bias, stride, padding, dilation, groups)
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["f2", "f8", "i4"])
def test_panels_and_strips_that_are_not_full(form, dtype):
    """More depth than a panel, more windows than a strip's columns, of rows shorter and longer than those."""
    rng = np.random.default_rng(3)
    for height, width in ((5, 70), (9, 7)):
        x = (rng.normal(size=(1, 20, height, width)) * 3).astype(dtype)
        w = (rng.normal(size=(5, 20, 3, 3)) * 3).astype(dtype)
        got = ops.conv2d(hcq.array(x, "LLVM"), hcq.array(w, "LLVM"), padding=1).numpy()
        wanted = reference(x, w, None, (1, 1), (1, 1), (1, 1), 1)
        np.testing.assert_allclose(
            got, wanted, rtol=1e-2 if dtype == "f2" else 1e-10, atol=0.1 if dtype == "f2" else 1e-8
        )


def test_a_small_one_on_the_strict_device():
    rng = np.random.default_rng(2)
    x, w = rng.normal(size=(1, 1, 4, 4)).astype("f4"), rng.normal(size=(1, 1, 2, 2)).astype("f4")
    got = ops.conv2d(hcq.array(x, "PYTHON"), hcq.array(w, "PYTHON")).numpy()
    np.testing.assert_allclose(got, reference(x, w, None, (1, 1), (0, 0), (1, 1), 1), rtol=1e-5, atol=1e-5)


def test_shapes_that_don_t_fit():
    x = hcq.zeros((1, 4, 5, 5), hcq.f32, "LLVM")
    with pytest.raises(ValueError, match="4 channels in 1 groups"):
        ops.conv2d(x, hcq.zeros((2, 3, 3, 3), hcq.f32, "LLVM"))
    with pytest.raises(ValueError, match="no window"):
        ops.conv2d(x, hcq.zeros((2, 4, 7, 7), hcq.f32, "LLVM"))
