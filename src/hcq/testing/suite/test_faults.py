"""Injected faults, what a lost device means for those who wait, and that it opens again."""

import asyncio
import contextlib
import gc
import threading
import time

import numpy as np
import pytest

import hcq
from hcq.errors import CompileError, DeviceLost, HCQError, SignalTimeout
from hcq.testing import inject
from hcq.testing.marks import needs, promise
from hcq.testing.suite.tools import BYTE, I32, address, empty, filled, noise, read

ONE = (1, 1, 1)


class Wrecked(ArithmeticError):
    """A failure nobody else raises."""


def lose(dev, kernels, error=None):
    """Makes a device lost by a launch that fails."""
    with inject(dev, "exec", error=error or Wrecked("the first cause")):
        kernels.nothing()
        with pytest.raises(HCQError):
            dev.synchronize()


# -- injecting --------------------------------------------------------------------------------------------------------


@promise("fault.inject_alloc", "fault.inject_once", "fault.inject_error")
@needs("inject")
def test_an_allocation_fails_at_the_call(fresh):
    kept = []
    with inject(fresh, "alloc", nth=2):
        kept.append(empty(fresh, 1001, BYTE))
        with pytest.raises(MemoryError):
            empty(fresh, 2002, BYTE)
        kept.append(empty(fresh, 2002, BYTE))
    with inject(fresh, "alloc", error=Wrecked("x")), pytest.raises((Wrecked, HCQError), match="x"):
        empty(fresh, 3003, BYTE)
    assert (read(filled(fresh, noise(50))) == noise(50)).all() and len(kept) == 2
    fresh.synchronize()


@promise("fault.inject_compile", "fault.inject_error")
@needs("inject", "compiles")
def test_a_compile_fails_at_the_call(fresh, fresh_kernels):
    source = fresh_kernels.source("nothing")
    with inject(fresh, "compile", error=CompileError("no", log="line 1")), pytest.raises(CompileError, match="no"):
        fresh.compiler.compile(source)
    with inject(fresh, "compile"), pytest.raises(RuntimeError, match="injected"):
        fresh.compiler.compile(source)
    assert fresh.compiler.compile(source)


@promise("fault.inject_exec", "fault.inject_error", "fault.first_cause")
@needs("inject", "queues", "compiles")
@pytest.mark.parametrize("error", [None, Wrecked("the first cause"), Wrecked])
def test_a_failed_exec_loses_the_device(fresh, fresh_kernels, error):
    with inject(fresh, "exec", nth=3, error=error):
        with contextlib.suppress(DeviceLost):  # the last ones may be told already
            for _ in range(5):
                fresh_kernels.nothing()
        with pytest.raises(DeviceLost) as lost:
            fresh.synchronize()
    assert lost.value.device == fresh.dname
    assert isinstance(lost.value.cause, Wrecked if error else RuntimeError)
    assert "nothing" in str(lost.value.command) and fresh.dname in str(lost.value)
    if error is None:
        assert "injected" in str(lost.value.cause)
    assert fresh.timeline_signal.value == 2


@promise("fault.inject_copy", "fault.first_cause")
@needs("inject", "queues", "host_memory")
def test_a_failed_copy_loses_the_device(fresh):
    source, dest = filled(fresh, [1]), filled(fresh, [0])
    done = fresh.signal_t()
    with inject(fresh, "copy", error=Wrecked("the first cause")):
        queue = fresh.hw_copy_queue_t().copy(address(dest), address(source), 4).signal(done, 1)
        queue.submit(fresh)
        with pytest.raises(DeviceLost) as lost:
            done.wait(1)
    assert isinstance(lost.value.cause, Wrecked) and "copy" in str(lost.value.command)
    with pytest.raises(DeviceLost):
        fresh.synchronize()


@promise("fault.inject_submit")
@needs("inject", "queues")
def test_a_failed_submit_raises_and_loses_the_device(fresh):
    with inject(fresh, "submit", nth=2, error=Wrecked("the first cause")):
        fresh.hw_compute_queue_t().signal(fresh.signal_t(), 1).submit(fresh)
        with pytest.raises((Wrecked, DeviceLost), match="the first cause"):
            fresh.hw_compute_queue_t().signal(fresh.signal_t(), 1).submit(fresh)
    with pytest.raises(DeviceLost):
        fresh.synchronize()


