"""HCQProgram: a loaded function, its kernargs, and launching it through the queues of a Python driver.

What does not live here: checks of a launch (launch), kernargs memory (kernargs), and programs of the CPU devices, which
launch natively.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Self

from hcq.errors import LaunchError
from hcq.queues import launch
from hcq.runtime import watch
from hcq.runtime.later import loaded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hcq.queues.command_queue import HWCommandQueue
    from hcq.queues.device import HCQCompiled
    from hcq.queues.stream import Stream


class HCQProgram:
    """A function on a device with command queues.

    A driver's runtime subclasses this, loads the library in its `__init__`, and calls ours with the sizes it found:
    `kernargs_alloc_size` bytes a launch, of which the arguments begin at `kernargs_args_offset`. Where the library says
    what the function takes, it sets `buffer_count` and `value_types` (keys of launch.VALUE_TYPES): they are checked.
    `accesses` says what a launch does to each buffer ('r', 'w', 'rw', or None where that is not known); graphs and
    checks go by it, and whoever uses the program may assign it.

    Threads may share a program.
    """

    buffer_count: int | None = None
    value_types: Sequence[str] | None = None
    accesses: Sequence[str | None] | None = None
    local_memory_bytes: int = 0
    """Bytes of local memory that a group gets beside what the kernel declares; set by with_local_memory."""
    is_cooperative: bool = False
    """Whether all groups of a launch are there at a time (cooperative)."""

    def __init__(self, device: HCQCompiled, name: str, kernargs_alloc_size: int, kernargs_args_offset: int = 0) -> None:
        self.device = device
        self.name = name
        self.kernargs_alloc_size = kernargs_alloc_size
        self.kernargs_args_offset = kernargs_args_offset

    def fill_kernargs(self, bufs: Sequence[Any], vals: Sequence[Any] = (), kernargs_ptr: int | None = None) -> int:
        """Write the arguments of a launch into kernargs memory and return its address, for HWComputeQueue.exec.

        From `kernargs_args_offset` on: the address of each buffer, 8 bytes each, then the values. Without
        `kernargs_ptr` the memory is the device's own, good for at least the next 16 MiB of filling; else the caller's,
        of `kernargs_alloc_size` bytes that the device reaches. Buffers are not kept alive by this. Raises LaunchError.
        """
        handles, data = self._arguments(bufs, vals)
        with self.device.at_memory():
            if kernargs_ptr is None:
                kernargs_ptr = self.device.kernargs.take(self.kernargs_alloc_size)
            self._write_kernargs(kernargs_ptr, handles, data)
        if watch.active:
            watch.filled(self, bufs, vals, kernargs_ptr)
        return kernargs_ptr

    def __call__(
        self,
        *bufs: Any,
        global_size: Any = launch.ONE,
        local_size: Any = launch.ONE,
        vals: Sequence[Any] = (),
        wait: bool = False,
        stream: Stream | None = None,
    ) -> float | None:
        """Queue a launch and return None; with `wait`, return once it is over, the seconds that it took on the device.

        `global_size` counts work-groups, `local_size` work-items per group; None is (1, 1, 1), 0 groups run nothing.
        `bufs` are Buffers, their `_buf`, or NumPy arrays: those are copied there and back, which makes the launch wait.
        All is checked before anything is queued: LaunchError. Launches of a device run in order, except that those of
        different streams may overlap. Raises DeviceLost on a lost device.
        """
        device = self.device
        device.check_usable()
        groups, items = launch.check_sizes(global_size, local_size, device.limits)
        numpy = loaded("numpy")  # who has an array has imported NumPy
        if numpy is not None and any(isinstance(buf, numpy.ndarray) for buf in bufs):
            return self._with_arrays(numpy, bufs, groups, items, vals, wait, stream)
        handles, data = self._arguments(bufs, vals)
        if watch.active and watch.launch(device, self, bufs, vals, global_size, local_size, stream, wait):
            return None
        if launch.runs_nothing(groups):
            return 0.0 if wait else None
        hosts = device._hosts  # as Compiled.at_memory, without its microsecond
        hosts.append(None)
        try:
            if device.closed:
                device.check_usable()
            kernargs = device.kernargs.take(self.kernargs_alloc_size)
            self._write_kernargs(kernargs, handles, data)
        finally:
            hosts.pop()
        return self._launch(kernargs, groups, items, (bufs, handles), wait, stream, vals)

    def prepare(
        self, *bufs: Any, global_size: Any = launch.ONE, local_size: Any = launch.ONE, vals: Sequence[Any] = ()
    ) -> PreparedLaunch:
        """Check and bind the arguments once: gives a callable that launches with them, and owns them."""
        launch.check_sizes(global_size, local_size, self.device.limits)
        handles, data = self._arguments(bufs, vals)
        return PreparedLaunch(self, bufs, handles, data, (global_size, local_size), tuple(vals))

    def with_local_memory(self, nbytes: int) -> Self:
        """The same kernel as a program whose groups get `nbytes` of local memory beside what the kernel declares, in
        launches of every kind: CUDA's dynamic shared memory. This one stays as it is; 0 is none.

        LaunchError where that is no number of bytes, more than the device has, or the device's kernels declare all of
        their local memory, so that launches give none.
        """
        count = launch.check_local_memory(self.name, nbytes, self._most_local_memory())
        return self if count == self.local_memory_bytes else self._with_local_memory(count)

    def cooperative(self) -> Self:
        """The same kernel as a program whose groups are all there at a time, in launches of every kind, so that they
        may wait for each other. This one stays as it is.

        Launches of it take as many groups as the device runs at a time; more is a LaunchError before anything is
        queued. LaunchError here on devices that launch nothing so.
        """
        return self if self.is_cooperative else self._cooperative()

    def _cooperative(self) -> Self:
        """A driver's own part of cooperative."""
        raise LaunchError(
            f"{self.name}: {self.device.dname} has no cooperative launches: groups don't wait for each other"
        )

    def _most_local_memory(self) -> int:
        return self.device.limits.local_memory_bytes

    def _with_local_memory(self, nbytes: int) -> Self:
        """A driver's own part of with_local_memory; the number was checked."""
        raise LaunchError(
            f"{self.name}: kernels declare all of their local memory on {self.device.dname}, whose launches give none "
            f"beside it: declare the {nbytes} bytes in the kernel"
        )

    def _write_kernargs(self, address: int, handles: Sequence[Any], data: bytes) -> None:
        """Write what a launch needs at `address`, which the host can write. Drivers with more in theirs add it."""
        args = struct.pack(f"<{len(handles)}Q", *(handle.va_addr for handle in handles)) + data
        import ctypes  # opening a device that needs none of it should not wait for it

        ctypes.memmove(address + self.kernargs_args_offset, args, len(args))

    def _arguments(self, bufs: Sequence[Any], vals: Sequence[Any]) -> tuple[list[Any], bytes]:
        launch.check_count("buffers", len(bufs), self.buffer_count)
        launch.check_count("values", len(vals), None if self.value_types is None else len(self.value_types))
        handles = launch.check_buffers(self.device, bufs)
        data = launch.pack_values(vals, self.value_types)
        size = self.kernargs_args_offset + 8 * len(handles) + len(data)
        if size > self.kernargs_alloc_size:
            raise LaunchError(
                f"{self.name} takes {self.kernargs_alloc_size - self.kernargs_args_offset} bytes of arguments: "
                f"{len(handles)} buffers and {len(vals)} values are {size - self.kernargs_args_offset}"
            )
        return handles, data

    def _launch(
        self,
        kernargs: int,
        groups: launch.Dims,
        items: launch.Dims,
        used: Sequence[Any],
        wait: bool,
        stream: Stream | None,
        vals: Sequence[Any],
    ) -> float | None:
        device = self.device
        start, end = (device.signal_t(), device.signal_t()) if wait else (None, None)

        def build(timeline: Any, value: int) -> HWCommandQueue:
            queue: Any = device.hw_compute_queue_t()
            queue.wait(timeline, value - 1).memory_barrier()
            if wait:
                queue.timestamp(start)  # after the waits: what is timed is the kernel
            queue.exec(self, kernargs, groups, items)
            if wait:
                queue.timestamp(end)
            done: HWCommandQueue = queue.signal(timeline, value).keep(used)
            return done

        if watch.active:
            with watch.quiet():  # told of as a launch, and not as the queue that it becomes
                signal, value = order_of(device, stream).enqueue(build)
            watch.launched(device, self, used[0], vals, groups, items, signal, value)
        else:
            signal, value = order_of(device, stream).enqueue(build)
        if not wait:
            return None
        device.wait_for([(signal, value)])
        return float(end.timestamp - start.timestamp) / 1e6  # type: ignore[union-attr]

    def _with_arrays(
        self,
        numpy: Any,
        bufs: Sequence[Any],
        groups: launch.Dims,
        items: launch.Dims,
        vals: Sequence[Any],
        wait: bool,
        stream: Stream | None,
    ) -> float | None:
        from hcq.runtime.buffer import Buffer

        for index, array in enumerate(bufs):
            if isinstance(array, numpy.ndarray) and not (array.flags.c_contiguous and array.size):
                raise LaunchError(f"array {index} is empty or not C-contiguous: pass numpy.ascontiguousarray(a)")
            if isinstance(array, numpy.ndarray) and not array.flags.writeable:
                launch.check_read_only(self.name, index, self.accesses)
            if isinstance(array, numpy.ndarray) and not array.dtype.isnative:
                order = "pass a.astype(a.dtype.newbyteorder('='))"
                raise LaunchError(f"{self.name}: array {index} is big-endian ({array.dtype.str}): {order}")
        device = self.device
        made: dict[tuple[Any, ...], Buffer] = {}  # an array that is passed twice is one buffer
        placed = []
        for index, array in enumerate(bufs):
            if isinstance(array, numpy.ndarray):
                self._check_overlap(numpy, bufs, index)
                key = (array.ctypes.data, array.size, array.dtype)
                if key not in made:
                    made[key] = Buffer(device.dname, array.size, array.dtype).allocate()
                    made[key].copyin(array.reshape(-1).view(numpy.uint8))  # bfloat16 has no buffer protocol
                placed.append(made[key])
            else:
                placed.append(array)
        if stream is not None:
            stream.wait(device)
        took = self(*placed, global_size=groups, local_size=items, vals=vals, wait=True, stream=stream)
        for index, (array, buf) in enumerate(zip(bufs, placed, strict=True)):
            if array is not buf and array.flags.writeable and not self._only_reads(index):
                buf.copyout(array.reshape(-1).view(numpy.uint8))
        return took if wait else None

    def _only_reads(self, index: int) -> bool:
        return self.accesses is not None and index < len(self.accesses) and self.accesses[index] == "r"

    def _check_overlap(self, numpy: Any, bufs: Sequence[Any], index: int) -> None:
        """That array `index` shares no memory with one before it, where either may be written: they are copied."""
        array = bufs[index]
        for earlier, other in enumerate(bufs[:index]):
            if not isinstance(other, numpy.ndarray) or not numpy.may_share_memory(array, other):
                continue
            same = (array.ctypes.data, array.size, array.dtype) == (other.ctypes.data, other.size, other.dtype)
            if not same and not (self._only_reads(index) and self._only_reads(earlier)):
                raise LaunchError(
                    f"{self.name}: arrays {earlier} and {index} overlap, and are copied to {self.device.dname}: "
                    "pass copies, or views of one buffer"
                )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} on {self.device.dname}>"


