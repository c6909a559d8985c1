"""Random programs over both queues of two devices give what a sequential model gives (hcq.testing.model)."""

import functools

import numpy as np
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from hcq.testing import model
from hcq.testing.marks import needs, promise
from hcq.testing.suite.tools import address, filled, read

ONE = (1, 1, 1)
buffers = st.integers(0, model.BUFFERS - 1)


@st.composite
def copies(draw):
    words = draw(st.integers(0, model.WORDS // 2))
    dest, source = draw(buffers), draw(buffers)
    if dest == source:  # apart, for a queue's copy of overlapping ranges has no one result
        halves = draw(st.sampled_from([(0, model.WORDS // 2), (model.WORDS // 2, 0)]))
        return model.Copy(dest, halves[0], source, halves[1], words)
    at = st.integers(0, model.WORDS - words)
    return model.Copy(dest, draw(at), source, draw(at), words)


@st.composite
def fills(draw):
    return model.Fill(draw(buffers), draw(st.integers(0, model.WORDS)), draw(st.integers(-1000, 1000)))


@st.composite
def adds(draw):
    return model.Add(draw(buffers), draw(buffers), draw(buffers), draw(st.integers(0, model.WORDS)))


@st.composite
def programs(draw, computing):
    submits = []
    for _ in range(draw(st.integers(1, 10))):
        queue = draw(st.integers(0, 3))
        if model.QUEUES[queue][1] == "copy":
            commands = st.lists(copies(), max_size=4)
        elif computing:
            commands = st.lists(fills() | adds() | st.builds(model.Skip, buffers), max_size=4)
        else:
            commands = st.just([])
        submits.append(
            model.Submit(queue, draw(commands), draw(st.booleans()), draw(st.booleans()), draw(st.integers(0, 4)) == 0)
        )
    model.order(submits)
    return submits


def build(submit, dev, bufs, kernels, signals, number):
    """A queue object for a submit. Where it is to be patched, its commands are first written with other arguments."""
    own, before = signals[number], [signals[n] for n in sorted(submit.waits)]
    queue = dev.hw_copy_queue_t() if model.QUEUES[submit.queue][1] == "copy" else dev.hw_compute_queue_t()
    patches = []
    for signal in before:
        queue.wait(signal, 0 if submit.again else 1)
        patches.append(functools.partial(queue.update_wait, len(queue) - 1, value=1))
    for command in submit.commands:
        index = len(queue)
        if isinstance(command, model.Copy):
            dest = address(bufs[command.dest]) + 4 * command.dest_at
            source = address(bufs[command.source]) + 4 * command.source_at
            if submit.again:
                queue.copy(address(bufs[0]), address(bufs[1]), 4 * command.words)
                patches.append(lambda i=index, d=dest, s=source: queue.update_copy(i, dest=d).update_copy(i, src=s))
            else:
                queue.copy(dest, source, 4 * command.words)
            continue
        if isinstance(command, model.Fill):
            program, kernargs = (
                kernels.fill,
                kernels.fill.fill_kernargs([bufs[command.dest]._buf], (command.words, command.value)),
            )
        elif isinstance(command, model.Add):
            used = [bufs[n]._buf for n in (command.dest, command.one, command.two)]
            program, kernargs = kernels.add, kernels.add.fill_kernargs(used, (command.words,))
        else:
            program, kernargs = kernels.fill, kernels.fill.fill_kernargs([bufs[command.dest]._buf], (model.WORDS, 7777))
        groups = (1, 0, 1) if isinstance(command, model.Skip) else ONE
        if submit.again:
            queue.exec(program, kernargs, ONE if 0 in groups else (0, 1, 1), ONE)
            patches.append(lambda i=index, g=groups: queue.update_exec(i, g, None))
        else:
            queue.exec(program, kernargs, groups, ONE)
    queue.signal(own, 0 if submit.again else 1)
    patches.append(functools.partial(queue.update_signal, len(queue) - 1, value=1))
    if submit.bound:
        queue.bind(dev)
    if submit.again:
        for patch in patches:
            patch()
    return queue


def check(submits, devices, kernels):
    rng = np.random.default_rng(len(submits))
    start = rng.integers(-100, 100, (model.BUFFERS, model.WORDS), dtype=np.int32)
    bufs = [filled(devices[n % 2], row) for n, row in enumerate(start)]
    signals = [devices[0].signal_t() for _ in submits]
    gates = []
    queues = [
        build(
            submit,
            devices[model.QUEUES[submit.queue][0]],
            bufs,
            kernels[model.QUEUES[submit.queue][0]],
            signals,
            number,
        )
        for number, submit in enumerate(submits)
    ]
    for number, (submit, queue) in enumerate(zip(submits, queues, strict=True)):
        note(f"{number}: {submit}")
        dev = devices[model.QUEUES[submit.queue][0]]
        if submit.gate:
            gates.append(dev.signal_t())
            type(queue)().wait(gates[-1], 1).submit(dev)
        queue.submit(dev)
    del queues
    for gate in reversed(gates):
        gate.value = 1
    for signal in signals:
        signal.wait(1)
    got = np.stack([read(buf) for buf in bufs])
    assert (got == model.run(submits, start)).all()


PATIENT = settings(deadline=None, suppress_health_check=list(HealthCheck))


@promise("queue.random_programs", "queue.in_order", "queue.side_by_side", "update.copy", "bind.works")
@needs("queues", "host_memory", "peers", "async")
@PATIENT
@given(submits=programs(computing=False))
def test_random_copies_over_two_devices_agree_with_the_model(dev, peer, submits):
    check(submits, (dev, peer), (None, None))


@promise("queue.random_programs", "queue.in_order", "queue.side_by_side", "update.exec", "bind.works")
@needs("queues", "host_memory", "peers", "async", "computes")
@PATIENT
@given(submits=programs(computing=True))
def test_random_programs_over_two_devices_agree_with_the_model(dev, peer, kernels, submits):
    check(submits, (dev, peer), (kernels, kernels.on(peer)))