@promise("fault.inject_delay")
@needs("inject", "queues", "compiles")
@pytest.mark.parametrize("what", ["exec", "submit"])
def test_a_delay_stalls_and_nothing_fails(fresh, fresh_kernels, what):
    fresh_kernels.nothing(wait=True)
    began = time.monotonic()
    with inject(fresh, what, delay=0.1):
        fresh_kernels.nothing()
        fresh.synchronize()
    assert time.monotonic() - began >= 0.1
    fresh_kernels.nothing(wait=True)


@promise("fault.inject_delay")
@needs("inject", "queues", "host_memory")
@pytest.mark.parametrize("what", ["copy", "alloc"])
def test_a_delayed_copy_or_allocation_comes_late_and_whole(fresh, what):
    source, dest = filled(fresh, [42]), filled(fresh, [0])
    done = fresh.signal_t()
    began = time.monotonic()
    with inject(fresh, what, delay=0.1):
        extra = empty(fresh, 12_345, BYTE)
        fresh.hw_copy_queue_t().copy(address(dest), address(source), 4).signal(done, 1).submit(fresh)
        done.wait(1)
    assert time.monotonic() - began >= 0.1
    assert read(dest).tolist() == [42] and extra.is_allocated()


@promise("fault.inject_context", "fault.inject_exec")
@needs("inject", "queues", "compiles")
def test_a_launch_in_the_block_fails_though_nobody_waits_there(fresh, fresh_kernels):
    with inject(fresh, "exec", error=Wrecked("the first cause")) as injection:
        fresh_kernels.nothing()
    assert injection.fired
    with pytest.raises(DeviceLost, match="the first cause"):
        fresh.synchronize()


@promise("fault.inject_context", "fault.inject_copy")
@needs("inject", "queues", "host_memory")
def test_a_copy_in_the_block_fails_though_nobody_waits_there(fresh):
    source, dest = filled(fresh, noise(1 << 20)), filled(fresh, noise(1 << 20))
    with inject(fresh, "copy", error=Wrecked("the first cause")) as injection:
        fresh.hw_copy_queue_t().copy(address(dest), address(source), 1 << 20).submit(fresh)
    assert injection.fired
    with pytest.raises(DeviceLost, match="the first cause"):
        fresh.synchronize()


@promise("fault.inject_context")
@needs("inject", "queues", "async", "compiles")
def test_a_block_ends_though_its_queue_waits_for_what_comes_after_it(fresh):
    gate = fresh.signal_t()
    with inject(fresh, "exec") as injection:
        fresh.hw_compute_queue_t().wait(gate, 1).submit(fresh)
    assert not injection.fired
    gate.value = 1
    fresh.synchronize()


@promise("fault.inject_context", "fault.inject_once")
@needs("inject", "queues", "compiles")
def test_an_injection_ends_with_its_block(fresh, fresh_kernels):
    with inject(fresh, "exec", nth=100, error=Wrecked("never")):
        fresh_kernels.nothing(wait=True)
    for _ in range(200):
        fresh_kernels.nothing()
    fresh.synchronize()
    with inject(fresh, "alloc", error=Wrecked("never")):
        pass
    assert empty(fresh, 10).is_allocated()


@promise("fault.inject_error", "errors.no_assert")
@needs("inject")
def test_a_wrong_injection_is_refused(fresh):
    for arguments in (("nonsense",), ("exec", 0), ("exec", -1)):
        with pytest.raises((ValueError, TypeError)), inject(fresh, *arguments):
            pass
    with pytest.raises(TypeError, match=r"not a name: inject\(hcq\.Device"):
        inject(fresh.dname, "exec")
    with pytest.raises((ValueError, TypeError)), inject(fresh, "exec", error="text"):
        pass


# -- what a loss means ------------------------------------------------------------------------------------------------


@promise("fault.waiters")
@needs("inject", "queues", "compiles")
def test_whoever_waits_is_told_at_once(fresh, fresh_kernels):
    later_value, later_signal = None, fresh.signal_t()
    with inject(fresh, "exec", error=Wrecked("the first cause")):
        fresh_kernels.nothing()
        try:
            later_value = fresh.next_timeline()
            queue = fresh.hw_compute_queue_t().wait(fresh.timeline_signal, later_value - 1)
            queue.signal(fresh.timeline_signal, later_value).signal(later_signal, 1).submit(fresh)
        except DeviceLost:
            later_value = None  # lost already
        began = time.monotonic()
        with pytest.raises(DeviceLost, match="the first cause"):
            fresh.timeline_signal.wait(fresh.timeline_value - 1, timeout=20_000)
        if later_value is not None:
            with pytest.raises(DeviceLost, match="the first cause"):
                later_signal.wait(1, timeout=20_000)
    assert time.monotonic() - began < 15  # told, not timed out


