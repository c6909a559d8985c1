"""Grid kernels in LLVM IR with any control flow: random kernels beside a plain model."""

from __future__ import annotations

import llvm_programs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llvm_runner import Loaded

from hcq.drivers.cpu import llvm_loops

pytestmark = pytest.mark.thorough

sizes = st.tuples(st.integers(1, 19), st.integers(1, 3), st.integers(1, 3))
groups = st.tuples(st.integers(1, 3), st.integers(1, 2), st.integers(1, 2))
some = settings(max_examples=max(settings().max_examples // 2, 10))


def check(program, group_counts, local, n, bare=False):
    items = local[0] * local[1] * local[2]
    total = items * group_counts[0] * group_counts[1] * group_counts[2]
    source = llvm_programs.module(program, items, bare)
    out = np.zeros(total * llvm_programs.VARIABLES, "u4")
    Loaded(source).run("f", out, n, global_size=group_counts, local_size=local)
    expected = np.array(llvm_programs.run(program, group_counts, local, n), "u4")
    np.testing.assert_array_equal(out, expected)  # names what differs at once, where a diff of lists takes minutes


# An array is written at an index that was read from it, then read.
SHUFFLED = [
    ("put", ("op", "xor", ("array", ("const", 38)), ("op", "xor", ("var", 1), ("var", 0))), ("array", ("n",))),
    ("put", ("array", ("var", 0)), ("const", 1)),
    ("set", 1, ("array", ("const", 31))),
]


def test_private_arrays_keep_the_order_of_accesses():
    check(SHUFFLED, (1, 1, 1), (9, 1, 1), -1)


# Items leave for code that others reach by a branch that all take alike.
LEAVING = [
    ("if", ("eq", ("n",), ("const", 0)),
        [("return", ("ult", ("const", 40), ("n",)))],
        [("if", ("ult", ("id", "local", 0), ("const", 1)), [], [("put", ("const", 1), ("const", -1))])]),
    ("return", ("ugt", ("array", ("const", 13)), ("const", 1))),
    ("if", ("slt", ("n",), ("const", 9)), [("set", 2, ("const", 1))], [("barrier",)]),
]  # fmt: skip


@pytest.mark.parametrize("n", [0, 6, 9, 50])
def test_items_may_leave_for_where_all_others_go_later(n):
    check(LEAVING, (1, 1, 1), (5, 1, 1), n)


# Some items go round a loop, and leave, past a barrier that others come to.
PASSING = [
    ("loop", ("op", "and", ("op", "add", ("const", 1), ("id", "local", 0)), ("const", 3)),
        [("if", ("eq", ("const", 0), ("id", "local", 2)), [("set", 0, ("const", 0))], [("barrier",)])]),
]  # fmt: skip


@pytest.mark.parametrize("local", [(1, 1, 2), (3, 2, 2), (1, 1, 1)])
def test_items_may_leave_past_a_barrier_that_others_come_to(local):
    check(PASSING, (1, 1, 1), local, 0)


@some
@given(program=llvm_programs.statements(together=True), group_counts=groups, local=sizes, n=st.integers(-4, 9))
def test_items_that_meet_at_the_same_barriers_see_each_other(program, group_counts, local, n):
    check(program, group_counts, local, n)


@some
@given(program=llvm_programs.statements(together=False), group_counts=groups, local=sizes, n=st.integers(-4, 9))
def test_items_keep_their_own_values_across_barriers_that_not_all_reach(program, group_counts, local, n):
    check(program, group_counts, local, n)


@pytest.fixture(scope="module")
def every_loop_together():
    """Every innermost loop without a barrier is gone round together, whether that is worth it or not."""

    def all_innermost(pieces, _definitions):
        found = llvm_loops.natural_loops(pieces)
        inner = (h for h, body in found.items() if not any(o != h and o in body for o in found))
        return {h for h in inner if not any(pieces[p].barrier for p in found[h])}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llvm_loops, "worth_sharing", all_innermost)
        yield


@some
@given(program=llvm_programs.loops(), group_counts=groups, local=sizes, n=st.integers(-4, 9))
def test_a_group_goes_round_loops_together(every_loop_together, program, group_counts, local, n):
    check(program, group_counts, local, n, bare=True)


@some
@given(program=llvm_programs.statements(together=True), group_counts=groups, local=sizes, n=st.integers(-4, 9))
def test_a_group_goes_round_loops_together_between_barriers(every_loop_together, program, group_counts, local, n):
    check(program, group_counts, local, n)
