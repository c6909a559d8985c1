"""Where a work-item is, memory, atomic operations, and sub-groups.

What does not live here: `x[i]` (expressions, statements).
"""

from __future__ import annotations

import ast
import math
from typing import Any, Final

from hcq.kernels import types
from hcq.kernels.frontend.functions import Functions
from hcq.kernels.frontend.values import Array, describe, is_pointer, pointer_type
from hcq.kernels.ir import Op, Value

_MEMORY_SIZE: Final = 1 << 20
_INTEGER_ATOMICS: Final = ("and", "or", "xor")


class Memory(Functions):
    """A method `do_NAME` for each builtin."""

    # Where a work-item is

    def place_of(self, node: ast.Call, kind: str, dim: Any) -> Value:
        at = self.static_int(node, dim, "a dimension")
        if not 0 <= at <= 2:
            raise self.error(node, f"there is no dimension {at}: they are 0, 1 and 2")
        return self.build.id(kind, at)

    def do_global_id(self, node: ast.Call, dim: Any = 0) -> Value:
        return self.place_of(node, "global_id", dim)

    def do_local_id(self, node: ast.Call, dim: Any = 0) -> Value:
        return self.place_of(node, "local_id", dim)

    def do_group_id(self, node: ast.Call, dim: Any = 0) -> Value:
        return self.place_of(node, "group_id", dim)

    def do_global_size(self, node: ast.Call, dim: Any = 0) -> Value:
        return self.place_of(node, "global_size", dim)

    def do_local_size(self, node: ast.Call, dim: Any = 0) -> Value:
        return self.place_of(node, "local_size", dim)

    def do_num_groups(self, node: ast.Call, dim: Any = 0) -> Value:
        return self.place_of(node, "num_groups", dim)

    # Memory

    def do_local(self, node: ast.Call, type: Any, count: Any) -> Array:
        return self.array(node, "local", type, count)

    def do_private(self, node: ast.Call, type: Any, count: Any) -> Array:
        return self.array(node, "private", type, count)

    def array(self, node: ast.Call, space: Any, type_: Any, count: Any) -> Array:
        """An array at the top of the kernel: each place in the text has one of its own."""
        try:
            element = types.of_dtype(type_)
        except TypeError:
            raise self.error(
                node, f"an array's elements are of a type such as hcq.f32, not {describe(type_)}"
            ) from None
        shape = tuple(
            self.static_int(node, each, "the size of an array")
            for each in (count if isinstance(count, tuple) else (count,))
        )
        if not shape or any(each < 1 for each in shape):
            raise self.error(node, f"an array of shape {shape} has no elements")
        total = math.prod(shape)
        if total * element.itemsize > _MEMORY_SIZE:
            raise self.error(node, f"{total * element.itemsize} bytes of {space} memory", "an array has 1 MiB at most")
        location = self.locate(node)
        name = f"{space}{len(self.arrays)}"
        op = Op(space, (), (types.pointer(element, space),), {"name": name, "count": total}, location=location)
        self.arrays.append(op)
        return Array(op.result, shape)

    def do_barrier(self, node: ast.Call) -> None:
        self.build.op("barrier")

    def do_static_range(self, node: ast.Call, *bounds: Any) -> Any:
        raise self.error(node, "static_range belongs into 'for i in hcq.static_range(n):'")

    def do_load(self, node: ast.Call, pointer: Value, index: Any, lanes: Any = 1) -> Value:
        count = self.lanes(node, lanes)
        return self.build.load(pointer, self.index(node, index), count)

    def do_store(self, node: ast.Call, pointer: Value, index: Any, value: Any) -> None:
        self.number(node, value, "what is stored")
        place = self.index(node, index)
        self.build.store(pointer, place, self.stored(node, value, pointer_type(pointer).element))

    def lanes(self, node: ast.Call, lanes: Any) -> int:
        count = self.static_int(node, lanes, "the number of lanes")
        if count != 1 and count not in types.LANES:
            raise self.error(node, f"a load has 1, 2, 4, 8 or 16 lanes, not {count}")
        return count

    # Atomics

    def atomic(self, node: ast.Call, how: str, pointer: Any, index: Any, *values: Any) -> Value:
        place = pointer.pointer if isinstance(pointer, Array) else pointer
        if not is_pointer(place):
            raise self.error(node, f"an atomic operation works on a pointer and an index, not on {describe(pointer)}")
        type_ = pointer_type(place)
        element = type_.element
        if type_.space == "private":
            raise self.error(node, "nobody shares a private array", "use a plain operation")
        if element.kind == "b" or element.bits < 32:
            raise self.error(node, f"no atomic operation works on {element}", "use a buffer of 32 or 64 bits")
        if element.is_float and how in _INTEGER_ATOMICS:
            raise self.error(node, f"atomic_{how} works on integers, not on {element}")
        if element.is_float and how == "cas":
            raise self.error(node, f"atomic_cas works on integers, not on {element}", "compare the bits: hcq.bitcast")
        if isinstance(pointer, Array) and len(pointer.shape) > 1:
            raise self.error(node, "an atomic operation on an array of several dimensions", "make it one-dimensional")
        at = self.index(node, index)
        given = []
        for each in values:
            self.number(node, each)
            given.append(self.scalar_of(node, self.stored(node, each, element)))
        return self.build.op("atomic", (place, at, *given), (element,), how=how).result

    def scalar_of(self, node: ast.AST, value: Value) -> Value:
        if isinstance(value.type, types.Vector):
            raise self.error(node, f"one number is expected here, not {value.type}")
        return value

    def do_atomic_add(self, node: ast.Call, pointer: Any, index: Any, value: Any) -> Value:
        return self.atomic(node, "add", pointer, index, value)

    def do_atomic_sub(self, node: ast.Call, pointer: Any, index: Any, value: Any) -> Value:
        place = pointer.pointer if isinstance(pointer, Array) else pointer
        if is_pointer(place):
            value = self.stored(node, self.number(node, value), pointer_type(place).element)
            value = self.negative(node, value)
        return self.atomic(node, "add", pointer, index, value)

    def do_atomic_min(self, node: ast.Call, pointer: Any, index: Any, value: Any) -> Value:
        return self.atomic(node, "min", pointer, index, value)

    def do_atomic_max(self, node: ast.Call, pointer: Any, index: Any, value: Any) -> Value:
        return self.atomic(node, "max", pointer, index, value)

    def do_atomic_and(self, node: ast.Call, pointer: Any, index: Any, value: Any) -> Value:
        return self.atomic(node, "and", pointer, index, value)

    def do_atomic_or(self, node: ast.Call, pointer: Any, index: Any, value: Any) -> Value:
        return self.atomic(node, "or", pointer, index, value)

    def do_atomic_xor(self, node: ast.Call, pointer: Any, index: Any, value: Any) -> Value:
        return self.atomic(node, "xor", pointer, index, value)

    def do_atomic_exchange(self, node: ast.Call, pointer: Any, index: Any, value: Any) -> Value:
        return self.atomic(node, "exchange", pointer, index, value)

    def do_atomic_cas(self, node: ast.Call, pointer: Any, index: Any, expected: Any, value: Any) -> Value:
        return self.atomic(node, "cas", pointer, index, value, expected)

    # Sub-groups

    def do_subgroup_size(self, node: ast.Call) -> Value:
        return self.build.op("subgroup", (), (types.i32,), kind="size").result

    def do_subgroup_lane(self, node: ast.Call) -> Value:
        return self.build.op("subgroup", (), (types.i32,), kind="lane").result

    def do_subgroup_id(self, node: ast.Call) -> Value:
        return self.build.op("subgroup", (), (types.i32,), kind="index").result

    def shuffled(self, node: ast.Call, how: str, value: Any, lane: Any) -> Value:
        given = self.scalar_of(node, self.typed(node, self.number(node, value)))
        place = self.build.cast(self.index(node, lane), types.i32)
        return self.build.op("shuffle", (given, place), (given.type,), how=how).result

    def do_shuffle(self, node: ast.Call, value: Any, lane: Any) -> Value:
        return self.shuffled(node, "index", value, lane)

    def do_shuffle_xor(self, node: ast.Call, value: Any, mask: Any) -> Value:
        return self.shuffled(node, "xor", value, mask)

    def do_shuffle_up(self, node: ast.Call, value: Any, delta: Any) -> Value:
        return self.shuffled(node, "up", value, delta)

    def do_shuffle_down(self, node: ast.Call, value: Any, delta: Any) -> Value:
        return self.shuffled(node, "down", value, delta)

    def do_subgroup_add(self, node: ast.Call, value: Any) -> Any:
        return self.library(node, "subgroup_add", self.typed(node, self.number(node, value)))

    def do_subgroup_min(self, node: ast.Call, value: Any) -> Any:
        return self.library(node, "subgroup_min", self.typed(node, self.number(node, value)))

    def do_subgroup_max(self, node: ast.Call, value: Any) -> Any:
        return self.library(node, "subgroup_max", self.typed(node, self.number(node, value)))