@promise("fault.sleeping_waiter", "fault.waiters")
@needs("inject", "queues", "compiles", "async")
def test_a_waiter_that_sleeps_is_woken(fresh, fresh_kernels):
    gate, done = fresh.signal_t(), fresh.signal_t()
    told = []

    def wait():
        try:
            done.wait(1, timeout=20_000)
        except BaseException as error:
            told.append(error)

    program = fresh_kernels.nothing
    kernargs = program.fill_kernargs([])
    with inject(fresh, "exec", error=Wrecked("the first cause")):
        fresh.hw_compute_queue_t().wait(gate, 1).exec(program, kernargs, ONE, ONE).signal(done, 1).submit(fresh)
        waiters = [threading.Thread(target=wait) for _ in range(3)]
        for waiter in waiters:
            waiter.start()
        time.sleep(0.1)
        gate.value = 1
        for waiter in waiters:
            waiter.join(15)
    assert [type(error) for error in told] == [DeviceLost] * 3 and "the first cause" in str(told[0])


@promise("fault.waiters", "signal.await")
@needs("inject", "queues", "compiles", "async")
def test_an_awaiting_task_is_told(fresh, fresh_kernels):
    gate, done = fresh.signal_t(), fresh.signal_t()
    program = fresh_kernels.nothing

    async def main():
        kernargs = program.fill_kernargs([])
        queue = fresh.hw_compute_queue_t().wait(gate, 1).exec(program, kernargs, ONE, ONE).signal(done, 1)
        queue.submit(fresh)
        task = asyncio.ensure_future(done.reached(1))
        await asyncio.sleep(0.02)
        gate.value = 1
        with pytest.raises(DeviceLost, match="the first cause"):
            await asyncio.wait_for(task, 15)

    with inject(fresh, "exec", error=Wrecked("the first cause")):
        asyncio.run(main())


@promise("fault.first_cause", "fault.launch_lost", "device.synchronize_raises")
@needs("inject", "queues", "compiles")
def test_the_first_cause_is_kept(fresh, fresh_kernels):
    lose(fresh, fresh_kernels)
    for use in (fresh.synchronize, fresh_kernels.nothing, lambda: fresh_kernels.nothing(wait=True)):
        for _ in range(2):
            with pytest.raises(DeviceLost, match="the first cause") as lost:
                use()
            assert isinstance(lost.value.cause, Wrecked)
    with pytest.raises(DeviceLost, match="the first cause"):
        fresh.hw_compute_queue_t().signal(fresh.signal_t(), 1).submit(fresh)


@promise("fault.report", "signal.timeout")
@needs("queues", "compiles")
def test_a_time_out_says_what_every_queue_is_at(fresh, fresh_kernels):
    fresh_kernels.nothing()
    fresh.synchronize()
    gate = fresh.signal_t()
    fresh.hw_compute_queue_t().wait(gate, 1).submit(fresh)
    fresh_kernels.nothing()
    with pytest.raises(SignalTimeout) as late:
        gate.wait(1, timeout=20)
    gate.value = 1
    fresh.synchronize()
    first, *queues = str(late.value).splitlines()
    text = "\n".join(queues)
    assert "value 1" in first and fresh.dname in text
    assert "finished last" in text and "stands at" in text and "next: " in text
    assert text.count("nothing") >= 3  # it finished, it is next, and nothing that is queued sets the signal


@promise("fault.report", "fault.first_cause")
@needs("inject", "queues", "compiles")
def test_a_lost_device_says_what_its_queues_were_at(fresh, fresh_kernels):
    fresh_kernels.nothing()
    fresh.synchronize()
    with inject(fresh, "exec", error=Wrecked("the first cause")):
        fresh_kernels.nothing()
        with pytest.raises(DeviceLost) as lost:
            fresh.synchronize()
    assert "finished last: nothing" in lost.value.report and lost.value.report in str(lost.value)
    assert "the first cause" in str(lost.value).splitlines()[0]


@promise("fault.frees", "fault.finalizers")
@needs("inject", "queues", "compiles")
def test_frees_and_finalizers_of_a_lost_device_are_silent(fresh, fresh_kernels, capfd, recwarn):
    bufs = [filled(fresh, noise(1000)) for _ in range(10)]
    views = [buf.view(10, BYTE, 5).ensure_allocated() for buf in bufs]
    signals = [fresh.signal_t() for _ in range(10)]
    queue = fresh.hw_compute_queue_t().signal(signals[0], 1).bind(fresh)
    lose(fresh, fresh_kernels)
    bufs[0].deallocate()
    del bufs, views, signals, queue
    gc.collect()
    fresh.allocator.free_cache()
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "") and not list(recwarn)


