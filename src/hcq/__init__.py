"""hcq: one contract - device, buffer, program, hardware command queue, signal - over every accelerator."""

__version__ = "0.1.0"
