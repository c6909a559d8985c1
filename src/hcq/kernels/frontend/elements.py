"""What values have: elements by a subscript, and attributes.

What does not live here: loads and stores by methods (memory), assignment to elements (statements).
"""

from __future__ import annotations

import ast
import types as python_types
from typing import Any, Final

from hcq.kernels import types
from hcq.kernels.builtins import PointerForm, VectorForm
from hcq.kernels.frontend.expressions import Expressions
from hcq.kernels.frontend.values import Array, Method, describe, is_number, is_pointer, pointer_type
from hcq.kernels.ir import Value

_METHODS: Final = {
    "pointer": ("load", "store"),
    "vector": ("sum", "min", "max"),
}


class Elements(Expressions):
    """Subscripts and attributes."""

    def on_Subscript(self, node: ast.Subscript) -> Any:
        owner = self.expr(node.value)
        if is_pointer(owner) or isinstance(owner, Array):
            return self.build.load(*self.place(node, owner))
        if isinstance(owner, Value) and isinstance(owner.type, types.Vector):
            lane = self.lane(node, owner.type.lanes)
            return self.build.op("extract", (owner,), (owner.type.element,), lane=lane).result
        if isinstance(owner, tuple):
            return owner[self.lane(node, len(owner))]
        key = self.expr(node.slice)
        if isinstance(owner, (PointerForm, VectorForm)):
            try:
                return owner[key]
            except TypeError as error:
                raise self.error(node, str(error)) from None
        raise self.error(node, f"{describe(owner)} has no elements", "pointers, arrays, vectors and tuples have")

    def lane(self, node: ast.Subscript, count: int) -> int:
        """A constant subscript."""
        at = self.static_int(node.slice, self.expr(node.slice), "the index of a vector or tuple")
        if not -count <= at < count:
            raise self.error(node.slice, f"there is no element {at}: there are {count}")
        return at % count

    def place(self, node: ast.Subscript, owner: Any) -> tuple[Value, Value]:
        """Pointer and index of `owner[...]`."""
        key = self.expr(node.slice)
        if not isinstance(owner, Array):
            if isinstance(key, tuple):
                raise self.error(
                    node.slice, "a buffer has one dimension in a kernel", "compute the index: x[row * columns + column]"
                )
            return owner, self.index(node.slice, key)
        keys = key if isinstance(key, tuple) else (key,)
        if len(keys) != len(owner.shape):
            raise self.error(node.slice, f"the array has {len(owner.shape)} dimensions, and {len(keys)} are given")
        for each, count in zip(keys, owner.shape, strict=True):
            if isinstance(each, int) and not 0 <= each < count:
                raise self.error(node.slice, f"there is no element {each}: there are {count}")
        at: Any = keys[0]
        for each, count in zip(keys[1:], owner.shape[1:], strict=True):
            at = self.operator(node.slice, "+", self.operator(node.slice, "*", at, count), each)
        return owner.pointer, self.index(node.slice, at)

    def on_Attribute(self, node: ast.Attribute) -> Any:
        owner = self.expr(node.value)
        name = node.attr
        if isinstance(owner, Array) or is_pointer(owner):
            pointer = owner.pointer if isinstance(owner, Array) else owner
            if name == "dtype":
                return pointer_type(pointer).element
            if name == "shape" and isinstance(owner, Array):
                return owner.shape
            if name in _METHODS["pointer"]:
                return Method(pointer, name)
            raise self.error(node, f"{describe(owner)} has no {name}", "it has load, store and dtype")
        if is_number(owner):
            return self.of_number(node, owner, name)
        if isinstance(owner, (python_types.ModuleType, type)):
            try:
                return self.constant(getattr(owner, name))
            except AttributeError as error:
                raise self.error(node, str(error)) from None
        if isinstance(owner, (types.Scalar, types.Vector)) and name in ("bits", "itemsize", "name", "lanes", "element"):
            if hasattr(owner, name):
                return getattr(owner, name)
            raise self.error(node, f"{owner} has no {name}")
        if isinstance(owner, types.Scalar) and name in ("is_float", "is_integer", "range", "kind"):
            return getattr(owner, name)
        raise self.error(
            node,
            f"a kernel can't look into {describe(owner)}",
            "it uses numbers, types, functions, and what modules have: keep the value in a variable outside",
        )

    def of_number(self, node: ast.Attribute, owner: Any, name: str) -> Any:
        """`v.dtype` and the like."""
        if name == "dtype":
            return types.element_of(self.typed(node, owner).type)
        vector = isinstance(owner, Value) and isinstance(owner.type, types.Vector)
        if name == "lanes":
            return owner.type.lanes if vector else 1
        if vector and name in _METHODS["vector"]:
            return Method(owner, name)
        raise self.error(node, f"{describe(owner)} has no {name}")
