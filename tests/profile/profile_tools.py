"""What the tests of profiles share: programs, buffers, spans by kind and name, events of files, two devices at work."""

import json

import pytest

import hcq

NO_PERFETTO = "the extra hcq[perfetto] is not installed"
I32 = hcq.dtypes.int32
C = """
void one(int* a) { a[0] += 1; }
void two(int* a) { a[0] += 2; }
void spin(int* a, int n) { for (volatile int i = 0; i < n; ++i) {} a[0] = n; }
"""
OTHER_ONE = "void one(int* a) { a[0] += 100; }"


def buffer(device="CLANG", count=1024):
    made = hcq.Buffer(device, count, I32).allocate()
    made.copyin(bytes(4 * count))
    return made


def of(profile, *kinds):
    return [span for span in profile.spans if span.kind in kinds]


def named(profile):
    spans = profile.spans
    return {(spans[a].name, spans[b].name) for a, b in profile.flows}


def events(path):
    with open(path) as file:
        return json.load(file)["traceEvents"]


def packets(path):
    pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2", reason=NO_PERFETTO)
    trace = pb2.Trace()
    with open(path, "rb") as file:
        trace.ParseFromString(file.read())
    return pb2, trace.packet


def two_devices(path=None):
    """A profile of kernels and copies over two devices, each part of the contract's names in it."""
    one, other = hcq.Device["CLANG"], hcq.Device["CLANG:1"]
    a, b, c = buffer(), buffer("CLANG:1"), buffer()
    add, also = one.program("one", C), other.program("two", C)
    with hcq.profile(path) as p:
        a.copyin(bytes(4096))
        add(a)
        add(a)
        hcq.copy(b, a)
        also(b)
        hcq.copy(c, a)
        b.copyout(bytearray(4096))
    return p
