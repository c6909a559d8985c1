"""Checks of the driver on the CPU: streams, events, host functions, errors that stay. Run by inside.py."""

import ctypes
import os
import threading
import time
from pathlib import Path

import numpy as np
from driver import HEAD, cuda, kernel, launch, out, refused
from held import NON_BLOCKING, Held

U64 = ctypes.c_uint64
SIZE = ctypes.c_size_t
PER_THREAD = ctypes.c_void_p(2)
HOST = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
TRAP = HEAD + ".visible .entry k() { trap; ret; }"


def stream(flags=0):
    return out(ctypes.c_void_p, cuda.cuStreamCreate, flags)


def event(flags=0):
    return out(ctypes.c_void_p, cuda.cuEventCreate, flags)


def words(count=4):
    at = out(ctypes.c_void_p, cuda.cuMemHostAlloc, SIZE(4 * count), 0)
    array = np.ctypeslib.as_array((ctypes.c_uint32 * count).from_address(at.value))
    array[:] = 0
    return array


def fill(array, value, on):
    cuda.cuMemsetD32Async(U64(array.ctypes.data), value, SIZE(array.size), on)


def names():
    """Of this process's threads."""
    return [task.read_text().strip() for task in Path("/proc/self/task").glob("*/comm")]


def check_a_stream_runs_in_order():
    array, on = words(), stream()
    for value in range(1, 200):
        fill(array, value, on)
    cuda.cuStreamSynchronize(on)
    assert (array == 199).all()


def check_streams_do_not_wait_for_each_other():
    array = words()
    with Held() as held:
        fill(array[:1], 1, held)
        other = stream(NON_BLOCKING)
        fill(array[1:], 2, other)
        cuda.cuStreamSynchronize(other)
        assert array.tolist() == [0, 2, 2, 2]
        assert refused(cuda.cuStreamQuery, held).name == "CUDA_ERROR_NOT_READY"
    cuda.cuStreamQuery(held)
    assert array[0] == 1


def check_the_legacy_stream_waits_for_blocking_ones_and_they_for_it():
    array = words()
    with Held(0) as held:  # a blocking stream
        fill(array[:1], 1, held)
        fill(array[1:2], 2, None)
        blocking, free = stream(0), stream(NON_BLOCKING)
        fill(array[2:3], 3, blocking)
        fill(array[3:], 4, free)
        cuda.cuStreamSynchronize(free)
        for waiting in (None, blocking):
            assert refused(cuda.cuStreamQuery, waiting).name == "CUDA_ERROR_NOT_READY"
        assert array.tolist() == [0, 0, 0, 4]
    cuda.cuStreamSynchronize(blocking)
    assert array.tolist() == [1, 2, 3, 4]


def check_each_thread_has_a_default_stream_of_its_own():
    ids = []

    def ask():
        context = out(ctypes.c_void_p, cuda.cuDevicePrimaryCtxRetain, 0)
        cuda.cuCtxSetCurrent(context)
        ids.append(out(U64, lambda at: cuda.cuStreamGetId(PER_THREAD, at)).value)
        ids.append(out(U64, lambda at: cuda.cuStreamGetId_ptsz(None, at)).value)
        ids.append(out(U64, lambda at: cuda.cuStreamGetId(None, at)).value)
        cuda.cuDevicePrimaryCtxRelease_v2(0)

    ask()
    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    mine, mine_again, legacy, other, other_again, legacy_again = ids
    assert mine == mine_again and other == other_again and legacy == legacy_again
    assert len({mine, other, legacy}) == 3


def check_an_event_joins_streams():
    array, done = words(), event()
    with Held() as held:
        fill(array[:1], 1, held)
        cuda.cuEventRecord(done, held)
        other = stream(NON_BLOCKING)
        cuda.cuStreamWaitEvent(other, done, 0)
        cuda.cuMemcpyAsync(U64(array[1:].ctypes.data), U64(array.ctypes.data), SIZE(4), other)
        for waiting in (lambda: cuda.cuStreamQuery(other), lambda: cuda.cuEventQuery(done)):
            assert refused(waiting).name == "CUDA_ERROR_NOT_READY"
    cuda.cuStreamSynchronize(other)
    cuda.cuEventQuery(done)
    assert array.tolist() == [1, 1, 0, 0]


def check_a_wait_is_for_the_record_that_there_was():
    done, other = event(), stream(NON_BLOCKING)
    cuda.cuStreamWaitEvent(other, done, 0)  # never recorded: nothing to wait for
    cuda.cuStreamSynchronize(other)
    cuda.cuEventRecord(done, other)
    with Held() as held:
        cuda.cuStreamWaitEvent(other, done, 0)
        cuda.cuEventRecord(done, held)
        cuda.cuStreamSynchronize(other)  # not for the second record
        assert refused(cuda.cuEventQuery, done).name == "CUDA_ERROR_NOT_READY"
    cuda.cuEventSynchronize(done)


