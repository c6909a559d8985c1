"""Awaiting native signals: one eventfd per event loop, written by whoever sets a signal that a task waits for.

What does not live here: the list of entries, which is native (the command processor looks at it when a signal changes).
"""

from __future__ import annotations

import itertools
import os
import weakref
from typing import TYPE_CHECKING, Any

from hcq import _native
from hcq.queues import faults

if TYPE_CHECKING:  # else imported by whoever runs an event loop: it takes as long as all the rest of hcq
    import asyncio

_tokens = itertools.count(1)


class _Loop:
    """What an event loop needs to hear of native signals."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # Futures hold their loop, and the finalizer must not: the tasks hold the futures.
        self.futures: weakref.WeakValueDictionary[int, asyncio.Future[None]] = weakref.WeakValueDictionary()
        self.tokens: set[int] = set()
        loop.add_reader(self.descriptor, self._ready)
        weakref.finalize(loop, _close, self.descriptor, self.tokens)

    def _ready(self) -> None:
        try:
            os.eventfd_read(self.descriptor)
        except BlockingIOError:
            return
        for token in _native.async_take(self.descriptor):
            self.tokens.discard(token)
            future = self.futures.pop(token, None)
            if future is not None and not future.done():
                future.set_result(None)


def _close(descriptor: int, tokens: set[int]) -> None:
    # A loop that goes with tasks unfinished: nothing may write to its descriptor any more.
    for token in tokens:
        _native.async_cancel(descriptor, token)
    os.close(descriptor)


_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Loop] = weakref.WeakKeyDictionary()

_REACHED, _PENDING = 0, 1


async def reached(signal: Any, value: int) -> None:
    """Return once `signal` is at least `value`; raise DeviceLost where that value will never come."""
    state = _native.signal_state(signal, value)
    if state == _PENDING:
        import asyncio

        loop = asyncio.get_running_loop()
        known = _loops.get(loop)
        if known is None:
            known = _loops[loop] = _Loop(loop)
        token = next(_tokens)
        future = known.futures[token] = loop.create_future()
        known.tokens.add(token)
        try:
            _native.async_register(signal, value, known.descriptor, token)
            await future
        finally:
            known.futures.pop(token, None)
            if token in known.tokens:
                known.tokens.discard(token)
                _native.async_cancel(known.descriptor, token)
        state = _native.signal_state(signal, value)
    if state not in (_REACHED, _PENDING):
        faults.raise_fault(_native.signal_error(signal))
