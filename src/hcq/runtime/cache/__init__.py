"""The compile cache, cut by concern: keys, the memory store, the file store, and the cache over both.

Users see it as `hcq.cache`, compilers through `Compiler.compile_cached`.
"""
