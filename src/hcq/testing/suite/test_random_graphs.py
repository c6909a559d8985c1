"""Random graphs do what the same commands do one after the other, and go on doing it when their inputs change."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hcq
from hcq.testing.marks import needs, promise
from hcq.testing.suite.tools import filled, read

BUFFERS = 5
WORDS = 8
TOGETHER = {0: 0, 1: 0}  # these two inputs become one buffer in some replays


@st.composite
def commands(draw):
    kind = draw(st.sampled_from(["fill", "add", "copy"]))
    dest, a, b = (draw(st.integers(0, BUFFERS - 1)) for _ in range(3))
    words = draw(st.integers(1, WORDS // 2))
    at, from_a, from_b = (draw(st.integers(0, WORDS - words)) for _ in range(3))
    # What is read where it is written is read in the same place: else the result would depend on the kernel.
    if TOGETHER.get(a, a) == TOGETHER.get(dest, dest):
        from_a = at
    if TOGETHER.get(b, b) == TOGETHER.get(dest, dest):
        from_b = at
    return kind, (dest, at), (a, from_a), (b, from_b), words, draw(st.integers(0, 99))


def run_model(program, state):
    for kind, (dest, at), (a, from_a), (b, from_b), words, value in program:
        if kind == "fill":
            state[dest][at : at + words] = value
        elif kind == "copy":
            state[dest][at : at + words] = state[a][from_a : from_a + words]
        else:
            state[dest][at : at + words] = state[a][from_a : from_a + words] + state[b][from_b : from_b + words]


def record(program, kernels, bufs):
    def view(place, words):
        number, at = place
        return bufs[number].view(words, bufs[number].dtype, 4 * at)

    for kind, dest, a, b, words, value in program:
        if kind == "fill":
            kernels.fill(view(dest, words), vals=(words, value))
        elif kind == "copy":
            hcq.copy(view(dest, words), view(a, words))
        else:
            kernels.add(view(dest, words), view(a, words), view(b, words), vals=(words,))


@promise("graph.replay", "graph.inputs")
@needs("computes", "queues")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(commands(), min_size=1, max_size=14), st.permutations(range(BUFFERS)), st.booleans(), st.booleans())
def test_random_graphs_do_what_the_same_commands_do(dev, kernels, program, order, shared, named):
    bufs = [filled(dev, np.arange(WORDS, dtype=np.int32) + 10 * number) for number in range(BUFFERS)]
    names = {f"b{number}": buf for number, buf in enumerate(bufs)} if named else {}
    with hcq.capture(inputs=names) as g:
        record(program, kernels, bufs)
    state = [read(buf) for buf in bufs]
    for _ in range(2):
        g.replay()
        run_model(program, state)
    dev.synchronize()
    assert [read(buf).tolist() for buf in bufs] == [row.tolist() for row in state]
    if not named:
        return
    # The same buffers in other places, and perhaps one in two places.
    places = list(order)
    if shared:
        places[1] = places[0]
    moved = [state[place] for place in places]
    g.replay(**{f"b{number}": bufs[place] for number, place in enumerate(places)}).wait()
    run_model(program, moved)
    assert [read(buf).tolist() for buf in bufs] == [row.tolist() for row in state]


@promise("graph.capture", "graph.replay")
@needs("computes", "queues", "peers")
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(commands(), min_size=1, max_size=14), st.lists(st.booleans(), min_size=BUFFERS, max_size=BUFFERS))
def test_random_graphs_over_two_devices_do_what_the_same_commands_do(dev, peer, kernels, program, homes):
    there = kernels.on(peer)
    devices = [peer if home else dev for home in homes]
    bufs = [filled(on, np.arange(WORDS, dtype=np.int32) + 10 * number) for number, on in enumerate(devices)]

    class Both:
        """Kernels where the destination lives; what they read elsewhere is copied there."""

        def fill(self, out, **options):
            (there.fill if out.device == peer.dname else kernels.fill)(out, **options)

        def add(self, out, *sources, **options):
            near = []
            for source in sources:
                if source.device != out.device:
                    moved = hcq.Buffer(out.device, source.size, source.dtype).allocate()
                    hcq.copy(moved, source)
                    source = moved
                near.append(source)
            (there.add if out.device == peer.dname else kernels.add)(out, *near, **options)

    with hcq.capture() as g:
        record(program, Both(), bufs)
    state = [read(buf) for buf in bufs]
    for _ in range(3):
        g.replay()
        run_model(program, state)
    g.replay().wait()
    run_model(program, state)
    assert [read(buf).tolist() for buf in bufs] == [row.tolist() for row in state]
