"""What is known of a loop while it is translated: where it is left, and what is assumed of its variables.

What does not live here: translating it (loops).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hcq.kernels import types
from hcq.kernels.frontend.values import Array, Missing, Weak, is_number, is_pointer, pointer_type
from hcq.kernels.ir import Value

if TYPE_CHECKING:
    import ast
    from collections.abc import Sequence

    from hcq.kernels.frontend.core import Core
    from hcq.kernels.ir import Block, Op
    from hcq.kernels.types import Scalar, Type


class Site:
    """A `continue` or `break`, whose operands are filled in when the loop's types are known."""

    __slots__ = ("block", "env", "node", "op")

    def __init__(self, block: Block, op: Op, env: dict[str, Any], node: ast.AST) -> None:
        self.block = block
        self.op = op
        self.env = env
        self.node = node


class Loop:
    """A loop while its body is translated. `unrolled`: there is no operation, and leaving must be decided at once."""

    def __init__(self, depth: int, unrolled: bool = False) -> None:
        self.depth = depth
        self.unrolled = unrolled
        self.left = ""  # unrolled: how this round ended
        self.continues: list[Site] = []
        self.breaks: list[Site] = []


class Plan:
    """What is assumed of the variables that a loop's body assigns."""

    def __init__(self, core: Core, node: ast.stmt, names: Sequence[str]) -> None:
        self.initial: dict[str, Any] = {}
        self.types: dict[str, Type] = {}
        self.weak: set[str] = set()
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.kept: dict[str, Any] = {}
        self.broken: dict[str, Missing] = {}
        env = core.frame.env
        for name in names:
            value = env.get(name)
            if value is None and name not in env:
                continue
            if isinstance(value, Missing):
                self.broken[name] = value
            elif is_number(value):
                self.initial[name] = value
                if isinstance(value, Value):
                    self.types[name] = value.type
                else:
                    self.types[name] = value.type if isinstance(value, Weak) else _alone(core, node, value)
                    self.weak.add(name)
            elif isinstance(value, Array) or is_pointer(value):
                self.initial[name] = value
                self.types[name] = pointer_type(value.pointer if isinstance(value, Array) else value)
                if isinstance(value, Array):
                    self.shapes[name] = value.shape
            else:
                self.kept[name] = value

    def shaped(self, name: str, value: Value) -> Any:
        """An array, where the variable is one and `value` its pointer."""
        return Array(value, self.shapes[name]) if name in self.shapes else value

    def settle(self, name: str, type_: Type) -> None:
        """A weak variable turns out to be of that type."""
        self.types[name] = type_
        self.weak.discard(name)

    def give_up(self, name: str, why: Missing) -> None:
        """The variable can't be carried; reading it will be an error."""
        self.types.pop(name, None)
        self.weak.discard(name)
        self.kept.pop(name, None)
        self.initial.pop(name, None)
        self.broken[name] = why


def _alone(core: Core, node: ast.AST, value: Any) -> Scalar:
    try:
        return types.of_weak(value)
    except OverflowError as error:
        raise core.error(node, str(error)) from None
