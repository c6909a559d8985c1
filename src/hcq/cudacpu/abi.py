"""Offsets and numbers of native/cudacpu/run/abi.hpp, for what writes code against it. The header says what they are."""

from __future__ import annotations

from enum import IntEnum


class Grid(IntEnum):
    """Offsets in `Grid`."""

    params = 0
    ntid = 8
    nctaid = 20
    dynamic_shared = 32
    shared_bytes = 36
    id = 40
    failed = 48
    local_bytes = 52
    owner = 56
    workspace = 64
    size = 72


class Block(IntEnum):
    """Offsets in `Block`."""

    grid = 0
    shared = 8
    ctaid = 16
    smid = 28
    local = 32
    owner = 40
    size = 48


class Thread(IntEnum):
    """Offsets in `Thread`."""

    block = 0
    local = 8
    tid = 16
    linear = 28
    op = 32
    mask = 36
    a = 40
    r = 72
    line = 88
    frame = 96
    size = 104


class Op(IntEnum):
    """Why a thread suspended."""

    none = 0
    barrier = 1
    barrier_red = 2
    arrive = 3
    warp_sync = 4
    shuffle = 5
    vote = 6
    match = 7
    redux = 8
    active_mask = 9
    exchange = 10
    exited = 11
    yielded = 12


class Result(IntEnum):
    """What `hcq_cuda_fail` is told: values of CUresult."""

    illegal_address = 700
    illegal_instruction = 715
    misaligned_address = 716
    launch_failed = 719
