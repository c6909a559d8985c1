"""One of each kind of operation of hcq.ops, for tests of what becomes of them."""

import numpy as np

import hcq
from hcq import ops

RNG = np.random.default_rng(5)


def decay(a, b):
    return hcq.exp(-a) + b


def all_of_them(x, y, w, index, stream=None):
    """One of each kind of operation, one after the other, each on what came before."""
    z = ops.map(decay, x, y, stream=stream)
    z = ops.softmax(z, stream=stream)
    z = ops.layer_norm(z, stream=stream)
    z = ops.matmul(z, w, stream=stream)
    z = ops.cumsum(z, axis=1, stream=stream)
    z = ops.gather(z, index, stream=stream)
    z = ops.transpose(z, stream=stream)
    return (
        z,
        ops.sum(z, stream=stream),
        ops.argmax(z, axis=0, stream=stream),
        ops.sort(ops.reshape(z, -1), stream=stream),
    )


def arrays(device):
    x, y = RNG.random((40, 70), dtype="f4"), RNG.random(70, dtype="f4")
    w, index = RNG.random((70, 90), dtype="f4"), RNG.integers(-40, 40, 50).astype("i4")
    return [hcq.array(each, device) for each in (x, y, w, index)]
