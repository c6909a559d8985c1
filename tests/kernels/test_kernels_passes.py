"""The passes over the middle form: what they leave out, and that nothing else changes."""

from __future__ import annotations

import numpy as np
import pytest

import hcq
from hcq.kernels.frontend import translate
from hcq.kernels.frontend.parameters import parameters
from hcq.kernels.passes import simplify
from hcq.kernels.text import parse, print_function
from hcq.kernels.verify import verify


def codes(kernel, **choices):
    return [op.code for op in kernel.ir(**choices).walk()]


@hcq.kernel
def constants(o: hcq.ptr[hcq.f32], n: hcq.i32):
    size = hcq.i32(4) * 8 - 2
    if size > 3:
        o[n + 0 * size] = hcq.f32(0.1) + hcq.f32(0.2)
    else:
        o[0] = hcq.f32(1)
    if n <= n and not (n < n):
        o[size * 1] = 7.0


def test_constants_are_folded_to_the_last_bit_and_their_branches_taken():
    assert "if" not in codes(constants)
    values = [op.attributes["value"] for op in constants.ir().walk() if op.code == "const"]
    assert float(np.float32(0.1) + np.float32(0.2)) in values
    assert 30 in values


@hcq.kernel
def repeated(o: hcq.ptr[hcq.f32], x: hcq.ptr[hcq.f32], n: hcq.i32):
    i = hcq.global_id(0)
    if i * n + 1 < n:
        o[i * n + 1] = x[i * n + 1] + hcq.global_id(0)
    else:
        o[hcq.global_id(0)] = 1
    o[i * n + 2] = 0.0 * x[0] + -0.0


def test_repeated_operations_are_shared_where_they_are_known():
    found = codes(repeated)
    assert found.count("id") == 1
    assert found.count("mul") == 2  # i * n once; 0.0 * x stays: x may be NaN
    assert found.count("load") == 2
    floats = [repr(op.attributes["value"]) for op in repeated.ir().walk() if op.code == "const"]
    assert (floats.count("0.0"), floats.count("-0.0")) == (1, 1)


@hcq.kernel
def unused(o: hcq.ptr[hcq.f32], x: hcq.ptr[hcq.f32], n: hcq.i32):
    spare = hcq.local(hcq.f32, 64)  # noqa: F841
    total, count, last = 0.0, 0, 0.0
    for i in range(n):
        total += x[i]
        count += 1
        last = total * 2  # noqa: F841
    for j in range(n):
        count += j
    if n > 3:
        count = count * 2
    o[0] = total
    k = 0
    while k < n:
        k += 2
    o[1] = 1.0


def test_what_nobody_uses_is_dropped():
    ir = translate(unused.__kernel_function__, parameters(unused.__kernel_function__, {}), {}, {})
    simplify(ir)
    verify(ir)
    found = [op.code for op in ir.walk()]
    assert found.count("for") == 1
    assert found.count("local") == 0
    assert "if" not in [op.code for op in ir.body.ops]
    (loop,) = [op for op in ir.walk() if op.code == "for"]
    assert [each.name for each in loop.results] == ["total"]
    assert found.count("loop") == 1  # whether it ends is the kernel's business


@pytest.mark.parametrize("kernel", [constants, repeated])
def test_a_simplified_kernel_is_simple_already_and_reads_back(kernel):
    before = print_function(kernel.ir())
    again = parse(before)
    simplify(again)
    assert print_function(again) == before
