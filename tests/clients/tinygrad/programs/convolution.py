"""A convolutional block, forward and backward, with pooling and batch normalisation. A program of tinygrad.

Arguments are devices to share the images among."""

import json
import sys

import numpy as np
from tinygrad import Tensor, nn

Tensor.manual_seed(3)
values = np.random.default_rng(2).standard_normal((4, 3, 12, 12)).astype(np.float32)
first, norm, second = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 3, stride=2, groups=2)
for weights in (first.weight, second.weight):
    weights.requires_grad = True
x = Tensor(values, requires_grad=True)
devices = tuple(sys.argv[1:])
if devices:
    x.shard_(devices, axis=0)
    for weights in nn.state.get_state_dict([first, norm, second]).values():
        weights.shard_(devices)
with Tensor.train():
    out = second(norm(first(x)).relu().max_pool2d((2, 2)))
    loss = (out * out).mean()
    loss.backward()
print(
    json.dumps(
        {
            "out": out.flatten().numpy().tolist(),
            "loss": loss.item(),
            "gradient": x.grad.numpy()[0, 0].tolist(),
            "weights": first.weight.grad.flatten().numpy().tolist(),
            "mean": norm.running_mean.numpy().tolist(),
        }
    )
)
