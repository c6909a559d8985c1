"""The kernels of the conformance suite."""
