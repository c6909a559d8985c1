"""Reading a saved graph and running it on other devices, command by command, to see where they differ.

A file holds code from elsewhere: nothing here runs it unless its caller says so. What does not live here: writing files
(saving), the command line (hcq.cli.replay).
"""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING, Any, NamedTuple

from hcq import dtypes
from hcq.graph.saving import FORMAT, VERSION
from hcq.runtime.buffer import Buffer
from hcq.runtime.copy import copy
from hcq.runtime.registry import Device

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy

_MOST_JSON = 256 << 20
_MOST_CODE = 64 << 20
_TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 2e-5, "float64": 1e-12}


class Difference(NamedTuple):
    """The first command after which two devices don't hold the same: its number, name, buffer, and by how much.

    `line` is "file:line" of the program that recorded it, where the file says so."""

    command: int
    name: str
    buffer: int
    element: int
    values: tuple[Any, Any]
    line: str = ""


class SavedGraph:
    """A file that `g.save` wrote; opening it runs nothing. ValueError for what is no such file, or a newer one."""

    def __init__(self, path: str | Path) -> None:
        try:
            self._file = zipfile.ZipFile(path)
            if self._file.getinfo("graph.json").file_size > _MOST_JSON:
                raise ValueError(f"{path}: its description is larger than {_MOST_JSON >> 20} MiB")
            self.described: dict[str, Any] = json.loads(self._file.read("graph.json"))
            if self.described["format"] != FORMAT:
                raise KeyError("format")
            version = int(self.described["version"])
        except (zipfile.BadZipFile, KeyError, UnicodeDecodeError, json.JSONDecodeError, TypeError) as error:
            raise ValueError(f"{path} is no saved graph, or a damaged one: {error}") from error
        if version > VERSION:
            raise ValueError(f"{path} has version {version} of the format, and this hcq reads up to {VERSION}")
        try:
            self._check()
        except (KeyError, TypeError, IndexError) as error:
            raise ValueError(f"{path} is damaged: {type(error).__name__}: {error}") from error

    @property
    def commands(self) -> list[dict[str, Any]]:
        """What it does, in order."""
        return list(self.described["commands"])

    @property
    def programs(self) -> list[dict[str, Any]]:
        """The programs it brings: name, device, compiler, and where source and binary are."""
        return list(self.described["programs"])

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def source(self, program: int) -> str | None:
        """The source of a program, where the file has it."""
        name = self.programs[program].get("source")
        return None if name is None else self._read(name, _MOST_CODE).decode(errors="replace")

    def on(self, device: str, trust_binaries: bool = False) -> Running:
        """Make its buffers and programs on `device` (further devices of the file become D:1, D:2 ...).

        Programs are compiled from source. `trust_binaries` loads the binaries of the file instead, which nothing has
        checked; without it a program that has no source is a ValueError. Raises what compiling and allocating raise.
        """
        return Running(self, device, trust_binaries)

    def compare(self, one: Running, two: Running) -> Difference | None:
        """Run all commands on both, comparing what each has written. None: no difference. Blocks."""
        for number, command in enumerate(self.commands):
            one.step(command)
            two.step(command)
            for place in one.written(command):
                found = _differ(one.read(place), two.read(place), self.described["buffers"][place[0]]["dtype"])
                if found is not None:
                    return Difference(number, command["name"], place[0], *found, str(command.get("line", "")))
        return None

    def contents(self, number: int) -> bytes:
        """What a buffer begins with: as it was saved, or numbers made up for files without contents."""
        buf = self.described["buffers"][number]
        if buf.get("contents"):
            data = self._read(buf["contents"], buf["nbytes"])
            if len(data) != buf["nbytes"]:
                raise ValueError(f"buffer {number} of the file has {len(data)} bytes, not {buf['nbytes']}")
            return data
        return _made_up(buf["nbytes"], buf["dtype"])

    def binary(self, program: int) -> bytes | None:
        """The binary of a program, where the file has it. Foreign code."""
        name = self.programs[program].get("binary")
        return None if name is None else self._read(name, _MOST_CODE)

    def _read(self, name: str, most: int) -> bytes:
        size = self._file.getinfo(name).file_size
        if size > most:
            raise ValueError(f"{name} in the file has {size} bytes: expected {most} at most")
        return self._file.read(name)

    def _check(self) -> None:
        buffers, programs = self.described["buffers"], self.described["programs"]
        for buf in buffers:
            if not (0 < buf["nbytes"] < 2**63) or buf["nbytes"] % dtypes.itemsize(dtypes.of(buf["dtype"])):
                raise IndexError(f"a buffer of {buf['nbytes']} bytes of {buf['dtype']}")
        for command in self.described["commands"]:
            places = list(command.get("bufs", ()))
            places += [command[end] for end in ("dest", "src") if end in command]
            for number, offset, size in places:
                if not (offset >= 0 and size >= 0 and offset + size <= buffers[number]["nbytes"] and number >= 0):
                    raise IndexError(f"command {command['name']} reaches outside of buffer {number}")
            if command["kind"] == "launch":
                programs[command["program"]]["name"]