def check_an_event_that_is_gone_still_ends_waits_for_it():
    array, done, other = words(), event(), stream(NON_BLOCKING)
    with Held() as held:
        cuda.cuEventRecord(done, held)
        cuda.cuStreamWaitEvent(other, done, 0)
        fill(array, 3, other)
        cuda.cuEventDestroy_v2(done)
        assert refused(cuda.cuEventQuery, done).name == "CUDA_ERROR_INVALID_HANDLE"
    cuda.cuStreamSynchronize(other)
    assert (array == 3).all()


def check_time_between_events():
    first, last, untimed = event(), event(), event(2)
    elapsed = ctypes.c_float(-1)
    at = ctypes.byref(elapsed)
    assert refused(cuda.cuEventElapsedTime_v2, at, first, last).name == "CUDA_ERROR_INVALID_HANDLE"
    cuda.cuEventRecord(first, None)
    with Held() as held:
        cuda.cuEventRecord(last, held)
        cuda.cuEventRecord(untimed, held)
        assert refused(cuda.cuEventElapsedTime_v2, at, first, last).name == "CUDA_ERROR_NOT_READY"
    cuda.cuEventElapsedTime_v2(at, first, last)
    assert elapsed.value > 0
    assert refused(cuda.cuEventElapsedTime_v2, at, first, untimed).name == "CUDA_ERROR_INVALID_HANDLE"


def check_host_functions_are_called_in_order_and_may_not_call_back():
    seen, array = [], words()

    @HOST
    def note(data):
        for call in (
            lambda: cuda.cuStreamSynchronize(None),
            lambda: cuda.cuMemsetD8_v2(U64(array.ctypes.data), 0, SIZE(4)),
        ):
            assert refused(call).name == "CUDA_ERROR_NOT_PERMITTED"
        seen.append((data, int(array[0])))

    on = stream()
    for value in (1, 2, 3):
        fill(array, value, on)
        cuda.cuLaunchHostFunc(on, note, ctypes.c_void_p(value))
    cuda.cuStreamSynchronize(on)
    assert seen == [(value, value) for value in (1, 2, 3)]
    with Held() as held:  # a thread of the library comes to it, not this one
        cuda.cuLaunchHostFunc(held, note, ctypes.c_void_p(4))
    assert seen[3:] == [(4, 3)]


def check_a_destroyed_stream_does_what_it_was_given():
    array, done = words(), threading.Event()
    note = HOST(lambda data: done.set())
    held = Held()
    with held as on:
        fill(array, 8, on)
        cuda.cuLaunchHostFunc(on, note, None)
        cuda.cuStreamDestroy_v2(on)
        assert refused(cuda.cuStreamQuery, on).name == "CUDA_ERROR_INVALID_HANDLE"
        held.let_go()
        assert done.wait(60)
        held.stream = None
    assert (array == 8).all()


def check_many_streams_at_once():
    array = words(64)
    streams = [stream(NON_BLOCKING) for _ in range(64)]
    with Held() as held:
        go = event()
        cuda.cuEventRecord(go, held)
        for place, on in enumerate(streams):
            cuda.cuStreamWaitEvent(on, go, 0)
            for value in range(1, 6):
                fill(array[place : place + 1], value, on)
    cuda.cuCtxSynchronize()
    assert (array == 5).all()


def check_what_blocks_in_one_stream_holds_up_no_other():
    entered, leave = threading.Event(), threading.Event()

    @HOST
    def block(data):
        entered.set()
        leave.wait(60)

    array, blocked, free = words(), [stream(NON_BLOCKING) for _ in range(3)], stream(NON_BLOCKING)
    try:
        for on in blocked:
            cuda.cuLaunchHostFunc(on, block, None)
        assert entered.wait(60)
        with Held() as held:
            fill(array[:1], 1, held)
        fill(array[1:], 2, free)
        cuda.cuStreamSynchronize(free)
        assert array.tolist() == [1, 2, 2, 2]
    finally:
        leave.set()
        cuda.cuCtxSynchronize()


def check_flags_priorities_and_contexts_are_told():
    on = out(ctypes.c_void_p, cuda.cuStreamCreateWithPriority, 1, -2)
    flags, priority = ctypes.c_uint(), ctypes.c_int()
    cuda.cuStreamGetFlags(on, ctypes.byref(flags))
    cuda.cuStreamGetPriority(on, ctypes.byref(priority))
    assert (flags.value, priority.value) == (1, -2)
    beyond = out(ctypes.c_void_p, cuda.cuStreamCreateWithPriority, 0, -100)
    cuda.cuStreamGetPriority(beyond, ctypes.byref(priority))
    assert priority.value == -5
    value = (U64 * 8)()
    cuda.cuStreamGetAttribute(on, 8, value)
    assert ctypes.c_int.from_buffer(value).value == -2
    current = out(ctypes.c_void_p, cuda.cuCtxGetCurrent)
    context = ctypes.c_void_p()
    cuda.cuStreamGetCtx(on, ctypes.byref(context))
    assert context.value == current.value


