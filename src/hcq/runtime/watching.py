"""The events of the watch point, and who is told of them. Named through `hcq.runtime.watch`, which has what is asked
before: whether anybody watches.

Arguments have been checked before, so that an observer sees only what would have been queued. A capture belongs to a
thread: it is told instead of the observers, and its answer True means that it has recorded the event and nothing is
queued. Observers only look, but may raise: a launch that breaks their rules is not queued then. What does not live
here: what a capture or a check makes of it.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hcq import _native
from hcq.runtime import process, watch

if TYPE_CHECKING:
    from collections.abc import Iterator


class Observer:
    """One method an event; those of this class do nothing. Called in the thread that submits or touches.

    Buffers come as the caller gave them: a Buffer, a handle (an object with `va_addr` and `size`), an address (int), or
    a NumPy array. `groups` and `items` are what the caller gave, (1, 1, 1) for None. The past tense tells of what has
    been queued or has happened; it never answers True.
    """

    def launch(
        self, device: Any, program: Any, bufs: Any, vals: Any, groups: Any, items: Any, stream: Any, wait: bool
    ) -> bool:
        """A program is called (0 groups run nothing, and are not `launched`). True: recorded, nothing is queued."""
        return False

    def launched(
        self, device: Any, program: Any, bufs: Any, vals: Any, groups: Any, items: Any, signal: Any, value: int
    ) -> None:
        """It is queued: it starts once `signal` is at least value - 1, and sets it to `value`."""

    def filled(self, program: Any, bufs: Any, vals: Any, address: int) -> None:
        """Kernargs were filled, for the `exec` of a queue that is still to be submitted."""

    def opened(self, device: Any) -> None:
        """A device was opened."""

    def copy_buffers(self, dest: Any, src: Any, stream: Any) -> bool:
        """hcq.copy was called, for Buffers. Only a capture acts on it: what it leads to is told of as well."""
        return False

    def transfer(self, dest: Any, src: Any, nbytes: int, src_dev: Any, dest_dev: Any, stream: Any) -> bool:
        """allocator.transfer was called, for handles. Only a capture acts on it, as with copy_buffers."""
        return False

    def copy(self, device: Any, dest: int, src: int, nbytes: int, stream: Any) -> bool:
        """A native device queues a copy between addresses of its own. True: recorded, nothing is queued."""
        return False

    def copied(self, device: Any, dest: int, src: int, nbytes: int, signal: Any, value: int) -> None:
        """It is queued, ordered as in `launched`."""

    def submit(self, device: Any, queue: Any) -> bool:
        """A command queue is submitted; `commands(queue)` lists what it holds. True: recorded, nothing is queued.

        Copies that Python queues (between devices, through the staging ring, on drivers in Python) are submits.
        """
        return False

    def submitted(self, device: Any, queue: Any) -> None:
        """It is queued, behind all earlier submits to the same hardware queue."""

    def stream_wait(self, stream: Any, signal: Any, value: int) -> None:
        """What is given to a native stream from now on starts once `signal` is at least `value`."""

    def replayed(self, graph: Any, pairs: Any) -> None:
        """A graph, or the part of one that one kind of device has, is queued.

        `pairs` are (device, signal, value): its work starts once the timelines of all its devices are at value - 1, and
        sets each to `value` once all of it is over. `graph.nodes` are its commands, in an order that respects what they
        depend on, each with `reads` and `writes` as captured; `graph.inputs.moved(span)` says where that is now.
        """

    def host_read(self, buf: Any, offset: int, nbytes: int) -> None:
        """The host is about to read `nbytes` bytes from byte `offset` of a Buffer or handle, which may both be told."""

    def host_write(self, buf: Any, offset: int, nbytes: int) -> None:
        """The host is about to write them."""

    def exported(self, buf: Any) -> None:
        """The host gets at the memory itself (numpy.asarray, DLPack, as_buffer): it reads and writes when it likes."""

    def wait(self, signal: Any, value: int) -> None:
        """A host thread or task is about to wait until `signal` is at least `value`; streams wait so as well."""

    def waited(self, signal: Any, value: int) -> None:
        """It has seen that."""

    def set_signal(self, signal: Any, value: int) -> None:
        """The host is about to set a signal. So is a thread of a driver in Python that carries out a command."""

    def read_signal(self, signal: Any, value: int) -> None:
        """The host read `value` from a native signal; hcq's own looks too."""

    def synchronize(self, device: Any) -> None:
        """The host is about to wait for all work of a device."""

    def synchronized(self, device: Any) -> None:
        """It has finished."""

    def explain(self) -> str:
        """Lines to add to an error about a wait that did not end: who stands where, and where that was asked for."""
        return ""

    def allocated(self, device: Any, handle: Any, size: int, options: Any) -> None:
        """An allocator hands out memory, from its cache or anew. `device` is the allocator's, or None."""

    def freed(self, device: Any, handle: Any) -> None:
        """Memory is given back, and may be handed out again. In finalizers too: must not raise or wait."""


class _Thread(threading.local):
    capture: Observer | None = None
    quiet: int = 0


_thread = _Thread()
_lock = threading.Lock()
_captures = 0


def observe(observer: Observer) -> None:
    """Tell `observer` of the events of all threads from now on."""
    with _lock:
        watch.observers = (*watch.observers, observer)
        _note()


def forget(observer: Observer) -> None:
    """The end of observe."""
    with _lock:
        watch.observers = tuple(known for known in watch.observers if known is not observer)
        _note()


def capturing() -> Observer | None:
    """Who records what this thread does, if anyone."""
    return _thread.capture


