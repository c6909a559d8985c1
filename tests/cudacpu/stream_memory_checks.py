"""What memory operations of streams promise. Run by test_graphs.py."""

from __future__ import annotations

import ctypes

import numpy as np
from driver import cuda, kernel, out, refused
from graphs import STEP, at, captured, instantiate, run, step, stream, wait, words, write

GEQ, EQ, AND, NOR = range(4)
NOT_READY = 600
LAST = 7


def done(on) -> bool:
    code = cuda.raw.cuStreamQuery(on)
    assert code in (0, NOT_READY)
    return code == 0


def check_a_wait_holds_its_stream_until_its_condition_holds():
    # condition, value, what doesn't fulfil it, what does
    cases = (
        (GEQ, 5, (4, 0, 0xFFFFFFFF), (5, 6, 0x7FFFFFFF)),
        (GEQ, 0xFFFFFFFF, (0xFFFFFFFE, 0x7FFFFFFF), (0xFFFFFFFF, 0, 5)),  # around the end of numbers
        (EQ, 5, (4, 6), (5,)),
        (AND, 6, (1, 8), (2, 4, 7)),
        (NOR, 0xFFFFFFF0, (0xF, 0xFFFFFFFF), (0, 0x7, 0xE)),
    )
    on, other = stream(), stream()
    for how, value, bad, good in cases:
        for wrong in bad:
            memory = words()
            memory[0] = wrong
            wait(on, memory, 0, value, how)
            write(on, memory, LAST, 1)
            assert not done(on), (how, value, wrong)
            right = good[0]
            write(other, memory, 0, right)
            cuda.cuStreamSynchronize(on)
            assert memory[LAST] == 1
        for right in good:
            memory = words()
            memory[0] = right
            wait(on, memory, 0, value, how)
            cuda.cuStreamSynchronize(on)


def check_words_of_64_bits_are_compared_as_such():
    on, memory = stream(), np.zeros(2, np.uint64)
    target, flags = 1 << 40, EQ
    cuda.cuStreamWaitValue64_v2(on, at(memory), ctypes.c_uint64(target), flags)
    cuda.cuStreamWriteValue64_v2(on, at(memory, 1), ctypes.c_uint64(target + 1), 0)
    assert not done(on)
    memory[0] = target
    cuda.cuStreamSynchronize(on)
    assert memory[1] == target + 1
    memory[0] = 1 << 63
    cuda.cuStreamWaitValue64_v2(on, at(memory), ctypes.c_uint64(0), GEQ)
    assert not done(on)
    memory[0] = 1
    cuda.cuStreamSynchronize(on)


def check_kernels_and_the_host_release_waits():
    made, on, other, memory = kernel(STEP), stream(), stream(), words()
    wait(on, memory, 0, 3)
    write(on, memory, LAST, 1)
    step(made, other, memory, 0, 3)
    cuda.cuStreamSynchronize(on)
    wait(on, memory, 1, 1)
    memory[1] = 1
    cuda.cuStreamSynchronize(on)


def check_many_streams_that_wait_hold_no_threads():
    memory, streams = words(400), [stream() for _ in range(300)]
    last = stream()
    for i, on in enumerate(streams):  # each waits for the one before, the first for `last`
        wait(on, memory, i, 1)
        write(on, memory, i + 1, 1)
    write(last, memory, 0, 1)
    for on in streams:
        cuda.cuStreamSynchronize(on)
    assert (memory[:301] == 1).all()


