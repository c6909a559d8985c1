"""The main job of `hcq demo`: a photograph blurred, its edges found, its brightness equalised, through command queues.

photo       finding, reading and composing pictures
plan        the steps: kernels, buffers, sizes, bytes moved; the same on every device
picture     the kernels, in the kernel language
pipeline    runs the steps on one device through its queues and signals, and times them
memory      how fast this machine's memory is, measured without hcq
reference   the same pictures by SciPy and NumPy, and the comparison

What does not live here: words and tables for people (hcq.cli.demo). Needs the extra `demo`.
"""
