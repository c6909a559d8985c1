"""Triad and block reduction as portable kernels: the same work as kernels.py has in each language by hand."""

from __future__ import annotations

import hcq


@hcq.kernel
def triad(  # type: ignore[no-untyped-def]
    a: hcq.ptr[hcq.f32], b: hcq.ptr[hcq.f32], c: hcq.ptr[hcq.f32], s: hcq.f32
):
    i = hcq.global_id(0)
    a[i] = b[i] + s * c[i]


@hcq.kernel
def reduce(sums: hcq.ptr[hcq.f32], x: hcq.ptr[hcq.f32]):  # type: ignore[no-untyped-def]
    tile = hcq.local(hcq.f32, 256)
    i = hcq.local_id(0)
    tile[i] = x[hcq.global_id(0)]
    hcq.barrier()
    half = 128
    while half > 0:
        if i < half:
            tile[i] += tile[i + half]
        hcq.barrier()
        half >>= 1
    if i == 0:
        sums[hcq.group_id(0)] = tile[0]
