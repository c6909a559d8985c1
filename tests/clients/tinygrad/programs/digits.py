"""A small network learns scikit-learn's digits, one jitted step at a time. A program of tinygrad, which knows of
nothing else; it prints its losses, its accuracy and some weights as JSON.

Arguments are devices to share each batch among."""

import json
import sys

import numpy as np
from sklearn.datasets import load_digits
from tinygrad import Tensor, TinyJit, nn

BATCH, STEPS = 64, 120
devices = tuple(sys.argv[1:])

images, labels = load_digits(return_X_y=True)
images, labels = (images / 16).astype(np.float32), labels.astype(np.int32)
test_images, test_labels = images[1500:], labels[1500:]


class Net:
    def __init__(self):
        self.l1, self.l2 = nn.Linear(64, 32), nn.Linear(32, 10)

    def __call__(self, x):
        return self.l2(self.l1(x).relu())


Tensor.manual_seed(11)
order = np.random.default_rng(5)
net = Net()
if devices:
    for weights in nn.state.get_parameters(net):
        weights.shard_(devices)
optimizer = nn.optim.Adam(nn.state.get_parameters(net), lr=0.01)


def given(array):
    return (Tensor(array).shard(devices, axis=0) if devices else Tensor(array)).realize()


@TinyJit
def step(x, y):
    optimizer.zero_grad()
    loss = net(x).sparse_categorical_crossentropy(y).backward()
    return loss.realize(*optimizer.schedule_step())


losses = []
with Tensor.train():
    for _ in range(STEPS):
        chosen = order.integers(0, 1500, BATCH)
        losses.append(step(given(images[chosen]), given(labels[chosen])).item())

guesses = net(given(test_images[:296])).argmax(axis=1).numpy()
accuracy = float((guesses == test_labels[:296]).mean())
print(json.dumps({"losses": losses, "accuracy": accuracy, "weights": net.l2.weight.numpy()[0].tolist()}))
