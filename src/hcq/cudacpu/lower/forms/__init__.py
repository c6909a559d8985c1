"""The forms that kernels and functions take: loops over threads, coroutines, regions; and what they need known."""