@promise("fault.reopen", "registry.close")
@needs("inject", "queues", "compiles")
def test_a_lost_device_opens_again(fresh, fresh_kernels, driver):
    lose(fresh, fresh_kernels)
    fresh.close()
    fresh.close()
    again = hcq.Device[driver.device]
    assert again is not fresh
    data = noise(1000)
    assert (read(filled(again, data)) == data).all()
    program = again.runtime("nothing", again.compiler.compile_cached(fresh_kernels.source("nothing")))
    program(wait=True)
    again.synchronize()
    assert again.timeline_signal.value == again.timeline_value - 1


@promise("fault.others", "fault.reopen")
@needs("inject", "queues", "compiles", "peers")
def test_other_devices_go_on(fresh, fresh_peer, fresh_kernels):
    lose(fresh, fresh_kernels)
    fresh_kernels.on(fresh_peer).nothing(wait=True)
    assert (read(filled(fresh_peer, noise(100))) == noise(100)).all()
    fresh_peer.synchronize()


@promise("fault.downstream")
@needs("inject", "queues", "compiles", "peers")
@pytest.mark.parametrize("kind", ["hw_compute_queue_t", "hw_copy_queue_t"])
def test_work_that_waits_for_a_lost_device_fails_with_the_cause(fresh, fresh_peer, fresh_kernels, kind):
    sig, done, value = fresh.signal_t(), fresh_peer.signal_t(), fresh_peer.next_timeline()
    program = fresh_kernels.nothing
    with inject(fresh, "exec", error=Wrecked("the first cause")):
        queue = getattr(fresh_peer, kind)().wait(sig, 1).signal(done, 1).signal(fresh_peer.timeline_signal, value)
        queue.submit(fresh_peer)
        fresh.hw_compute_queue_t().exec(program, program.fill_kernargs([]), ONE, ONE).signal(sig, 1).submit(fresh)
        with pytest.raises(DeviceLost, match="the first cause"):
            done.wait(1, timeout=20_000)
    with pytest.raises(DeviceLost, match="the first cause"):
        fresh_peer.synchronize()
    fresh_peer.synchronize()  # told once; the device is well
    after = fresh_peer.signal_t()
    getattr(fresh_peer, kind)().signal(after, 1).submit(fresh_peer)
    after.wait(1)
    fresh_kernels.on(fresh_peer).nothing(wait=True)
    fresh_peer.synchronize()


@promise("fault.waiters", "fault.downstream")
@needs("inject", "queues", "compiles", "peers")
def test_what_was_queued_before_the_loss_and_after_it_fails_alike(fresh, fresh_peer, fresh_kernels):
    lose(fresh, fresh_kernels)
    done = fresh_peer.signal_t()
    value = fresh.timeline_value - 1
    fresh_peer.hw_compute_queue_t().wait(fresh.timeline_signal, value).signal(done, 1).submit(fresh_peer)
    with pytest.raises(DeviceLost, match="the first cause"):
        done.wait(1, timeout=20_000)


@promise("fault.waiters")
@needs("inject", "queues", "computes")
def test_results_before_the_failure_are_there_and_after_it_are_not(fresh, fresh_kernels):
    out = filled(fresh, [0])
    program = fresh_kernels.increment
    view = out.as_buffer(allow_zero_copy=True)
    with inject(fresh, "exec", nth=4, error=Wrecked("the first cause")):
        for _ in range(10):
            try:
                program(out._buf)
            except DeviceLost:
                break
        with pytest.raises(DeviceLost):
            fresh.synchronize()
    if hasattr(fresh.allocator, "as_buffer"):
        assert np.frombuffer(view, I32).tolist() == [3]
    with pytest.raises(DeviceLost):
        read(out)


@promise("fault.reopen")
@needs("inject", "queues", "compiles")
def test_losing_and_opening_in_a_loop(driver, kernels):
    source = kernels.source("nothing")
    for _ in range(20):
        hcq.Device.close(driver.device)
        dev = hcq.Device[driver.device]
        program = dev.runtime("nothing", dev.compiler.compile_cached(source))
        with inject(dev, "exec", error=Wrecked("the first cause")):
            program()
            with pytest.raises(DeviceLost):
                dev.synchronize()
    hcq.Device.close(driver.device)
    hcq.Device[driver.device].synchronize()
