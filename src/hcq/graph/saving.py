"""Writing a graph to one file: a zip of JSON and raw bytes, with a version, never a pickle (docs/graphs.md).

What does not live here: reading and running such files (saved).
"""

from __future__ import annotations

import json
import math
import zipfile
from bisect import bisect_right
from typing import TYPE_CHECKING, Any

from hcq import _native, dtypes
from hcq.graph.nodes import Copy, HostCopy, Launch, Sync, span_of
from hcq.runtime import compiler, lines

if TYPE_CHECKING:
    from pathlib import Path

    from hcq.graph.graph import Graph
    from hcq.graph.nodes import Node, Span

VERSION = 1
FORMAT = "hcq graph"


def save(graph: Graph, path: str | Path, contents: bool) -> None:
    """Write `graph` to `path`. ValueError, and no file, where it has what a file can't hold."""
    writer = _Writer(graph)
    commands = [writer.command(node) for node in graph.nodes]
    described = {
        "format": FORMAT,
        "version": VERSION,
        "devices": writer.devices,
        "buffers": [buf.described(contents) for buf in writer.buffers],
        "programs": [writer.programs[key] for key in writer.programs],
        "signals": len(writer.signals),
        "commands": commands,
    }
    if contents:
        for buf in writer.buffers:
            writer.files[f"buffers/{buf.number}.raw"] = buf.read()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        file.writestr("graph.json", json.dumps(described, indent=1))
        for name, data in writer.files.items():
            file.writestr(name, data)


class _Stored:
    """A root buffer of the file."""

    def __init__(self, number: int, buf: Any, span: Span, names: list[str], device: str) -> None:
        self.number = number
        self.buf = buf
        self.span = span
        self.names = names
        self.device = device

    def described(self, contents: bool) -> dict[str, Any]:
        dtype = getattr(self.buf, "dtype", None)
        try:
            name = dtypes.of(dtype).name if dtype is not None else "uint8"
        except TypeError:
            name = "uint8"  # a client's own, such as images: bytes
        nbytes = self.span[1] - self.span[0]
        if nbytes % dtypes.itemsize(dtypes.of(name)):
            name = "uint8"
        found: dict[str, Any] = {"device": self.device, "nbytes": nbytes, "dtype": name, "inputs": self.names}
        if contents:
            found["contents"] = f"buffers/{self.number}.raw"
        return found

    def read(self) -> bytes:
        data = bytearray(self.span[1] - self.span[0])
        if hasattr(self.buf, "copyout"):
            self.buf.copyout(data)
        else:
            from hcq.runtime.registry import Device

            Device[self.device].allocator.copyout(memoryview(data), self.buf)
        return bytes(data)


