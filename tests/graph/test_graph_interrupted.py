"""Control-C in the middle of a replay on devices in Python: the devices go on, and so does the graph.

In a process of its own: the signal comes to the main thread, from within the driver.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAD = """
import faulthandler, signal
faulthandler.dump_traceback_later(50, exit=True)
signal.signal(signal.SIGINT, signal.default_int_handler)
import hcq
from hcq import dtypes
from third_party import mini

raising = None  # (how many submits of the driver later, before or after the words are handed over)

def here(when):
    global raising
    if raising is not None and raising == (0, when):
        raising = None
        signal.raise_signal(signal.SIGINT)

class Words:
    def _submit(self, dev):
        global raising
        here("before")
        super()._submit(dev)
        here("after")
        if raising is not None:
            raising = raising[0] - 1, raising[1]

class Device(mini.MiniDevice):
    def __init__(self, name):
        super().__init__(name)
        self.hw_compute_queue_t = type("Compute", (Words, mini.MiniComputeQueue), {"__slots__": ()})
        self.hw_copy_queue_t = type("Copy", (Words, mini.MiniCopyQueue), {"__slots__": ()})

hcq.Device.register("MINI", Device, replace=True)
"""

BODY = """
homes = ["MINI", "MINI:1"][:count]
devices = [hcq.Device[home] for home in homes]
source = 'def put(launch, x: "i32*", n: "i32"):\\n    x[0] = n\\n'
sources = [hcq.zeros(1, dtypes.int32, home) for home in homes]
dests = [hcq.zeros(1, dtypes.int32, home) for home in homes]
puts = [device.program("put", source) for device in devices]
with hcq.capture() as g:
    for put, src, dest in zip(puts, sources, dests[1:] + dests[:1]):
        put(src, vals=(g.value("n", 1),))
        hcq.copy(dest, src)  # its own queue, and in the end the other device
    for put, src in zip(puts, sources):
        put(src, vals=(g.value("n", 1),))
lanes = sum(len(queue) > 0 for queue in g.parts[0]._current()._queues)
g.replay(vals={"n": 1}).wait()
number = hits = 0
for place in range(lanes + 1):
    for when in ("before", "after"):
        for under_way in (False, True):
            number += 1
            if under_way:
                g.replay(vals={"n": 5})
            raising = (place, when)
            try:
                g.replay(vals={"n": 100 * number})
                raising = None
            except KeyboardInterrupt:
                hits += 1
            for device in devices:
                device.synchronize()
                assert device.lost is None
                assert device.timeline_signal.value == device.timeline_value - 1, (place, when)
                assert device.position() is None
            g.replay(vals={"n": number}).wait()
            assert [dest.numpy()[0] for dest in dests] == [number] * count, (place, when)
            assert [src.numpy()[0] for src in sources] == [number] * count
assert hits >= 4 * lanes, (hits, lanes)
print("fine")
"""


@pytest.mark.parametrize("count", [1, 2])
def test_control_c_in_the_middle_of_a_replay_loses_no_device(count):
    done = subprocess.run(
        [sys.executable, "-c", HEAD + f"count = {count}\n" + BODY],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])},
    )
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stdout + done.stderr
