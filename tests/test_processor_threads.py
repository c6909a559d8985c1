"""How the command processor's threads share cores with the program. What they run is not looked at here."""

import os
import subprocess
import sys
import threading
import time

import pytest

import hcq
from hcq import _native

SOURCE = "void f(int *p) { ++*p; }"

pytestmark = pytest.mark.skipif(not hasattr(os, "SCHED_BATCH"), reason="threads are scheduled otherwise here")


def pool_threads():
    """The processor's threads of this process, by the system's numbers."""
    found = []
    for number in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{number}/comm") as file:
                if file.read().strip() == "hcq":
                    found.append(int(number))
        except FileNotFoundError:
            continue
    return found


def until(happened):
    deadline = time.monotonic() + 20
    while not happened():
        if time.monotonic() > deadline:
            return False
    return True


@pytest.fixture
def launch():
    dev = hcq.Device["CLANG"]
    prg = dev.program("f", SOURCE)
    buf = hcq.zeros(1, hcq.dtypes.int32, "CLANG")
    prg(buf, wait=True)
    yield lambda: prg(buf)
    dev.synchronize()


def test_threads_that_wake_for_a_launch_now_and_then_take_nobodys_core(launch):
    def waits_for_its_turn():
        launch()
        time.sleep(0.001)
        return any(os.sched_getscheduler(number) == os.SCHED_BATCH for number in pool_threads())

    assert until(waits_for_its_turn), "they go on preempting the program for every launch"


def test_threads_that_sleep_take_a_core_again_when_they_are_woken(launch):
    for _ in range(50):
        launch()
        time.sleep(0.001)

    def as_others():
        time.sleep(0.02)
        return all(os.sched_getscheduler(number) == os.SCHED_OTHER for number in pool_threads())

    assert until(as_others), "a launch after a rest would wait for its turn"


def test_threads_whose_scheduling_was_chosen_are_left_alone(launch):
    for _ in range(20):
        launch()
    chosen = pool_threads()
    assert chosen and threading.get_native_id() not in chosen
    for number in chosen:
        os.sched_setscheduler(number, os.SCHED_IDLE, os.sched_param(0))
    try:
        for _ in range(50):
            launch()
            time.sleep(0.001)
        assert {os.sched_getscheduler(number) for number in chosen} == {os.SCHED_IDLE}
    finally:
        for number in chosen:
            os.sched_setscheduler(number, os.SCHED_OTHER, os.sched_param(0))


STARTED_BY_ONE_THAT_WAITS_FOR_ITS_TURN = """
import os, time
import hcq
from test_processor_threads import MEET, SOURCE, pool_threads, until

programs = [hcq.Device[name].program("f", SOURCE) for name in ("CLANG", "CLANG:1")]
buffers = [hcq.zeros(1, hcq.dtypes.int32, name) for name in ("CLANG", "CLANG:1")]
before = len(pool_threads())

def waits_for_its_turn():
    programs[0](buffers[0])
    time.sleep(0.001)
    return any(os.sched_getscheduler(number) == os.SCHED_BATCH for number in pool_threads())

def more():  # the thread that naps finds the work of two queues
    assert until(waits_for_its_turn), "they go on preempting the program for every launch"
    for prg, buf in zip(programs, buffers):
        prg(buf)
    time.sleep(0.01)
    return len(pool_threads()) > before

def as_others():
    time.sleep(0.02)
    return all(os.sched_getscheduler(number) == os.SCHED_OTHER for number in pool_threads())

assert until(more), "no second thread"
assert until(as_others), "a thread waits for its turn for good"
"""


@pytest.mark.skipif(_native.worker_limit() < 2, reason="there is no second core to spread work over")
def test_a_thread_started_by_one_that_waits_for_its_turn_does_not():
    command = [sys.executable, "-c", STARTED_BY_ONE_THAT_WAITS_FOR_ITS_TURN]
    done = subprocess.run(command, cwd=os.path.dirname(__file__), capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


MEET = """
#include <hcq.h>
HCQ_KERNEL void meet(int *begun, int *met, int patient) {
  if (__atomic_fetch_add(begun, 1, __ATOMIC_RELAXED) || !patient) return;
  for (long n = 0; n < 20000000000 && !*met; ++n) *met = __atomic_load_n(begun, __ATOMIC_RELAXED) > 1;
}
"""


@pytest.mark.skipif(_native.worker_limit() < 2, reason="there is no second core to spread work over")
def test_a_large_launch_is_spread_though_the_one_before_it_was_small():
    """As in the sum of an array, whose own parts are summed by one group of the same kernel."""
    prg = hcq.Device["CLANG"].program("meet", MEET)
    begun, met = hcq.zeros(1, hcq.dtypes.int32, "CLANG"), hcq.zeros(1, hcq.dtypes.int32, "CLANG")
    for _ in range(2):
        begun.fill(0)
        met.fill(0)
        prg(begun, met, vals=(0,), wait=True)  # one group
        begun.fill(0)
        prg(begun, met, vals=(1,), global_size=(4096, 1, 1), wait=True)  # the first waits for another to begin
        assert met.numpy()[0] == 1, "one thread had all groups"