class PreparedLaunch:
    """A launch whose arguments are checked and written once. Calling it queues the launch; it owns what it was given.

    Threads may share it.
    """

    def __init__(
        self,
        program: HCQProgram,
        bufs: Sequence[Any],
        handles: Sequence[Any],
        data: bytes,
        sizes: tuple[Any, Any],
        vals: tuple[Any, ...],
    ) -> None:
        self.program = program
        self._sizes = launch.check_sizes(*sizes, program.device.limits)
        self._given = bufs, vals, *sizes
        from hcq.queues.kernargs import Block

        # Its own memory: that of the device's pool is handed out again some time.
        with program.device.at_memory():
            self._kernargs = Block(program.device, program.kernargs_alloc_size)
            program._write_kernargs(self._kernargs.va_addr, handles, data)
        self._used = (bufs, handles, self._kernargs)

    def __call__(self, wait: bool = False, stream: Stream | None = None) -> float | None:
        """Queue the launch; the result and the errors are those of calling the program."""
        program = self.program
        program.device.check_usable()
        if watch.active and watch.launch(program.device, program, *self._given, stream, wait):
            return None
        if launch.runs_nothing(self._sizes[0]):
            return 0.0 if wait else None
        return program._launch(self._kernargs.va_addr, *self._sizes, self._used, wait, stream, self._given[1])


def order_of(device: HCQCompiled, stream: Stream | None) -> HCQCompiled | Stream:
    """What work is put in order by: the device's timeline, or one of its streams."""
    if stream is None:
        return device
    if getattr(stream, "device", None) is not device:
        raise LaunchError(f"{stream!r} is no stream of {device.dname}: dev.stream() makes them")
    return stream
