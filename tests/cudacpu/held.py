"""A stream that stands at a wait until it is let go, for checks of what goes on meanwhile."""

from __future__ import annotations

import ctypes

from driver import cuda, out

NON_BLOCKING = 1


class Held:
    """with Held() as stream: what is given to the stream waits until the end of the block, which waits for it."""

    def __init__(self, flags: int = NON_BLOCKING) -> None:
        self.stream = out(ctypes.c_void_p, cuda.cuStreamCreate, flags)
        self._word = out(ctypes.c_void_p, cuda.cuMemHostAlloc, ctypes.c_size_t(4), 0)
        ctypes.memset(self._word, 0, 4)

    def __enter__(self) -> ctypes.c_void_p:
        cuda.cuStreamWaitValue32_v2(self.stream, ctypes.c_uint64(self._word.value or 0), 1, 1)
        return self.stream

    def let_go(self) -> None:
        ctypes.c_uint32.from_address(self._word.value or 0).value = 1

    def __exit__(self, *error: object) -> None:
        self.let_go()
        cuda.cuStreamSynchronize(self.stream)
