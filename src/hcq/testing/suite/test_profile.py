"""hcq_profile, the primitive that traces are made of."""

import pytest

import hcq
from hcq.testing.marks import needs, promise


@promise("profile.primitive")
@needs("queues", "compiles")
def test_hcq_profile_encloses_what_it_times(dev, kernels):
    done = dev.signal_t()
    queue = dev.hw_compute_queue_t()
    with hcq.hcq_profile(dev, True, "nothing", queue=queue) as (start, end):
        queue.exec(kernels.nothing, kernels.nothing.fill_kernargs([]), (1, 1, 1), (1, 1, 1))
    queue.signal(done, 1).submit(dev)
    done.wait(1)
    assert 0 < start.timestamp <= end.timestamp


@promise("profile.primitive")
@needs("queues")
def test_a_disabled_hcq_profile_adds_nothing(dev):
    queue = dev.hw_compute_queue_t()
    with hcq.hcq_profile(dev, False, "nothing", queue=queue) as (start, end):
        queue.signal(dev.signal_t(), 1)
    assert len(queue) == 1 and start is None and end is None


@promise("profile.primitive")
@needs("queues")
@pytest.mark.parametrize("kind", ["hw_compute_queue_t", "hw_copy_queue_t"])
def test_hcq_profile_brings_its_own_queue(dev, kind):
    with hcq.hcq_profile(dev, True, "copy", queue_type=getattr(dev, kind)) as (start, end):
        pass
    dev.synchronize()
    end_seen = end.timestamp
    assert 0 < start.timestamp <= end_seen
