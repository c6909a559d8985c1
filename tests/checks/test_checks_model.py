"""The model of the checks, against all schedules of small programs, by brute force."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hcq.validation import deadlocks
from hcq.validation.clocks import is_before, join, meet
from hcq.validation.events import READ, UNKNOWN, WRITE, Access, Deed, Link, Set, Site, Wait, Work
from hcq.validation.intervals import Intervals
from hcq.validation.model import Model
from hcq.validation.report import Kind

QUEUES, SIGNALS, CELLS = ("q0", "q1", "q2"), ("s", "t"), 3

accesses = st.builds(
    lambda first, size, kind: Access("memory", first, first + size, kind),
    st.integers(0, CELLS - 1), st.integers(1, 2), st.sampled_from([READ, WRITE, READ | WRITE]),
)  # fmt: skip


class Program:
    """Steps of the host, some of which submit commands. Every piece of work has a name of its own."""

    def __init__(self, steps):
        self.steps = steps


@st.composite
def programs(draw, one_setter=False):
    names = itertools.count()
    highest = dict.fromkeys(SIGNALS, 0)
    owner = {signal: draw(st.sampled_from(("host", *QUEUES))) for signal in SIGNALS}

    def setting(agent):
        mine = [signal for signal in SIGNALS if not one_setter or owner[signal] == agent]
        if not mine:
            return None
        signal = draw(st.sampled_from(mine))
        value = draw(st.integers(1, 3))
        if one_setter:
            value = highest[signal] = max(value, highest[signal])
        return Set(signal, value)

    steps = []
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(["submit", "submit", "submit", "wait", "set", "touch"]))
        if kind == "submit":
            queue, commands = draw(st.sampled_from(QUEUES)), []
            for _ in range(draw(st.integers(1, 3))):
                what = draw(st.sampled_from(["work", "wait", "set"]))
                if what == "work":
                    commands.append(Work(f"w{next(names)}", (draw(accesses),)))
                elif what == "wait":
                    commands.append(Wait(draw(st.sampled_from(SIGNALS)), draw(st.integers(1, 3))))
                elif (command := setting(queue)) is not None:
                    commands.append(command)
            steps.append(("submit", queue, commands))
        elif kind == "wait":
            steps.append(("wait", draw(st.sampled_from(SIGNALS)), draw(st.integers(1, 3))))
        elif kind == "set" and (command := setting("host")) is not None:
            steps.append(("set", command.signal, command.value))
        elif kind == "touch":
            steps.append(("touch", f"w{next(names)}", draw(accesses)))
    return Program(steps)


def told(program):
    """What the model finds, and whether the host got to the end."""
    model, found = Model(), []
    for step in program.steps:
        if step[0] == "submit":
            _, queue, commands = step
            found += model.submit(queue, [(c, Deed(getattr(c, "name", ""), queue)) for c in commands])
        elif step[0] == "wait":
            signal = model.signal(step[1], step[1], lambda: 0)
            if signal.reaching(step[2]) is None:
                return found, False
            model.waited(step[1], step[2])
        elif step[0] == "set":
            found += model.set(step[1], step[2], Deed("set", "host"))
        else:
            found += model.touch(step[2], Deed(step[1], "host"))
    return found, True


def orders(program):
    """All (a, b) of names of work such that in some schedule a runs, and after it b."""
    submitted = {}  # queue -> commands, with the host's step that submits each
    for at, step in enumerate(program.steps):
        if step[0] == "submit":
            submitted.setdefault(step[1], []).extend((at, command) for command in step[2])
    queues = list(submitted)
    possible, seen = set(), set()

    def visit(host, places, values, done):
        state = (host, places, values)
        if state in seen:
            return
        seen.add(state)

        def ran(name):
            possible.update((before, name) for before in done)
            return done | {name}

        if host < len(program.steps):
            step = program.steps[host]
            if step[0] == "wait":
                if dict(values)[step[1]] >= step[2]:
                    visit(host + 1, places, values, done)
            elif step[0] == "set":
                visit(host + 1, places, tuple({**dict(values), step[1]: step[2]}.items()), done)
            elif step[0] == "touch":
                visit(host + 1, places, values, ran(step[1]))
            else:
                visit(host + 1, places, values, done)
        for i, queue in enumerate(queues):
            if places[i] == len(submitted[queue]) or submitted[queue][places[i]][0] >= host:
                continue
            command = submitted[queue][places[i]][1]
            further = (*places[:i], places[i] + 1, *places[i + 1 :])
            if isinstance(command, Wait):
                if dict(values)[command.signal] >= command.value:
                    visit(host, further, values, done)
            elif isinstance(command, Set):
                visit(host, further, tuple({**dict(values), command.signal: command.value}.items()), done)
            else:
                visit(host, further, values, ran(command.name))

    visit(0, (0,) * len(queues), tuple(dict.fromkeys(SIGNALS, 0).items()), frozenset())
    return possible


def races(found):
    return {frozenset(deed.name for deed in finding.deeds) for finding in found if finding.kind is Kind.RACE}


def conflicts(program):
    work = {}
    for step in program.steps:
        if step[0] == "submit":
            work.update({c.name: c.accesses[0] for c in step[2] if isinstance(c, Work)})
        elif step[0] == "touch":
            work[step[1]] = step[2]
    for a, b in itertools.combinations(work, 2):
        x, y = work[a], work[b]
        if max(x.first, y.first) < min(x.last, y.last) and (x.kind | y.kind) & WRITE:
            yield a, b


@given(programs())
def test_every_race_that_is_told_can_come_either_way(program):
    found, _ = told(program)
    assume(not any(finding.kind is Kind.SIGNAL for finding in found))
    possible = orders(program)
    for pair in races(found):
        a, b = pair
        assert (a, b) in possible and (b, a) in possible


@given(programs(one_setter=True))
def test_where_one_agent_sets_a_signal_every_conflict_that_can_come_either_way_is_told(program):
    found, ended = told(program)
    assume(ended)
    assert not any(finding.kind is Kind.SIGNAL for finding in found)
    possible, reported = orders(program), races(found)
    hidden = set()  # behind a write that is itself in a race with both, or ordered with one: the model keeps the later
    for a, b in conflicts(program):
        if (a, b) in possible and (b, a) in possible and frozenset((a, b)) not in reported:
            hidden.add((a, b))
    for a, b in hidden:
        assert any(a in pair or b in pair for pair in reported), f"{a} and {b} are in a race, and neither is told"


pendings = st.dictionaries(
    st.sampled_from(QUEUES),
    st.lists(
        st.one_of(
            st.builds(Wait, st.sampled_from("stu"), st.integers(1, 2)),
            st.builds(Set, st.sampled_from("stu"), st.integers(1, 2)),
        ),
        max_size=4,
    ),
)


@given(pendings, st.dictionaries(st.sampled_from("stu"), st.integers(0, 1)))
def test_deadlocks_are_the_sets_of_queues_that_only_themselves_could_free(pending, values):
    found = deadlocks.find(pending, lambda signal: values.get(signal, 0))
    stuck, left = _run(pending, values)
    expected = set()
    for count in range(1, len(stuck) + 1):
        for some in itertools.combinations(stuck, count):
            if all(_meant(left, left[q][0]) and _setters(left, left[q][0]) <= set(some) for q in some):
                expected |= set(some)
    assert set(found) == expected


submits = st.lists(
    st.tuples(
        st.sampled_from(QUEUES),
        st.lists(
            st.one_of(
                st.builds(Wait, st.sampled_from("stu"), st.integers(1, 3)),
                st.builds(Set, st.sampled_from("stu"), st.integers(1, 3)),
            ),
            min_size=1,
            max_size=3,
        ),
    ),
    max_size=8,
)


@given(submits)
def test_what_is_told_without_a_look_at_all_that_is_queued_closes_no_cycle(submits):
    model = Model()
    for queue, commands in submits:
        told = [(command, deed(str(command), queue)) for command in commands]
        quick = model.deadlock(queue, told)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(model, "_closes_nothing", lambda queue, commands: False)
            assert (model.deadlock(queue, told) is None) is (quick is None)
        if quick is None:
            model.submit(queue, told)


def _run(pending, values):
    left, values = {queue: list(commands) for queue, commands in pending.items()}, dict(values)
    moved = True
    while moved:
        moved = False
        for commands in left.values():
            while commands and (isinstance(commands[0], Set) or values.get(commands[0].signal, 0) >= commands[0].value):
                command = commands.pop(0)
                if isinstance(command, Set):
                    values[command.signal] = max(values.get(command.signal, 0), command.value)
                moved = True
    return [queue for queue, commands in left.items() if commands], left


def _meant(left, wait):
    every = [command for commands in left.values() for command in commands]
    return any(isinstance(c, Set) and (c.signal, c.value) == (wait.signal, wait.value) for c in every)


def _setters(left, wait):
    return {
        queue
        for queue, commands in left.items()
        for command in commands
        if isinstance(command, Set) and command.signal == wait.signal and command.value >= wait.value
    }


ranges = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=12)


@given(ranges, st.integers(0, 30), st.integers(0, 30))
def test_intervals_are_sets_of_bytes(added, first, last):
    intervals, expected = Intervals(), set()
    for a, b in added:
        intervals.add(a, b)
        expected |= set(range(a, b))
    assert intervals.covers(first, last) == (set(range(first, last)) <= expected)
    within = [set(range(a, b)) for a, b in intervals.within(first, last)]
    assert set().union(*within) == expected & set(range(first, last))
    assert sum(map(len, within)) == len(set().union(*within))


clocks = st.dictionaries(st.sampled_from("abc"), st.integers(1, 3))


@given(clocks, clocks)
def test_join_comes_after_both_and_meet_before_both(a, b):
    both, common = join(a, b), meet([a, b])
    assert is_before(a, both) and is_before(b, both) and is_before(common, a) and is_before(common, b)
    past = lambda clock: {(agent, n) for agent, count in clock.items() for n in range(1, count + 1)}  # noqa: E731
    assert past(both) == past(a) | past(b)
    assert past(common) == past(a) & past(b)


# What schedules don't tell: kinds of findings, and the words


def one(name, kind, first=0, last=8, region=0):
    return Work(name, (Access("memory", first, last, kind, "buffer 0", region),))


def deed(name, queue="a queue", line=1):
    return Deed(name, queue, Site("user.py", line, "main"))


def test_a_race_names_both_lines_and_the_buffer():
    model = Model()
    model.allocate(1, "memory", 0, 64, "buffer x", Site("user.py", 3))
    assert not model.submit("q0", [(one("fill", WRITE), deed("fill", "q0", 10))])
    (finding,) = model.submit("q1", [(one("sum", READ), deed("sum", "q1", 11))])
    assert finding.kind is Kind.RACE and not finding.possible
    for word in ("user.py:10", "user.py:11", "user.py:3", "fill", "sum", "bytes 0 to 7 of buffer x"):
        assert word in finding.text


def test_an_unknown_access_makes_a_conflict_possible_only():
    for kind in (READ, WRITE, UNKNOWN):
        model = Model()
        model.submit("q0", [(one("a", kind), deed("a"))])
        (finding,) = model.submit("q1", [(one("b", UNKNOWN), deed("b"))])
        assert finding.kind is Kind.RACE and finding.possible


def test_memory_that_is_handed_out_early_is_reuse():
    for reached in (False, True):
        model = Model()
        model.allocate(1, "memory", 0, 64, "x", Site("user.py", 1))
        model.submit("q0", [(one("old", WRITE, 0, 64), deed("old")), (Set("s", 1), deed("set"))])
        model.free(1, Site("user.py", 2))
        model.allocate(2, "memory", 32, 96, "y", Site("user.py", 3), lambda signal, value, r=reached: r)
        assert not model.submit("q1", [(one("elsewhere", WRITE, 64, 96), deed("elsewhere"))])
        found = model.submit("q1", [(one("new", WRITE, 32, 40), deed("new"))])
        kinds = [finding.kind for finding in found]
        assert (Kind.REUSE in kinds or Kind.RACE in kinds) is not reached


def test_what_is_queued_before_a_free_may_run_after_it_and_what_comes_later_may_not():
    model = Model()
    model.allocate(1, "memory", 0, 64, "x", Site("user.py", 1))
    assert not model.submit("q0", [(Wait("s", 1), deed("wait")), (one("before", READ | WRITE), deed("before"))])
    model.free(1, Site("user.py", 2))
    (finding,) = model.submit("q0", [(one("after", READ | WRITE), deed("after"))])
    assert finding.kind is Kind.AFTER_FREE and "freed at user.py:2" in finding.text
    assert not model.set("s", 1, deed("set"))


def test_kernargs_that_name_memory_of_before_are_use_after_free():
    model = Model()
    model.allocate(1, "memory", 0, 64, "x", None)
    model.free(1, None)
    model.allocate(2, "memory", 0, 64, "y", None)
    assert not model.submit("q0", [(one("right", WRITE, region=2), deed("right"))])
    (finding,) = model.submit("q0", [(one("stale", WRITE, region=1), deed("stale"))])
    assert finding.kind is Kind.AFTER_FREE and "now y" in finding.text


def test_reads_of_what_was_never_written():
    model = Model()
    model.allocate(1, "memory", 0, 64, "x", None)
    (finding,) = model.submit("q0", [(one("reader", READ), deed("reader"))])
    assert finding.kind is Kind.UNWRITTEN and not finding.possible
    model.submit("q0", [(one("writer", WRITE, 0, 4), deed("writer"))])
    (finding,) = model.submit("q0", [(one("in part", READ), deed("in part"))])
    assert finding.kind is Kind.UNWRITTEN and finding.possible
    assert not model.submit("q0", [(one("mended", READ, 0, 4), deed("mended"))])


def test_a_copy_of_what_was_never_written_is_never_written():
    model = Model()
    model.allocate(1, "memory", 0, 64, "x", None)
    model.allocate(2, "memory", 64, 128, "y", None)
    model.submit("q0", [(one("writer", WRITE, 0, 32), deed("writer"))])
    move = Work("copy", (Access("memory", 0, 64, READ), Access("memory", 64, 128, WRITE)), moves=True)
    assert not model.submit("q0", [(move, deed("copy"))])
    assert not model.submit("q0", [(one("right", READ, 64, 96), deed("right"))])
    (finding,) = model.submit("q0", [(one("wrong", READ, 96, 128), deed("wrong"))])
    assert finding.kind is Kind.UNWRITTEN and not finding.possible


def test_memory_that_the_host_may_write_unseen_is_not_said_to_be_unwritten():
    model = Model()
    model.allocate(1, "memory", 0, 64, "x", None)
    model.share(1)
    assert not model.submit("q0", [(one("reader", READ), deed("reader"))])


def test_a_signal_that_goes_back_under_a_wait():
    model = Model()
    model.submit("q0", [(Set("s", 5), deed("five"))])
    model.submit("q1", [(Wait("s", 5), deed("wait")), (Set("t", 1), deed("done"))])
    (finding,) = model.set("s", 0, deed("reset", line=7))
    assert finding.kind is Kind.SIGNAL and "user.py:7" in finding.text
    mended = Model()
    mended.submit("q0", [(Set("s", 5), deed("five"))])
    mended.submit("q1", [(Wait("s", 5), deed("wait")), (Set("t", 1), deed("done"))])
    mended.waited("t", 1)
    assert not mended.set("s", 0, deed("reset"))
    assert not mended.submit("q1", [(Wait("s", 1), deed("wait again"))])
    assert mended.machine.standing() == {"q1": Wait("s", 1)}


def test_a_reset_signal_orders_nothing_of_before():
    model = Model()
    model.submit("q0", [(Set("s", 1), deed("set"))])
    model.waited("s", 1)
    model.set("s", 0, deed("reset"))
    model.submit("q1", [(Wait("s", 1), deed("wait")), (one("reader", READ), deed("reader"))])
    (race,) = [
        f
        for f in model.submit("q0", [(Set("s", 1), deed("set again")), (one("writer", WRITE), deed("writer"))])
        if f.kind is Kind.RACE
    ]
    assert {d.name for d in race.deeds} == {"reader", "writer"}


def test_a_deadlock_is_told_before_it_is_queued():
    model = Model()
    model.submit("q0", [(Wait("s", 1), deed("first wait")), (Set("t", 1), deed("first set"))])
    closing = [(Wait("t", 1), deed("second wait", line=9)), (Set("s", 1), deed("second set"))]
    finding = model.deadlock("q1", closing)
    assert finding.kind is Kind.DEADLOCK and "user.py:9" in finding.text and "first wait" in finding.text
    assert model.deadlock("q1", closing[::-1]) is None
    model.set("s", 1, deed("python"))
    assert model.deadlock("q1", closing) is None


def test_a_launch_that_is_told_of_after_the_host_has_seen_its_end_is_late_and_nothing_goes_back():
    model = Model()
    link = lambda value: [(Link("t", value, Work(f"launch {value}")), deed(f"launch {value}"))]  # noqa: E731
    found = model.submit("compute", link(1))
    found += model.submit("copy", [(Wait("t", 2), deed("wait")), (Set("t", 3), deed("set"))])
    found += model.finish(["compute", "copy"])  # by another thread than the one that is yet to tell of launch 2
    found += model.submit("compute", link(2))
    found += model.submit("compute", link(4))
    found += model.machine.signals["t"].lost(3, deed("wait of the host"))
    found += model.submit("copy", [(Wait("t", 4), deed("wait")), (Set("t", 5), deed("set"))])
    assert not found and model.machine.signals["t"].highest == 5


def test_memory_whose_end_nobody_told_of_is_not_called_freed():
    model = Model()
    model.allocate(1, "memory", 0, 64, "buffer x", None)
    model.allocate(2, "memory", 16, 32, "buffer y", None)  # of a driver that let go of it all at once
    assert not model.submit("q0", [(one("fill", WRITE, 32, 40), deed("fill"))])
    model.free(2, None)
    model.allocate(3, "memory", 16, 24, "buffer z", None)
    (finding,) = model.submit("q0", [(one("fill", WRITE, 24, 32), deed("fill"))])
    assert finding.kind is Kind.AFTER_FREE


def test_memory_of_an_owner_that_is_gone_is_nobodys():
    model, owner = Model(), object()
    model.allocate(1, "memory", 0, 64, "buffer x", None, owner=owner)
    model.allocate(2, "memory", 64, 128, "buffer y", None, owner=owner)
    model.free(1, None)
    model.memory.forget_of(owner)
    for first in (0, 64):
        assert not model.submit("q0", [(one("fill", WRITE, first, first + 8), deed("fill"))])
        assert model.memory.find("memory", first) is None
