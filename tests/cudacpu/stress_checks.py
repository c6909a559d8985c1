"""The driver on the CPU under threads, and what it keeps over many rounds. Run by test_stress.py.

ROUNDS is how often each thing is done.
"""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from pathlib import Path

import numpy as np
from driver import HEAD, cuda, function, kernel, launch, load, out
from graphs import (
    HOST_FUNCTION,
    RELAXED,
    STEP,
    Arguments,
    Pointer,
    at,
    captured,
    device_words,
    event,
    instantiate,
    nodes,
    run,
    step,
    stream,
    wait,
    words,
    write,
)

ROUNDS = int(os.environ.get("STRESS_ROUNDS", "200"))


def resident() -> int:
    """Bytes of memory that the process uses."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def count(folder: str) -> int:
    return len(os.listdir(f"/proc/self/{folder}"))


def device_memory() -> int:
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    return total.value - free.value


def keeps_nothing(body, rounds: int, slack: int = 16 << 20) -> None:
    """Fails where memory, threads, files or device memory grow with the rounds of `body`."""
    for _ in range(max(rounds // 10, 20)):  # what is made at first use
        body()
    gc.collect()
    before = resident(), count("task"), count("fd"), device_memory()
    for _ in range(rounds):
        body()
    gc.collect()
    after = resident(), count("task"), count("fd"), device_memory()
    grown = [b - a for a, b in zip(before, after, strict=True)]
    assert grown[0] < slack + rounds * 64, f"{grown[0]} bytes more after {rounds} rounds"
    assert grown[1] <= 8 and grown[2] == 0 and grown[3] <= 0, f"threads, files and device memory: {grown[1:]}"


def in_threads(*bodies) -> None:
    """Runs all at once, each with the context; fails with the first failure."""
    failures = []
    start = threading.Barrier(len(bodies))

    def guarded(body):
        context = out(Pointer, cuda.cuDevicePrimaryCtxRetain, 0)
        cuda.cuCtxSetCurrent(context)
        try:
            start.wait(30)
            body()
        except BaseException as error:
            failures.append(error)
        finally:
            cuda.cuDevicePrimaryCtxRelease_v2(0)

    threads = [threading.Thread(target=guarded, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100 + ROUNDS / 10)
        assert not thread.is_alive(), "a thread stands"
    if failures:
        raise failures[0]


def check_modules_are_loaded_run_and_unloaded():
    memory = device_words()

    def body():
        module = load(HEAD + STEP)
        launch(function(module, "k"), 1, 1, memory, 1, 1)
        cuda.cuCtxSynchronize()
        cuda.cuModuleUnload(module)

    keeps_nothing(body, ROUNDS)
    assert memory[0] == ROUNDS + max(ROUNDS // 10, 20)


def is_open() -> bool:
    flags, active = ctypes.c_uint(), ctypes.c_int()
    cuda.cuDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(active))
    return active.value == 1


def check_devices_are_opened_and_closed():
    while is_open():  # the checks before had it open too, and the last user closes it
        cuda.cuDevicePrimaryCtxRelease_v2(0)

    def body():
        context = out(Pointer, cuda.cuDevicePrimaryCtxRetain, 0)
        cuda.cuCtxSetCurrent(context)
        on, memory = stream(), device_words()
        step(kernel(STEP), on, memory, 1, 1)
        cuda.cuStreamSynchronize(on)
        assert memory[0] == 1
        cuda.cuDevicePrimaryCtxRelease_v2(0)

    def measured():
        body()
        assert not is_open()
        cuda.cuCtxSetCurrent(out(Pointer, cuda.cuDevicePrimaryCtxRetain, 0))  # device_memory() asks in one

    def between():
        cuda.cuDevicePrimaryCtxRelease_v2(0)
        measured()

    measured()
    keeps_nothing(between, ROUNDS)


def check_graphs_are_captured_launched_updated_and_destroyed():
    made, memory, on = kernel(STEP), device_words(), stream()
    called = []
    hook = HOST_FUNCTION(lambda data: called.append(data))

    def body():
        with captured(on) as graph:
            step(made, on, memory, 0, 1)
            cuda.cuMemsetD32Async(at(memory, 1), ctypes.c_uint(3), ctypes.c_size_t(2), on)
            cuda.cuLaunchHostFunc(on, hook, Pointer(1))
        executable = instantiate(graph)
        other = Arguments(made, memory, 0, 2)
        cuda.cuGraphExecKernelNodeSetParams_v2(executable, Pointer(nodes(graph)[0]), ctypes.byref(other.params))
        run(executable, on)
        cuda.cuGraphDestroy(out(Pointer, cuda.cuGraphClone, graph))
        cuda.cuGraphExecDestroy(executable)
        cuda.cuGraphDestroy(graph)
        called.clear()

    keeps_nothing(body, ROUNDS)
    assert memory[:3].tolist() == [2, 3, 3]


def check_streams_events_and_memory_come_and_go():
    def body():
        on, mark = stream(), event()
        address = out(ctypes.c_uint64, cuda.cuMemAlloc_v2, ctypes.c_size_t(4096))
        cuda.cuMemsetD8Async(address, ctypes.c_ubyte(1), ctypes.c_size_t(4096), on)
        cuda.cuEventRecord(mark, on)
        cuda.cuEventSynchronize(mark)
        cuda.cuMemFree_v2(address)
        cuda.cuEventDestroy_v2(mark)
        cuda.cuStreamDestroy_v2(on)

    keeps_nothing(body, ROUNDS)


def check_captures_and_replays_beside_ordinary_work():
    made = kernel(STEP)
    rounds = max(ROUNDS // 4, 20)

    def ordinary():
        on, memory = stream(), words()
        for i in range(rounds * 4):
            step(made, on, memory, 1, 1)
            if i % 16 == 0:
                cuda.cuStreamSynchronize(on)
        cuda.cuStreamSynchronize(on)
        assert memory[0] == rounds * 4

    def captures():
        on, other, memory = stream(), stream(), words()
        forked, joined = event(), event()
        for i in range(rounds):
            with captured(on, RELAXED) as graph:
                step(made, on, memory, 0, i)
                cuda.cuEventRecord(forked, on)
                cuda.cuStreamWaitEvent(other, forked, 0)
                step(made, other, memory, 0, i + 1, index=1)
                step(made, on, memory, 2, 1)
                cuda.cuEventRecord(joined, other)
                cuda.cuStreamWaitEvent(on, joined, 0)
                write(on, memory, 2, i)
            executable = instantiate(graph)
            cuda.cuGraphLaunch(executable, on)
            cuda.cuGraphExecDestroy(executable)
            cuda.cuGraphDestroy(graph)
            cuda.cuStreamSynchronize(on)
            assert memory[:3].tolist() == [2 * i + 1, i + 1, i]

    def replays():
        on, memory = stream(), words()
        with captured(on, RELAXED) as graph:
            for _ in range(5):
                step(made, on, memory, 1, 1)
        executable = instantiate(graph)
        for _ in range(rounds):
            cuda.cuGraphLaunch(executable, on)
        cuda.cuStreamSynchronize(on)
        assert memory[0] == 5 * rounds

    def ping_pong():
        one, two, memory, at_least = stream(), stream(), words(), 0
        for i in range(1, rounds):
            wait(one, memory, 0, i, at_least)
            write(one, memory, 1, i)
            wait(two, memory, 1, i, at_least)
            write(two, memory, 2, i)
            memory[0] = i
            if i % 8 == 0:
                cuda.cuStreamSynchronize(two)
        cuda.cuStreamSynchronize(one)
        cuda.cuStreamSynchronize(two)
        assert memory[2] == rounds - 1

    in_threads(ordinary, ordinary, captures, captures, replays, ping_pong)


def check_one_executable_launched_and_updated_by_many_threads():
    made, memory = kernel(STEP), words()
    on = stream()
    with captured(on, RELAXED) as graph:
        step(made, on, memory, 1, 1)
        step(made, on, memory, 1, 2, index=1)
    executable, rounds = instantiate(graph), max(ROUNDS // 4, 20)

    def launches():
        mine = stream()
        for _ in range(rounds):
            cuda.cuGraphLaunch(executable, mine)
        cuda.cuStreamSynchronize(mine)

    def updates():
        node = Pointer(nodes(graph)[0])
        for _ in range(rounds):
            arguments = Arguments(made, memory, 1, 1)  # kept until the call has read what the structure points to
            cuda.cuGraphExecKernelNodeSetParams_v2(executable, node, ctypes.byref(arguments.params))

    in_threads(launches, launches, launches, updates)
    # Launches of one executable never overlap, so that no addition is lost.
    assert memory[:2].tolist() == [3 * rounds, 6 * rounds]


def check_one_executable_launched_into_streams_that_threads_share():
    made, memory, on, blocking = kernel(STEP), words(), stream(), stream(0)
    with captured(on, RELAXED) as graph:
        step(made, on, memory, 1, 1)
    executable = instantiate(graph)

    def launches(to):
        for _ in range(ROUNDS):
            cuda.cuGraphLaunch(executable, to)

    in_threads(*[lambda to=to: launches(to) for to in (on, on, on, blocking, blocking, None)])
    cuda.cuCtxSynchronize()  # whatever the order in which the calls came, each launch comes after those before it
    assert memory[0] == 6 * ROUNDS


def check_modules_are_loaded_by_many_threads_at_once():
    rounds = max(ROUNDS // 20, 5)

    def body():
        memory = np.zeros(1, np.uint32)
        for _ in range(rounds):
            module = load(HEAD + STEP)
            on = stream()
            step(function(module, "k"), on, memory, 1, 1)
            cuda.cuStreamSynchronize(on)
            cuda.cuModuleUnload(module)
            cuda.cuStreamDestroy_v2(on)
        assert memory[0] == rounds

    in_threads(body, body, body, body)
