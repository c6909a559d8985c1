"""A chain of matrix products, captured and replayed with other inputs each time. A program of tinygrad."""

import json

import numpy as np
from tinygrad import Tensor, TinyJit

numbers = np.random.default_rng(9)
weights = [Tensor((numbers.standard_normal((24, 24)) / 5).astype(np.float32)).realize() for _ in range(6)]


@TinyJit
def chain(x):
    for w in weights:
        x = (x @ w).relu().contiguous()
    return x.realize()


results = []
for _ in range(6):
    results.append(chain(Tensor(numbers.standard_normal((24, 24)).astype(np.float32)).realize()).numpy().tolist())
print(json.dumps({"results": results}))
