"""Two CUDA devices: what they do for each other where they reach each other's memory, and where they don't. Each in a
process of its own, over hcq.cudacpu."""

import os
import subprocess
import sys

import pytest

PROGRAM = '''
import numpy as np
import hcq

PTX = """
.version 7.0
.target sm_70
.address_size 64
.visible .entry move(.param .u64 .ptr .global out, .param .u64 .ptr .global in)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [out];
  ld.param.u64 %rd2, [in];
  ld.global.u32 %r1, [%rd2];
  st.global.u32 [%rd1], %r1;
  ret;
}
"""
one, two = hcq.Device["CUDA"], hcq.Device["CUDA:1"]
print(one.info["peers"], two.info["peers"])
n = (3 << 20) + 5
numbers = np.arange(n).astype("u1")
x, y = hcq.array(numbers, "CUDA"), hcq.zeros(n, hcq.u8, "CUDA:1")
one.synchronize()
two.synchronize()
before = one.timeline_value, two.timeline_value
hcq.copy(y, x)
assert (one.timeline_value, two.timeline_value) == (before[0] + 1, before[1] + 1)
assert (y.numpy() == numbers).all()

with hcq.capture() as graph:
    hcq.copy(x, y)
    hcq.copy(y, x)
assert [node.kind for node in graph.nodes] == ["copy", "copy"]
y.copyin(np.full(n, 9, "u1"))
graph.replay().wait()
assert (x.numpy() == 9).all()

stream = two.stream()
x.copyin(numbers)
one.synchronize()
hcq.copy(y, x, stream=stream)
stream.synchronize()
assert (y.numpy() == numbers).all()
hcq.copy(y.view(100, hcq.u8, 7).ensure_allocated(), x.view(100, hcq.u8, 50).ensure_allocated())
assert (y.numpy()[7:107] == numbers[50:150]).all()

for options in (hcq.BufferOptions(cpu_access=True), hcq.BufferOptions(host=True)):
    there = hcq.Buffer("CUDA:1", 64, hcq.u8, options=options, preallocate=True)
    hcq.copy(there, x.view(64, hcq.u8, 0).ensure_allocated())
    assert (there.numpy() == numbers[:64]).all()

move = one.program("move", PTX)
try:
    move(x, y)
except hcq.errors.LaunchError as why:
    assert "can't reach" in str(why)
else:
    raise AssertionError("a buffer of another device was taken")
if one.info["peers"]:
    one.allocator.map(y._buf)
    two.synchronize()
    move(x._buf, y._buf)
    assert (x.numpy()[:4] == y.numpy()[:4]).all()
print("done")
'''


def run(code, **environment):
    variables = {**os.environ, "HCQ_CUDA": "cpu", "HCQ_CUDACPU_DEVICES": "2", **environment}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("peers", "told"),
    [
        pytest.param("1", "('CUDA:1',) ('CUDA',)", marks=pytest.mark.thorough),  # as the conformance suite has them
        ("0", "() ()"),
    ],
)
def test_two_devices_copy_to_each_other_with_and_without_peer_access(peers, told):
    assert run(PROGRAM, HCQ_CUDACPU_PEERS=peers) == [told, "done"]