class _Writer:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.files: dict[str, bytes] = {}
        self.devices = [device.dname for device in graph.devices]
        self.buffers: list[_Stored] = []
        self.programs: dict[int, dict[str, Any]] = {}
        self.signals: dict[int, int] = {}
        self._starts: list[int] = []
        self._stored: list[_Stored] = []  # by address
        self._roots: list[Any] = sorted(
            (buf for buf in _native.live_roots() if hasattr(getattr(buf, "_buf", None), "va_addr")),
            key=lambda buf: (int(buf._buf.va_addr), buf.nbytes),
        )
        self._root_starts = [buf._buf.va_addr for buf in self._roots]
        self._vals = graph.current_vals()

    def command(self, node: Node) -> dict[str, Any]:
        if isinstance(node, Launch):
            bufs, vals = self._arguments(node)
            groups, items = self.graph.current_sizes(node)
            found = {
                "program": self._program(node),
                "bufs": [self._place(buf, span, node.device.dname) for buf, span in bufs],
                "vals": [_value(value) for value in vals],
                "groups": [int(count) for count in groups],
                "items": [int(count) for count in items],
            }
        elif isinstance(node, Copy):
            at = (
                (node.dest, (node.dest_at, node.dest_at + node.nbytes)),
                (
                    node.src,
                    (node.src_at, node.src_at + node.nbytes),
                ),
            )
            found = {name: self._place(*end, node.device.dname) for name, end in zip(("dest", "src"), at, strict=True)}
        elif isinstance(node, HostCopy):
            found = {
                name: self._place(buf, span_of(buf), buf.device)
                for name, buf in (("dest", node.dest), ("src", node.src))
            }
        elif isinstance(node, Sync):
            found = {"signal": self.signals.setdefault(id(node.signal), len(self.signals)), "value": node.value}
            if node.kind == "wait" and not node.inside:
                raise ValueError(f"command {node.index} waits for a signal from outside, which no file can set")
        else:
            raise ValueError(f"command {node.index}, {node!r}, can't be saved")
        device = node.device.dname if node.device is not None else None
        line = {"line": words} if (words := lines.words(node.line)) else {}
        return {"kind": node.kind, "device": device, "name": node.name, **found, **line}

    def _arguments(self, node: Launch) -> tuple[list[tuple[Any, Span]], list[Any]]:
        if node.kernargs is None:
            # A Buffer that was given other memory since does not say what the graph uses.
            held = [
                buf if getattr(buf, "_buf", buf) is handle else handle
                for buf, handle in zip(node.bufs, node.handles, strict=True)
            ]
            return list(zip(held, node.spans, strict=True)), self._vals.get(node.index, list(node.vals))
        if node.kernargs.addresses is None or node.kernargs.vals is None:
            raise ValueError(f"command {node.index}: nothing says what the kernargs of {node.program.name} are")
        bufs: list[tuple[Any, Span]] = [(None, (at, at)) for at, _ in node.spans]
        return bufs, self._vals.get(node.index, list(node.vals))

    def _program(self, node: Launch) -> int:
        program = node.program
        if id(program) in self.programs:
            return list(self.programs).index(id(program))
        number = len(self.programs)
        library = getattr(program, "library", None)
        source = getattr(program, "source", None)
        if source is None and library is not None:
            source = compiler.source_of(library)
        if library is None and source is None:
            raise ValueError(
                f"nothing is known of how {program.name} was made: set program.source or program.library, or make it "
                "with dev.program(name, src)"
            )
        found: dict[str, Any] = {
            "name": program.name,
            "device": program.device.dname,
            "compiler": type(program.device.compiler).__name__,
            "accesses": None if program.accesses is None else list(program.accesses),
        }
        if local := getattr(program, "local_memory_bytes", 0):
            found["local_memory"] = local
        if getattr(program, "is_cooperative", False):
            found["cooperative"] = True
        if source is not None:
            found["source"] = f"programs/{number}.src"
            self.files[found["source"]] = source.encode() if isinstance(source, str) else bytes(source)
        if library is not None:
            found["binary"] = f"programs/{number}.bin"
            self.files[found["binary"]] = bytes(library)
        self.programs[id(program)] = found
        return number

    def _place(self, buf: Any, span: Span, device: str) -> list[int]:
        """[buffer, offset, bytes] for what a command uses; `buf` None: found by its address."""
        at = self.graph.where_now(span)
        if at is not None:  # of an input: what it is now
            buf, span = at
        if not hasattr(buf, "base"):  # a handle: that of a buffer, or of memory that has none
            handle, buf = buf, None
            index = bisect_right(self._root_starts, span[0]) - 1
            root = self._roots[index] if index >= 0 else None
            if root is not None and span[0] < (end := span_of(root)[1]) and span[1] <= end:
                buf = root
                if span[0] == span[1]:  # an address alone: all that lies behind it
                    span = span[0], end
            elif handle is not None:
                buf = handle
            else:
                raise ValueError(f"address {span[0]:#x} belongs to no live buffer")
        root = getattr(buf, "base", buf)
        stored = self._store(root, span_of(root), getattr(root, "device", device))
        return [stored.number, span[0] - stored.span[0], span[1] - span[0]]

    def _store(self, root: Any, span: Span, device: str) -> _Stored:
        index = bisect_right(self._starts, span[0]) - 1
        if index >= 0 and span[1] <= self._stored[index].span[1]:
            return self._stored[index]
        names = [name for name, buf in self.graph.inputs.items() if span_of(buf) == span]
        stored = _Stored(len(self.buffers), root, span, names, device)
        self.buffers.append(stored)
        self._starts.insert(index + 1, span[0])
        self._stored.insert(index + 1, stored)
        return stored


def _value(value: Any) -> Any:
    if isinstance(value, bool | int):
        return int(value)
    if isinstance(value, float) and type(value) is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if hasattr(value, "tobytes") and hasattr(value, "dtype"):
        return {"dtype": value.dtype.name, "bytes": value.tobytes().hex()}
    raise ValueError(f"the value {value!r} can't be saved")
