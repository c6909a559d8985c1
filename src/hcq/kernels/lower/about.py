"""What a lowered kernel says of its parameters, for drivers whose code keeps no types and names.

What does not live here: where a language puts it (its writer), and reading it (the drivers).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from hcq.kernels import types
from hcq.kernels.accesses import access_words

if TYPE_CHECKING:
    from hcq.kernels.ir import Function

MARK: Final = "hcq.kernel "
"""What stands before it."""


def of(function: Function, name: str) -> dict[str, Any]:
    """The entry's name; its buffers and values by name, in the order of launches; what it does to buffers; what values
    are held in, by the keys of VALUE_TYPES."""
    values = [types.element_of(each.type) for each in function.scalars]
    return {
        "name": name,
        "buffers": [each.name for each in function.pointers],
        "accesses": access_words(function),
        "values": [each.name for each in function.scalars],
        "value_types": ["boolean" if each is types.bool_ else each.name for each in values],
    }


def line(function: Function, name: str) -> str:
    """All of that in one line of text."""
    return MARK + json.dumps(of(function, name))
