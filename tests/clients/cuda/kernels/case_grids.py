"""Stencils, matrices, transforms: threads by their place in a grid."""

import numpy as np
from cuda_cases import blocks, case, generator, near, same


@case
def heat_in_two_dimensions(gpu):
    width, height = 70, 45
    field = generator().random((height, width), np.float32)
    a, b = gpu.array(field), gpu.zeros(field.shape, "f4")
    step = gpu.kernel("stencil", "heat_2d")
    for _ in range(4):
        step((blocks(width, 16), blocks(height, 16)), (16, 16), a, b, width, height, 0.2)
        a, b = b, a
        p = np.pad(field, 1, mode="edge")
        field = field + np.float32(0.2) * (p[1:-1, :-2] + p[1:-1, 2:] + p[:-2, 1:-1] + p[2:, 1:-1] - 4 * field)
    near(a.get(), field, 1e-5)


@case
def seven_points_in_three_dimensions(gpu):
    nx, ny, nz = 37, 19, 11
    field = generator().random((nz, ny, nx), np.float32)
    out = gpu.zeros(field.shape, "f4")
    gpu.kernel("stencil", "seven_points")((blocks(nx, 16), blocks(ny, 8)), (16, 8), gpu.array(field), out, nx, ny, nz)
    expected = field.copy()
    c = field[1:-1, 1:-1, 1:-1]
    around = field[1:-1, 1:-1, :-2] + field[1:-1, 1:-1, 2:] + field[1:-1, :-2, 1:-1] + field[1:-1, 2:, 1:-1]
    expected[1:-1, 1:-1, 1:-1] = around + field[:-2, 1:-1, 1:-1] + field[2:, 1:-1, 1:-1] - 6 * c
    near(out.get(), expected, 1e-5, 1e-5)


@case
def products_by_tiles(gpu):
    m, n, k = 50, 39, 45
    for name, dtype, tile in (("float", "f4", 16), ("double", "f8", 8), ("int", "i4", 16)):
        a = (generator(1).random((m, k)) * 100).astype(dtype)
        b = (generator(2).random((k, n)) * 100).astype(dtype)
        c = gpu.zeros((m, n), dtype)
        product = gpu.kernel("matrix", f"product<{name}, {tile}>")
        product((blocks(n, tile), blocks(m, tile)), (tile, tile), gpu.array(a), gpu.array(b), c, m, n, k)
        near(c.get(), a @ b, {"f4": 1e-5, "f8": 1e-13, "i4": 0}[dtype])


@case
def products_in_registers(gpu):
    m, n, k = 64, 96, 40
    a, b = generator(1).random((m, k), np.float32), generator(2).random((k, n), np.float32)
    c = gpu.zeros((m, n), "f4")
    gpu.kernel("matrix", "product_registers")((n // 32, m // 32), 64, gpu.array(a), gpu.array(b), c, n, k)
    near(c.get(), a @ b, 1e-5)


@case
def transposes(gpu):
    rows, columns = 75, 41
    for name, dtype in (("float", "f4"), ("double", "f8"), ("unsigned char", "u1")):
        a = (generator().random((rows, columns)) * 200).astype(dtype)
        out = gpu.zeros((columns, rows), dtype)
        gpu.kernel("matrix", f"transpose<{name}>")((2, 3), (32, 8), gpu.array(a), out, rows, columns)
        same(out.get(), a.T)


@case
def convolution_with_constant_taps(gpu):
    width, height = 50, 33
    image, taps = generator(1).random((height, width), np.float32), generator(2).random((5, 5), np.float32)
    gpu.variable("matrix", "taps", "f4").set(taps)
    out = gpu.zeros(image.shape, "f4")
    gpu.kernel("matrix", "convolve")((4, 5), (16, 8), gpu.array(image), out, width, height)
    padded = np.pad(image, 2)
    expected = sum(padded[y : y + height, x : x + width] * taps[y, x] for y in range(5) for x in range(5))
    near(out.get(), expected, 1e-5)


@case
def shortest_ways_between_all(gpu):
    n = 24
    distance = generator().integers(1, 100, (n, n)).astype("i4")
    np.fill_diagonal(distance, 0)
    out = gpu.array(distance)
    gpu.kernel("matrix", "shortest_ways")(1, 64, out, n)
    for via in range(n):
        distance = np.minimum(distance, distance[:, via : via + 1] + distance[via : via + 1])
    same(out.get(), distance)


@case
def fourier_transforms(gpu):
    for name, dtype, tolerance in (("fft_f32", "c8", 1e-4), ("fft_f64", "c16", 1e-12)):
        for bits in (1, 5, 9):
            n = 1 << bits
            r = generator(bits)
            x = (r.standard_normal((3, n)) + 1j * r.standard_normal((3, n))).astype(dtype)
            there, back = gpu.zeros(x.shape, dtype), gpu.zeros(x.shape, dtype)
            transform = gpu.kernel("fft", name)
            transform(3, n // 2, gpu.array(x), there, bits, 0, shared=n * x.itemsize)
            transform(3, n // 2, there, back, bits, 1, shared=n * x.itemsize)
            near(there.get(), np.fft.fft(x), tolerance, tolerance * n**0.5)
            near(back.get(), x, tolerance, tolerance)


@case
def life(gpu):
    width, height = 37, 21
    field = generator().integers(0, 2, (height, width)).astype("u1")
    a, b = gpu.array(field), gpu.zeros(field.shape, "u1")
    for _ in range(5):
        gpu.kernel("simulate", "life")((5, 6), (8, 4), a, b, width, height)
        a, b = b, a
        around = sum(np.roll(field, (y, x), (0, 1)) for y in (-1, 0, 1) for x in (-1, 0, 1) if x or y)
        field = ((around == 3) | ((around == 2) & (field == 1))).astype("u1")
    same(a.get(), field)


@case
def mandelbrot(gpu):
    width, height, limit = 40, 30, 60
    out = gpu.zeros((height, width), "i4")
    left, top, step = -2.1, -1.2, 0.08
    sizes = (np.float64(left), np.float64(top), np.float64(step))
    gpu.kernel("simulate", "mandelbrot")((5, 8), (8, 4), out, width, height, *sizes, limit)
    cr, ci = np.meshgrid(left + np.arange(width) * step, top + np.arange(height) * step)
    zr, zi, count = np.zeros_like(cr), np.zeros_like(cr), np.zeros(cr.shape, "i4")
    live = np.ones(cr.shape, bool)
    for _ in range(limit):
        rr, ii = zr * zr, zi * zi
        live &= rr + ii <= 4
        zi, zr = np.where(live, 2 * (zr * zi) + ci, zi), np.where(live, rr - ii + cr, zr)
        count += live
    same(out.get(), count)