class Value(ctypes.Structure):
    _fields_ = (
        ("operation", ctypes.c_int),
        ("address", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
        ("flags", ctypes.c_uint),
        ("alias", ctypes.c_uint64),
    )


class Reduction(ctypes.Structure):
    _fields_ = (
        ("operation", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("kind", ctypes.c_int),
        ("type", ctypes.c_int),
        ("address", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
        ("alias", ctypes.c_uint64),
    )


class Operation(ctypes.Union):
    _fields_ = (("value", Value), ("reduction", Reduction), ("pad", ctypes.c_uint64 * 6))


WAIT32, WRITE32, FLUSH, WAIT64, WRITE64, BARRIER, REDUCTION = 1, 2, 3, 4, 5, 6, 8
AND_WORD, OR_WORD, ADD_WORD = 5, 6, 0
UNSIGNED32, UNSIGNED64 = 2 | 8 | 4, 2 | 16 | 4


def operation(kind: int, array: np.ndarray, index: int, value: int, flags: int = 0) -> Operation:
    return Operation(value=Value(kind, at(array, index), value, flags, 0))


def reduction(kind: int, array: np.ndarray, index: int, value: int) -> Operation:
    size = UNSIGNED64 if array.itemsize == 8 else UNSIGNED32
    return Operation(reduction=Reduction(REDUCTION, 0, kind, size, at(array, index), value, 0))


def batch(on, *operations: Operation) -> None:
    array = (Operation * len(operations))(*operations)
    cuda.cuStreamBatchMemOp_v2(on, len(operations), array, 0)


def check_a_batch_is_done_in_order_and_once():
    on, memory = stream(), words()
    big = np.array([6], np.uint64)
    plain = Operation(value=Value(BARRIER, 0, 0, 0, 0))
    parts = (
        reduction(ADD_WORD, memory, 0, 5),
        operation(WAIT32, memory, 1, 1, EQ),
        plain,
        operation(WRITE32, memory, 0, 9),
        reduction(OR_WORD, memory, 0, 6),
        reduction(AND_WORD, memory, 0, 0xE),
        reduction(ADD_WORD, big, 0, 1 << 40),
    )
    batch(on, *parts)
    assert not done(on)
    memory[1] = 1
    cuda.cuStreamSynchronize(on)
    assert memory[0] == (9 | 6) & 0xE and big[0] == 6 + (1 << 40)


def check_a_batch_in_a_graph_begins_anew_with_each_launch():
    on, memory = stream(), words()
    with captured(on) as graph:
        batch(
            on, reduction(ADD_WORD, memory, 0, 1), operation(WAIT32, memory, 1, 1, EQ), operation(WRITE32, memory, 1, 0)
        )
    one, two = instantiate(graph), instantiate(graph)
    other = stream()
    for executable, where in ((one, on), (two, other)):
        cuda.cuGraphLaunch(executable, where)
    for where in (on, other):
        memory[1] = 1
        while memory[1]:  # released by whichever of the two comes first
            cuda.raw.cuStreamQuery(where)
    cuda.cuStreamSynchronize(on)
    cuda.cuStreamSynchronize(other)
    assert memory[0] == 2
    memory[1] = 1
    run(one, on)
    assert memory[0] == 3


def check_what_makes_no_sense_is_refused():
    on, memory = stream(), words()
    bad = (
        operation(WAIT32, memory, 0, 0, 8),
        operation(WRITE32, memory, 0, 0, 2),
        Operation(value=Value(WAIT32, memory.ctypes.data + 2, 0, 0, 0)),
        Operation(value=Value(WAIT64, memory.ctypes.data + 4, 0, 0, 0)),
        Operation(value=Value(WAIT32, 0, 0, 0, 0)),
        Operation(value=Value(7, memory.ctypes.data, 0, 0, 0)),
        reduction(1, memory, 0, 0),
    )
    for each in bad:
        assert refused(batch, on, each).name == "CUDA_ERROR_INVALID_VALUE"
    good = operation(WRITE32, memory, 0, 1)
    assert refused(batch, on, *[good] * 256).name == "CUDA_ERROR_INVALID_VALUE"
    assert refused(batch, on, good, bad[0]).name == "CUDA_ERROR_INVALID_VALUE"
    cuda.cuStreamSynchronize(on)
    assert not memory.any()


def check_devices_say_what_they_can():
    for which in (92, 93, 94, 98, 122, 123):  # stream memory operations, 64 bits, NOR, flushes; the old names, the new
        assert out(ctypes.c_int, cuda.cuDeviceGetAttribute, which, 0).value == 1, which