def begin_capture(observer: Observer) -> None:
    """Let `observer` take over what this thread submits."""
    global _captures
    if _thread.capture is not None:
        raise RuntimeError("this thread captures already: captures don't nest")
    with _lock:
        _thread.capture = observer
        _captures += 1
        _note()


def end_capture() -> None:
    """The end of begin_capture, in the same thread."""
    global _captures
    with _lock:
        _thread.capture = None
        _captures -= 1
        _note()


@contextmanager
def quiet() -> Iterator[None]:
    """Tell nobody of what this thread does inside: an observer's own work, or what was told of as a whole."""
    _thread.quiet += 1
    try:
        yield
    finally:
        _thread.quiet -= 1


def commands(queue: Any) -> list[tuple[Any, ...]]:
    """What a command queue holds, in order: (method, *arguments), as its methods were given them.

    ("signal", signal, value), ("wait", signal, value), ("timestamp", signal), ("memory_barrier",),
    ("exec", program, kernargs address, groups, items), ("copy", dest, src, nbytes).
    """
    listed = getattr(queue, "_commands", None)
    if listed is not None:
        return list(listed())
    return [(name, *args) for name, args in zip(queue.cmds_meta, queue.cmds_args, strict=True)]


# Events: what native code and the Python bases call


def _told() -> tuple[Observer, ...]:
    if _thread.quiet:
        return ()
    return watch.observers if _thread.capture is None else (_thread.capture,)


def launch(
    device: Any, program: Any, bufs: Any, vals: Any, groups: Any, items: Any, stream: Any = None, wait: bool = False
) -> bool:
    taken = False
    for observer in _told():
        taken |= observer.launch(device, program, tuple(bufs), _values(vals), _size(groups), _size(items), stream, wait)
    return taken


def launched(device: Any, program: Any, bufs: Any, vals: Any, groups: Any, items: Any, signal: Any, value: int) -> None:
    for observer in _told():
        observer.launched(device, program, tuple(bufs), _values(vals), _size(groups), _size(items), signal, value)


def filled(program: Any, bufs: Any, vals: Any, address: int) -> None:
    for observer in _told():
        observer.filled(program, tuple(bufs), vals, address)


def opened(device: Any) -> None:
    for observer in watch.observers:
        observer.opened(device)


def copy_buffers(dest: Any, src: Any, stream: Any) -> bool:
    taken = False
    for observer in _told():
        taken |= observer.copy_buffers(dest, src, stream)
    return taken


def transfer(dest: Any, src: Any, nbytes: int, src_dev: Any, dest_dev: Any, stream: Any) -> bool:
    taken = False
    for observer in _told():
        taken |= observer.transfer(dest, src, nbytes, src_dev, dest_dev, stream)
    return taken


def copy(device: Any, dest: int, src: int, nbytes: int, stream: Any) -> bool:
    taken = False
    for observer in _told():
        taken |= observer.copy(device, dest, src, nbytes, stream)
    return taken


def copied(device: Any, dest: int, src: int, nbytes: int, signal: Any, value: int) -> None:
    for observer in _told():
        observer.copied(device, dest, src, nbytes, signal, value)


def submit(device: Any, queue: Any) -> bool:
    taken = False
    for observer in _told():
        taken |= observer.submit(device, queue)
    return taken


def submitted(device: Any, queue: Any) -> None:
    for observer in _told():
        observer.submitted(device, queue)


def stream_wait(stream: Any, signal: Any, value: int) -> None:
    for observer in _told():
        observer.stream_wait(stream, signal, value)


def replayed(graph: Any, pairs: Any) -> None:
    for observer in _told():
        observer.replayed(graph, pairs)


def host_read(buf: Any, offset: int, nbytes: int) -> None:
    for observer in _told():
        observer.host_read(buf, offset, nbytes)


def host_write(buf: Any, offset: int, nbytes: int) -> None:
    for observer in _told():
        observer.host_write(buf, offset, nbytes)


def exported(buf: Any) -> None:
    for observer in _told():
        observer.exported(buf)


def wait(signal: Any, value: int) -> None:
    for observer in _told():
        observer.wait(signal, value)


def waited(signal: Any, value: int) -> None:
    for observer in _told():
        observer.waited(signal, value)


def set_signal(signal: Any, value: int) -> None:
    for observer in _told():
        observer.set_signal(signal, value)


def read_signal(signal: Any, value: int) -> None:
    for observer in _told():
        observer.read_signal(signal, value)


def synchronize(device: Any) -> None:
    for observer in _told():
        observer.synchronize(device)


def synchronized(device: Any) -> None:
    for observer in _told():
        observer.synchronized(device)


def explained(message: str) -> str:
    """An error's text, with what observers know of those that stand at waits."""
    return "\n".join(filter(None, [message, *(observer.explain() for observer in watch.observers)]))


def allocated(device: Any, handle: Any, size: int, options: Any) -> None:
    for observer in _told():
        observer.allocated(device, handle, size, options)


def freed(device: Any, handle: Any) -> None:
    for observer in _told():
        observer.freed(device, handle)


def _values(given: Any) -> tuple[Any, ...]:
    return () if given is None else tuple(given)


def _size(given: Any) -> tuple[Any, ...]:
    return (1, 1, 1) if given is None else tuple(given)


def _note() -> None:
    watch.active = (watch.CAPTURING if _captures else 0) | (watch.OBSERVED if watch.observers else 0)
    _native.set_watching(watch.active)


def _in_child() -> None:
    # Of the captures only that of the thread that forked goes on.
    global _lock, _captures
    _lock = threading.Lock()
    _captures = int(_thread.capture is not None)
    _note()


process.at_fork_in_child(_in_child)