class Running:
    """A saved graph on devices of this process. One thread."""

    def __init__(self, saved: SavedGraph, device: str, trust_binaries: bool) -> None:
        self._saved = saved
        kind, _, number = Device.canonicalize(device).partition(":")
        first = int(number or 0)
        names = list(dict.fromkeys([*saved.described["devices"], *(b["device"] for b in saved.described["buffers"])]))
        self._devices = {
            name: Device[f"{kind}:{first + index}" if first + index else kind] for index, name in enumerate(names)
        }
        self.dname = Device.canonicalize(device)
        self._buffers = [self._buffer(index) for index in range(len(saved.described["buffers"]))]
        self._programs = [self._program(index, trust_binaries) for index in range(len(saved.programs))]

    def run(self) -> None:
        """Run all commands. Blocks."""
        for command in self._saved.commands:
            self.step(command)
        for device in self._devices.values():
            device.synchronize()

    def step(self, command: dict[str, Any]) -> None:
        """Queue one command."""
        if command["kind"] == "launch":
            self._programs[command["program"]](
                *(self._view(place) for place in command["bufs"]),
                global_size=tuple(command["groups"]),
                local_size=tuple(command["items"]),
                vals=tuple(_value(value) for value in command["vals"]),
            )
        elif "dest" in command:
            copy(self._view(command["dest"]), self._view(command["src"]))
            for device in self._devices.values():
                device.synchronize()

    def written(self, command: dict[str, Any]) -> Iterator[list[int]]:
        """The places that a command may have written."""
        if "dest" in command:
            yield command["dest"]
        accesses = self._saved.programs[command["program"]]["accesses"] if command["kind"] == "launch" else ()
        for index, place in enumerate(command.get("bufs", ())):
            if accesses is None or accesses[index] != "r":
                yield place

    def read(self, place: list[int]) -> bytes:
        """The bytes of a place, now."""
        return bytes(self._view(place).as_buffer())

    def buffer(self, number: int) -> Any:
        """A buffer of the graph, by its number in the file."""
        return self._buffers[number]

    def _buffer(self, number: int) -> Any:
        described = self._saved.described["buffers"][number]
        dtype = dtypes.of(described["dtype"])
        device = self._devices[described["device"]].dname
        count = described["nbytes"] // dtypes.itemsize(dtype)
        return Buffer(device, count, dtype, initial_value=self._saved.contents(number))

    def _program(self, number: int, trust_binaries: bool) -> Any:
        described = self._saved.programs[number]
        device = self._devices[described["device"]]
        binary = self._saved.binary(number) if trust_binaries else None
        source = self._saved.source(number)
        if binary is not None:
            program = device.runtime(described["name"], binary)
        elif source is not None:
            program = device.program(described["name"], source)
        else:
            raise ValueError(
                f"{described['name']} has no source in this file: its binary runs only where it is trusted"
            )
        if local := described.get("local_memory", 0):
            program = program.with_local_memory(local)
        return program.cooperative() if described.get("cooperative") else program

    def _view(self, place: list[int]) -> Any:
        number, offset, size = place
        root = self._buffers[number]
        whole = not offset and size == root.nbytes
        return root if whole else root.view(size, dtypes.uint8, offset).ensure_allocated()


def _differ(one: bytes, two: bytes, dtype: str) -> tuple[int, tuple[Any, Any]] | None:
    if one == two:
        return None
    import numpy

    kind = dtypes.to_numpy(dtypes.of(dtype))
    if len(one) % kind.itemsize:
        kind = numpy.dtype("u1")
    a, b = (numpy.frombuffer(data, kind) for data in (one, two))
    if dtype in _TOLERANCE:
        limit = _TOLERANCE[dtype]
        wide_a, wide_b = a.astype("f8"), b.astype("f8")
        wrong = ~numpy.isclose(wide_a, wide_b, rtol=limit, atol=limit * _scale(wide_a), equal_nan=True)
    else:
        wrong = a != b
    places = numpy.flatnonzero(wrong)
    return None if not len(places) else (int(places[0]), (a[places[0]].item(), b[places[0]].item()))


def _scale(values: numpy.ndarray[Any, Any]) -> float:
    import numpy

    finite = values[numpy.isfinite(values)]
    return float(numpy.abs(finite).max()) if len(finite) else 0.0


def _made_up(nbytes: int, dtype: str) -> bytes:
    import numpy

    kind = dtypes.to_numpy(dtypes.of(dtype))
    count = nbytes // kind.itemsize
    numbers = numpy.arange(count) % 251
    made = numbers / 251.0 if dtype in _TOLERANCE else numbers % (2 if kind.kind == "b" else 128)
    return made.astype(kind).tobytes()


def _value(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "float" in value:
        return float(value["float"])
    if "dtype" not in value:
        return bytes.fromhex(value["bytes"])
    import numpy

    return numpy.frombuffer(bytes.fromhex(value["bytes"]), dtypes.to_numpy(dtypes.of(value["dtype"])))[0]
