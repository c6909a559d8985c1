"""Functions that kernels of tests call from another module."""

FACTOR = 2


def twice(x):
    return x * FACTOR
