"""Commands as tuples, for queues whose hardware is a thread: the first of a word is the name of a method of a worker.

`dev.worker(lane)` gives the worker of a hardware queue; it takes lists of words by `todo.put`. What does not live here:
the workers, which are the drivers'.
"""

from __future__ import annotations

from typing import Any

from hcq.queues.command_queue import HWComputeQueue, HWCopyQueue


class TupleWords:
    """How the commands of both kinds of queue are written."""

    q: list[tuple[Any, ...]]
    lane_name: str

    def _signal(self, signal: Any, value: int) -> None:
        self.q.append(("signal", signal, value))

    def _wait(self, signal: Any, value: int) -> None:
        self.q.append(("wait", signal, value))

    def _timestamp(self, signal: Any) -> None:
        self.q.append(("timestamp", signal))

    def _submit(self, dev: Any) -> bool | None:
        dev.worker(self.lane_name).todo.put(list(self.q))
        return None


class TupleComputeQueue(TupleWords, HWComputeQueue):
    """signal, wait, timestamp, memory_barrier, exec."""

    def _memory_barrier(self) -> None:
        self.q.append(("barrier",))

    def _exec(self, prg: Any, kernargs: int, global_size: Any, local_size: Any) -> None:
        self.q.append(("exec", prg, kernargs, global_size, local_size))


class TupleCopyQueue(TupleWords, HWCopyQueue):
    """signal, wait, timestamp, copy."""

    def _copy(self, dest: int, src: int, nbytes: int) -> None:
        self.q.append(("copy", dest, src, nbytes))
