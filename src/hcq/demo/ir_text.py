"""What makes writing LLVM IR by program bearable: registers and blocks are numbered, loops nest like Python's.

What does not live here: any kernel (ir). Every method appends instructions to the function; what is returned is the
text of an operand.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Function:
    """One kernel being written. `parameters` are IR parameters such as `ptr noalias %out`."""

    def __init__(self, name: str, parameters: Sequence[str]) -> None:
        self._head = f"define void @{name}({', '.join(parameters)}) {{"
        self._lines = ["entry:"]
        self._block = "entry"
        self._numbers = 0

    def text(self) -> str:
        """The finished function."""
        return "\n".join([self._head, *self._lines, "  ret void", "}"])

    def do(self, instruction: str) -> None:
        """An instruction without a result."""
        self._lines.append(f"  {instruction}")

    def get(self, instruction: str, prefix: str = "v") -> str:
        """An instruction with a result, which is returned."""
        register = f"%{prefix}{self._number()}"
        self._lines.append(f"  {register} = {instruction}")
        return register

    def load(self, type_: str, pointer: str, index: str = "0") -> str:
        """`pointer[index]`; an i8 is loaded byte by byte, so any address will do."""
        return self.get(f"load {type_}, {self._ptr(pointer)} {self.at(type_, pointer, index)}")

    def store(self, type_: str, value: str, pointer: str, index: str = "0") -> None:
        """`pointer[index] = value`."""
        self.do(f"store {type_} {value}, {self._ptr(pointer)} {self.at(type_, pointer, index)}")

    def at(self, type_: str, pointer: str, index: str) -> str:
        """The address of `pointer[index]`; index is an i64."""
        if index == "0":
            return pointer
        kind = self._ptr(pointer)
        return self.get(
            f"getelementptr inbounds {type_}, {kind} {pointer}, i64 {index}", "local" if "(3)" in kind else "v"
        )

    def add(self, type_: str, a: str, b: str) -> str:
        return self.get(f"add nsw {type_} {a}, {b}")

    def sub(self, type_: str, a: str, b: str) -> str:
        return self.get(f"sub nsw {type_} {a}, {b}")

    def mul(self, type_: str, a: str, b: str) -> str:
        return self.get(f"mul nsw {type_} {a}, {b}")

    def select(self, condition: str, type_: str, a: str, b: str) -> str:
        return self.get(f"select i1 {condition}, {type_} {a}, {type_} {b}")

    def smaller(self, type_: str, a: str, b: str) -> str:
        return self.select(self.get(f"icmp slt {type_} {a}, {b}"), type_, a, b)

    def larger(self, type_: str, a: str, b: str) -> str:
        return self.select(self.get(f"icmp sgt {type_} {a}, {b}"), type_, a, b)

    def convert(self, how: str, from_: str, value: str, to: str) -> str:
        """`how` is the instruction: zext, sext, trunc, uitofp, fptosi."""
        return self.get(f"{how} {from_} {value} to {to}")

    @contextmanager
    def loop(self, start: str, stop: str, step: str = "1") -> Iterator[str]:
        """`for i in range(start, stop, step)` over i64; gives `i`. Nothing is carried from round to round."""
        with self.summing(start, stop, None, "", step) as (index, _, _):
            yield index

    @contextmanager
    def summing(
        self, start: str, stop: str, type_: str | None, initial: str, step: str = "1"
    ) -> Iterator[tuple[str, str, list[str]]]:
        """The same loop with one value carried along: gives index, the value so far, and a list to which the body
        appends the new value. After the loop the value so far is the result."""
        number = self._number()
        before, head, body, after = self._block, f"head{number}", f"body{number}", f"after{number}"
        index, carried = f"%i{number}", f"%c{number}"
        self.do(f"br label %{head}")
        self._lines.append(f"{head}:")
        hole = len(self._lines)
        self._lines += ["", ""]
        self.do(f"%more{number} = icmp slt i64 {index}, {stop}")
        self.do(f"br i1 %more{number}, label %{body}, label %{after}")
        self._begin(body)
        new: list[str] = []
        yield index, carried, new
        self.do(f"%next{number} = add nsw i64 {index}, {step}")
        last = self._block
        self.do(f"br label %{head}")
        self._lines[hole] = f"  {index} = phi i64 [ {start}, %{before} ], [ %next{number}, %{last} ]"
        if type_ is not None:
            self._lines[hole + 1] = f"  {carried} = phi {type_} [ {initial}, %{before} ], [ {new[0]}, %{last} ]"
        else:
            del self._lines[hole + 1]
        self._begin(after)

    @contextmanager
    def when(self, condition: str) -> Iterator[None]:
        """`if condition:`."""
        number = self._number()
        self.do(f"br i1 {condition}, label %then{number}, label %end{number}")
        self._begin(f"then{number}")
        yield
        self.do(f"br label %end{number}")
        self._begin(f"end{number}")

    # Helpers

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _begin(self, block: str) -> None:
        self._lines.append(f"{block}:")
        self._block = block

    def _ptr(self, pointer: str) -> str:
        # Local arrays are globals; addresses within them are named after that.
        return "ptr addrspace(3)" if pointer.startswith(("@", "%local")) else "ptr"