def check_an_error_stays_until_the_context_is_reset():
    on, told = stream(), []
    note = CALLBACK(lambda where, status, data: told.append(status))
    trap = kernel(TRAP)
    launch(trap, 1, 1)
    error = refused(cuda.cuCtxSynchronize).name
    assert error == "CUDA_ERROR_LAUNCH_FAILED"
    for call in (
        lambda: out(U64, cuda.cuMemAlloc_v2, SIZE(4)),
        lambda: cuda.cuStreamSynchronize(on),
        lambda: cuda.cuStreamAddCallback(on, note, None, 0),
        lambda: launch(trap, 1, 1),
    ):
        assert refused(call).name == error
    cuda.cuDevicePrimaryCtxReset_v2(0)
    cuda.cuMemFree_v2(out(U64, cuda.cuMemAlloc_v2, SIZE(4)))
    cuda.cuCtxSynchronize()


def check_what_is_queued_behind_an_error_is_not_run():
    array, told = words(), []
    note = CALLBACK(lambda where, status, data: told.append(status))
    done = event()
    trap = kernel(TRAP)
    with_hold = Held()
    on = with_hold.__enter__()
    values = (ctypes.c_void_p * 1)()
    cuda.cuLaunchKernel(trap, 1, 1, 1, 1, 1, 1, 0, on, values, None)
    fill(array, 9, on)
    cuda.cuStreamAddCallback(on, note, None, 0)
    cuda.cuEventRecord(done, on)
    with_hold.let_go()
    assert refused(cuda.cuStreamSynchronize, on).name == "CUDA_ERROR_LAUNCH_FAILED"
    assert refused(cuda.cuEventSynchronize, done).name == "CUDA_ERROR_LAUNCH_FAILED"
    assert told == [719] and (array == 0).all()


def check_streams_and_events_end_with_their_context():
    made = out(ctypes.c_void_p, cuda.cuCtxCreate_v2, 0, 0)
    on, done = stream(), event()
    cuda.cuCtxDestroy_v2(made)
    assert refused(cuda.cuStreamSynchronize, on).name in ("CUDA_ERROR_INVALID_HANDLE", "CUDA_ERROR_INVALID_CONTEXT")
    cuda.cuCtxSetCurrent(out(ctypes.c_void_p, cuda.cuDevicePrimaryCtxRetain, 0))
    assert refused(cuda.cuStreamSynchronize, on).name == "CUDA_ERROR_INVALID_HANDLE"
    assert refused(cuda.cuEventQuery, done).name == "CUDA_ERROR_INVALID_HANDLE"


def check_a_forked_child_is_told_that_nothing_is_initialized():
    on = stream()
    fill(words(), 1, on)
    pid = os.fork()
    if pid == 0:
        right = cuda.raw.cuStreamSynchronize(on) == 3 and cuda.raw.cuInit(0) == 3
        os._exit(0 if right else 1)
    assert os.waitpid(pid, 0)[1] == 0
    cuda.cuStreamSynchronize(on)


def check_threads_that_have_nothing_to_do_end():
    streams = [Held() for _ in range(20)]
    entered = threading.Barrier(len(streams) + 1)

    @HOST
    def meet(data):
        entered.wait(60)

    for held in streams:  # each blocks a thread until all have come
        cuda.cuLaunchHostFunc(held.stream, meet, None)
    entered.wait(60)
    cuda.cuCtxSynchronize()
    end = time.monotonic() + 60
    while names().count("cuda-stream") > 2 and time.monotonic() < end:
        time.sleep(0.1)
    assert names().count("cuda-stream") <= 2


def check_the_end_of_a_context_ends_no_other_streams():
    current = out(ctypes.c_void_p, cuda.cuCtxGetCurrent)
    made = out(ctypes.c_void_p, cuda.cuCtxCreate_v2, 0, 0)
    busy = Held().__enter__()
    cuda.cuStreamDestroy_v2(busy)  # it still has work, and its handle may be given to others
    cuda.cuCtxPushCurrent_v2(current)
    for on in [stream() for _ in range(100)]:
        cuda.cuStreamDestroy_v2(on)
    mine = [stream() for _ in range(200)]
    cuda.cuCtxDestroy_v2(made)
    for on in mine:
        cuda.cuStreamSynchronize(on)
