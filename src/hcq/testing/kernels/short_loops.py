"""The suite's `spin` for implementations that end a kernel's loops after some 65,000 rounds, as lavapipe does.

What does not live here: the other kernels (portable).
"""

from __future__ import annotations

import hcq


@hcq.kernel
def _step(x: hcq.i64):
    return (x | 1 << 60) // (x & 15 | 3)


@hcq.kernel
def _eight(x: hcq.i64):
    return _step(_step(_step(_step(_step(_step(_step(_step(x))))))))


@hcq.kernel
def _many(x: hcq.i64):
    return _eight(_eight(_eight(_eight(_eight(_eight(_eight(_eight(x))))))))


@hcq.kernel
def spin(out: hcq.ptr[hcq.i32], n: hcq.i32, cost: hcq.constexpr):
    """`cost`: nanoseconds that a round takes, 256 divisions that each depend on the one before."""
    x = hcq.i64(n) | 1
    for _ in range(n // cost):
        x = _many(_many(_many(_many(x))))
    out[0] = n if x != 0 else 0  # which it never is
