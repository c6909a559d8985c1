"""The C family: C, OpenCL C, CUDA C and Metal, by one writer with a table a dialect."""
