"""Portable kernels: Python functions compiled from their syntax tree, for every device.

types: numbers, vectors, pointers and promotion. ir: the typed form in the middle; verify checks it, text prints and
reads it. frontend: from Python to ir. lower: from ir to LLVM IR and the C family. launch: what `@hcq.kernel` makes.
What does not live here: kernels people use (hcq.ops), devices (hcq.drivers).
"""
