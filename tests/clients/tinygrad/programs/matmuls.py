"""A chain of matrix products, captured and replayed with other inputs each time. A program of tinygrad.

Arguments are devices to share it among: each has columns of one matrix and rows of the next."""

import json
import sys

import numpy as np
from tinygrad import Tensor, TinyJit

numbers = np.random.default_rng(9)
devices = tuple(sys.argv[1:])


def given(array, axis=None):
    tensor = Tensor(array.astype(np.float32))
    return (tensor.shard(devices, axis) if devices else tensor).realize()


weights = [given(numbers.standard_normal((24, 24)) / 5, axis=1 - k % 2) for k in range(6)]


@TinyJit
def chain(x):
    for w in weights:
        x = (x @ w).relu().contiguous()
    return x.realize()


results = []
for _ in range(6):
    results.append(chain(given(numbers.standard_normal((24, 24)))).numpy().tolist())
print(json.dumps({"results": results}))
