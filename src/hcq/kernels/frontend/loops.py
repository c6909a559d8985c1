"""Loops: which variables go round, of which types, and where a loop is left.

A loop is translated with a guess of what its variables' types are; where its body disagrees it is translated again.
What does not live here: other statements.
"""

from __future__ import annotations

import ast
import builtins
from typing import TYPE_CHECKING, Any

from hcq.kernels import types
from hcq.kernels.builtins import Builtin
from hcq.kernels.frontend.calls import Calls
from hcq.kernels.frontend.core import Join, filled
from hcq.kernels.frontend.plans import Loop, Plan, Site
from hcq.kernels.frontend.returns import RESULT
from hcq.kernels.frontend.source import stored_names
from hcq.kernels.frontend.values import (
    Array,
    Missing,
    Weak,
    describe,
    is_constant,
    is_number,
    same,
)
from hcq.kernels.ir import Block, Op, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hcq.kernels.types import Type


class _Again(Exception):
    """The guess was wrong and has been corrected."""


class Loops(Calls):
    """for, while, break and continue."""

    def on_For(self, node: ast.For) -> bool:
        if node.orelse:
            raise self.error(node.orelse[0], "'else' of a loop is not part of the kernel language", "set a variable")
        call = node.iter
        callee = self.expr(call.func) if isinstance(call, ast.Call) else None
        static = isinstance(callee, Builtin) and callee.name == "static_range"
        if isinstance(call, ast.Call) and (callee is builtins.range or static):
            if call.keywords:
                raise self.error(call, f"{'static_range' if static else 'range'} takes no keyword arguments")
            bounds = [self.expr(each) for each in call.args]
            if not 1 <= len(bounds) <= 3:
                raise self.error(call, f"range takes 1 to 3 arguments, not {len(bounds)}")
            if static:
                numbers = [
                    self.static_int(each, bound, "what static_range takes")
                    for each, bound in zip(call.args, bounds, strict=True)
                ]
                if len(numbers) == 3 and numbers[2] == 0:
                    raise self.error(call, "the step of a range must not be 0")
                return self.unrolled(node, range(*numbers))
            return self.counted(node, call, bounds)
        values = self.expr(call)
        if isinstance(values, (tuple, range)):
            return self.unrolled(node, values)
        raise self.error(
            call, f"a loop goes over range(...), and this is {describe(values)}", "for i in range(n): ... x[i] ..."
        )

    def unrolled(self, node: ast.For, values: Sequence[Any]) -> bool:
        """The body once for each value."""
        loop = Loop(self.frame.depth, unrolled=True)
        self.frame.loops.append(loop)
        falls = True
        for value in values:
            if self.build.count > self.limit or len(values) > self.limit:
                raise self.error(node, f"the kernel becomes longer than {self.limit} operations", "use range instead")
            self.assign(node.target, value)
            loop.left = ""
            falls = self.statements(node.body)
            if not falls and not loop.left:
                break
            falls = True
            if loop.left == "break":
                break
        self.frame.loops.pop()
        return falls

    def counted(self, node: ast.For, call: ast.Call, bounds: list[Any]) -> bool:
        """`for i in range(...)`."""
        for each, bound in zip(call.args, bounds, strict=True):
            own = bound.type if isinstance(bound, (Value, Weak)) else bound
            if (not isinstance(own, int) and not (isinstance(own, types.Scalar) and own.is_integer)) or own is True:
                raise self.error(each, f"range takes integers, not {describe(bound)}", "convert it: hcq.i32(...)")
        step = self.static_int(call.args[2], bounds[2], "the step of a range") if len(bounds) == 3 else 1
        if step == 0:
            raise self.error(call.args[2], "the step of a range must not be 0")
        start, stop = (0, bounds[0]) if len(bounds) == 1 else (bounds[0], bounds[1])
        element = self.common(call, (start, stop))
        if element is None:
            element = types.promote(self.default(call, start), self.default(call, stop))
        if not element.is_integer:
            raise self.error(call, "range of a signed integer and a u64", "convert one of them: hcq.i64(...)")
        first, last = self.coerce(call, start, element), self.coerce(call, stop, element)
        index_type = element

        def body(block: Block) -> bool:
            index = Value(index_type, node.target.id if isinstance(node.target, ast.Name) else "i")
            block.arguments.insert(0, index)
            self.assign(node.target, index)
            return self.statements(node.body)

        def make(carried: list[Value], blocks: Sequence[Block]) -> Op:
            return self.build.op("for", (first, last, *carried), [each.type for each in carried], blocks, step=step)

        targets = stored_names([ast.Expr(node.target)])
        return self.loop(node, stored_names(node.body) | targets, targets, body, make)

    def on_While(self, node: ast.While) -> bool:
        if node.orelse:
            raise self.error(node.orelse[0], "'else' of a loop is not part of the kernel language", "set a variable")

        def body(block: Block) -> bool:
            condition = self.condition(node.test, self.expr(node.test))
            if condition is False:
                self.site(self.frame.loops[-1].breaks, "break", node)
                return False
            if condition is not True:
                go, stop = Block(), Block()
                with self.inside(go):
                    self.build.op("yield")
                with self.inside(stop):
                    self.site(self.frame.loops[-1].breaks, "break", node)
                self.build.op("if", (condition,), (), (go, stop))
            return self.statements(node.body)

        def make(carried: list[Value], blocks: Sequence[Block]) -> Op:
            return self.build.op("loop", carried, (), blocks)

        assigned = stored_names(node.body) | stored_names([ast.Expr(node.test)])
        return self.loop(node, assigned, set(), body, make)

    def site(self, sites: list[Site], code: str, node: ast.AST) -> None:
        """Ends the block by continue or break of the innermost loop."""
        op = self.build.op(code)
        sites.append(Site(self.build.block, op, dict(self.frame.env), node))

    def leave_round(self, node: ast.AST, code: str) -> bool:
        """`break` or `continue`, the statements."""
        if not self.frame.loops:
            raise self.error(node, f"{code!r} outside a loop")
        loop = self.frame.loops[-1]
        if loop.unrolled:
            if self.frame.depth != loop.depth:
                raise self.error(
                    node,
                    f"{code!r} of an unrolled loop under a condition that is not a constant",
                    "use range, or put the rest of the body under the opposite condition",
                )
            loop.left = code
            return False
        self.site(loop.continues if code == "continue" else loop.breaks, code, node)
        return False

    # The translation of a loop

    def loop(
        self,
        node: ast.For | ast.While,
        assigned: set[str],
        targets: set[str],
        body: Callable[[Block], bool],
        make: Callable[[list[Value], Sequence[Block]], Op],
    ) -> bool:
        """A loop that runs. `body` translates one round; `make` the operation, whose results are set here."""
        counting = isinstance(node, ast.For)
        plan = Plan(self, node, sorted(assigned - targets))
        outer, arrays, unsettled, count = self.frame.env, len(self.arrays), self.unsettled, self.build.count
        while True:
            loop, block = Loop(self.frame.depth), Block()
            self.frame.loops.append(loop)
            arguments = {name: Value(type_, name) for name, type_ in plan.types.items()}
            block.arguments = list(arguments.values())
            try:
                with self.inside(block, loop=True):
                    self.frame.depth += 1
                    env = self.frame.env
                    env.update(plan.broken)
                    env.update({k: Weak(v) if k in plan.weak else plan.shaped(k, v) for k, v in arguments.items()})
                    if body(block):
                        self.site(loop.continues, "continue", node)
                    else:
                        self.leave()
                self.check(node, plan, loop, unsettled, counting)
                break
            except _Again:
                del self.arrays[arrays:]
                self.unsettled, self.build.count = unsettled, count
            finally:
                self.frame.depth -= 1
                self.frame.loops.pop()
        self.frame.env = outer
        return self.finish(node, plan, loop, block, arguments, assigned, targets, make)

    def check(self, node: ast.stmt, plan: Plan, loop: Loop, unsettled: int, counting: bool) -> None:
        """Compares the guess with what the body gives; raises _Again after correcting it."""
        wrong = False
        used = bool(plan.weak) and self.unsettled != unsettled
        for name in list(plan.types):
            for site in loop.continues + (loop.breaks if counting else []):
                type_ = plan.types[name]
                value = site.env.get(name)
                if isinstance(value, Array) and value.shape == plan.shapes.get(name):
                    value = value.pointer
                found = self.fitting(site.node, value, type_, name in plan.weak)
                if found is type_:
                    if name in plan.weak and isinstance(value, Value):
                        plan.settle(name, type_)
                        wrong = wrong or used
                    continue
                wrong = True
                if found is not None:
                    plan.settle(name, found)
                else:
                    plan.give_up(name, self.disagreement(node, site, plan, name, value))
                break
        if used and plan.weak:
            wrong = True
            for name in list(plan.weak):
                plan.settle(name, plan.types[name])
        for name, kept in list(plan.kept.items()):
            for site in loop.continues:
                if not same(site.env.get(name), kept):
                    plan.give_up(name, self.disagreement(node, site, plan, name, site.env.get(name)))
                    wrong = True
                    break
        if wrong:
            raise _Again

    def fitting(self, node: ast.AST, value: Any, type_: Type, weak: bool) -> Type | None:
        """The type that a variable should have, as this value at the end of a round says; None where it can't be."""
        if isinstance(value, Value):
            if value.type is type_:
                return type_
            return value.type if weak and not isinstance(value.type, types.Pointer) else None
        if not is_constant(value) and not isinstance(value, Weak):
            return None
        own = types.element_of(type_)
        if weak:
            other = self.default(node, value)
            return own if other is own else types.f32 if own.is_float or other.is_float else types.promote(own, other)
        try:
            taken = types.of_weak(value.sample if isinstance(value, Weak) else value, own)
        except OverflowError:
            return None
        return type_ if taken is own else None

    def disagreement(self, node: ast.stmt, site: Site, plan: Plan, name: str, value: Any) -> Missing:
        """Why a variable can't go round."""
        if isinstance(value, Missing):
            return value
        stores = [
            each for each in ast.walk(node) if isinstance(each, ast.Name) and each.id == name and not _is_load(each)
        ]
        at = self.locate(max(stores, key=lambda each: (each.lineno, each.col_offset), default=site.node))
        if name in plan.types and is_number(value):
            after = value.type if isinstance(value, (Value, Weak)) else describe(value)
            element = types.element_of(plan.types[name])
            sets = "return" if name.startswith(RESULT) else f"{name} ="
            return Missing(
                f"{{name}} is {plan.types[name]} where the loop begins and {after} at the end of a round",
                f"convert it where the loop sets it: {sets} hcq.{element}(...)",
                at,
            )
        return Missing(
            "{name} changes in the loop, and only numbers, and pointers to one type, can",
            "unroll the loop: hcq.static_range",
            at,
        )

    def finish(
        self,
        node: ast.For | ast.While,
        plan: Plan,
        loop: Loop,
        block: Block,
        arguments: dict[str, Value],
        assigned: set[str],
        targets: set[str],
        make: Callable[[list[Value], Sequence[Block]], Op],
    ) -> bool:
        """Makes the operation and says what the variables are after it."""
        env, self.build.node = self.frame.env, node
        carried = [self.as_type(node, plan.initial[name], type_) for name, type_ in plan.types.items()]
        for site in loop.continues:
            self.pass_on(site, [(site.env[name], type_) for name, type_ in plan.types.items()])
        after: dict[str, Any] = {}
        for name in assigned:
            if name in targets:
                after[name] = Missing(
                    "{name} is the index of a loop, and has no value after it", "keep it in another variable"
                )
            elif name in plan.broken:
                after[name] = plan.broken[name]
            elif name not in plan.types and name not in plan.kept:
                after[name] = Missing(
                    "{name} is set only in the loop before, which may not run at all",
                    f"give {name} a value before the loop",
                    self.locate(node),
                )
        op = make(carried, (block,))
        if isinstance(node, ast.For):
            for site in loop.breaks:
                self.pass_on(site, [(site.env[name], type_) for name, type_ in plan.types.items()])
            after.update((name, plan.shaped(name, each)) for name, each in zip(plan.types, op.results, strict=True))
            for result, name in zip(op.results, plan.types, strict=True):
                result.name = name
            env.update(after)
            return True
        join = Join(self, len(loop.breaks), node, list(env.values()))
        templates: dict[str, Any] = {}
        for name in sorted(assigned):
            values = [site.env.get(name, after.get(name)) for site in loop.breaks]
            if values and not (name in plan.kept and all(same(each, plan.kept[name]) for each in values)):
                templates[name] = join.add(name, values)
        for site, passed in zip(loop.breaks, join.passed, strict=True):
            self.pass_on(site, list(zip(passed, join.types, strict=True)))
        op.results = [Value(type_, name, op) for type_, name in zip(join.types, join.names, strict=True)]
        for name, template in templates.items():
            value = filled(template, op.results)
            env[name] = value.value if isinstance(value, Weak) else value
        return bool(loop.breaks)

    def pass_on(self, site: Site, values: list[tuple[Any, Type]]) -> None:
        """Gives a continue or break its operands; what converts them stands before it."""
        end = site.block.ops.pop()
        outer, self.build.block = self.build.block, site.block
        end.operands = [self.as_type(site.node, value, type_) for value, type_ in values]
        site.block.ops.append(end)
        self.build.block = outer


def _is_load(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)
