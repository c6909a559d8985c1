"""The user's line is that of the code that calls, however much code came and went before."""

from __future__ import annotations

import gc

from hcq import _native


def ask(line: int, file: str) -> tuple[str, int, str]:
    """The line that code at `line` of `file` is told; its code object is gone afterwards."""
    names = {"user_line": _native.user_line}
    exec(compile("\n" * (line - 1) + "number = user_line()", file, "exec"), names)
    return _native.line_of(names["number"])


def test_code_that_came_and_went_lends_no_line_to_what_takes_its_place():
    for _round in range(3):
        for line in range(1, 1500):
            file = f"made_{line % 3}.py"
            assert ask(line, file) == (file, line, "<module>")
        gc.collect()


def test_two_calls_on_one_line_and_two_lines_of_one_function_are_told_apart():
    numbers = []
    for _ in range(3):
        numbers.append(_native.user_line())
        numbers.append(_native.user_line()), numbers.append(_native.user_line())
    assert numbers[:3] * 3 == numbers
    assert numbers[0] != numbers[1] == numbers[2]
    (first, second) = (_native.line_of(number)[1] for number in numbers[:2])
    assert second == first + 1


def test_a_generator_and_a_callback_are_asked_for_their_own_lines():
    def later():
        yield _native.user_line()
        yield _native.user_line()

    one, two = later()
    assert _native.line_of(two)[1] == _native.line_of(one)[1] + 1
    called = sorted([3, 1, 2], key=lambda value: (_native.user_line(), value)[1])
    assert called == [1, 2, 3]
