"""hcq.runtime.tuples: named tuples that behave as typing's do, of which type checkers take them for."""

import pickle
import typing

import pytest

from hcq.runtime import tuples


class Ours(tuples.NamedTuple):
    name: str
    size: int = 4
    where: typing.Any = None

    @property
    def double(self):
        return 2 * self.size


class Theirs(typing.NamedTuple):
    name: str
    size: int = 4
    where: typing.Any = None


@pytest.mark.parametrize(
    ("given", "named"), [(("a",), {}), (("a", 2, 3), {}), (("a",), {"where": 1}), ((), {"size": 0, "name": "b"})]
)
def test_arguments_are_taken_and_shown_as_typings_are(given, named):
    ours, theirs = Ours(*given, **named), Theirs(*given, **named)
    assert ours == theirs and hash(ours) == hash(theirs)
    assert [ours.name, ours.size, ours.where] == list(theirs)
    assert repr(ours) == repr(theirs).replace("Theirs", "Ours")
    assert ours._asdict() == theirs._asdict() and ours._fields == theirs._fields
    assert ours._replace(size=7) == theirs._replace(size=7) and ours.double == 2 * theirs.size
    assert type(ours._replace(size=7)) is Ours


@pytest.mark.parametrize(
    ("given", "named"), [((), {}), (("a", 1, 2, 3), {}), (("a",), {"name": "b"}), (("a",), {"other": 1})]
)
def test_wrong_arguments_are_a_type_error_that_lists_the_fields(given, named):
    with pytest.raises(TypeError, match="name, size, where"):
        Ours(*given, **named)


def test_they_travel_match_and_take_no_further_attributes():
    ours = Ours("a", 2)
    copied = pickle.loads(pickle.dumps(ours))
    assert copied == ours and type(copied) is Ours
    match ours:
        case Ours(name, size):
            assert (name, size) == ("a", 2)
    with pytest.raises(AttributeError):
        ours.further = 1
    with pytest.raises(AttributeError):
        ours.size = 1
