"""Integer, bit and video instructions of PTX give what the model gives, at every edge and at random."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from integer_model import CASES as INTEGERS
from integer_model import Case, width
from opcodes import ROOM, Opcodes
from video_model import CASES as VIDEO

CASES = [*INTEGERS, *VIDEO]


@pytest.fixture(scope="module")
def opcodes() -> Opcodes:
    return Opcodes(CASES, together=40)


def edges(bits: int) -> list[int]:
    top = 1 << (bits - 1)
    return [0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 255, 256, top - 1, top, top + 1, 2 * top - 1, 2 * top - 2]


def operands(draw: random.Random, case: Case) -> list[tuple[int, ...]]:
    def one(type: str) -> int:
        bits = width(type)
        kind = draw.random()
        if kind < 0.5:
            return draw.choice(edges(bits)) & ((1 << bits) - 1)
        return draw.getrandbits(bits) >> (draw.randrange(bits) if kind < 0.75 else 0)

    return [tuple(one(type) for type in case.sources) for _ in range(ROOM)]


def wrong(case: Case, given: list[tuple[int, ...]], results: list[int]) -> list[str]:
    return [
        f"{case.text} of {[hex(x) for x in each]}: {got:#x}, should be {case.expected(each):#x}"
        for each, got in zip(given, results, strict=True)
        if got != case.expected(each)
    ]


def test_every_instruction_agrees_with_the_model_at_edges_and_at_random(opcodes: Opcodes) -> None:
    draw = random.Random(8)
    for _ in range(3):
        given = {id(each): operands(draw, each) for each in CASES}
        results = opcodes.run_all(given, CASES)
        found = [line for each, got in zip(CASES, results, strict=True) for line in wrong(each, given[id(each)], got)]
        assert not found, "\n".join(found[:30])


@settings(max_examples=60, deadline=None, database=None)
@given(data=st.data())
def test_operands_that_are_sought_find_no_disagreement(opcodes: Opcodes, data: st.DataObject) -> None:
    case = data.draw(st.sampled_from(CASES))
    each = tuple(
        data.draw(st.sampled_from(edges(width(t))).map(lambda x, t=t: x % (1 << width(t)))
                  | st.integers(0, (1 << width(t)) - 1))
        for t in case.sources
    )  # fmt: skip
    assert not wrong(case, [each], opcodes.run(case, [each]))
