"""CUDA driver-API programs on the CPU, without a GPU and without a driver. docs/design/cudacpu.md says how."""
