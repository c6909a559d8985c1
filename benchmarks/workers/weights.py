"""Safetensors files that rows about loading share, and those rows' benches, over what each peer loads them with.

The files are made once a run, beside the workers' own folders, and gone with them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import files
from serve import Answer, bench, expect, fresh_median

LOAD: dict[str, Callable[[list[str]], Any]] = {}
"""Under `call`: loads these files, or the index that is the last of them; a dict by name. Set by the worker."""
SOURCE: dict[str, str] = {}
"""The same for new interpreters: statements to run before, and the loading of `paths`."""


def paths(shards: int, tensors: int, size: int) -> list[str]:
    """`shards` files of `tensors` tensors of `size` bytes each, and an index over them."""
    folder = Path(os.environ.get("HCQ_BENCH_SCRATCH") or ".").resolve().parent / f"weights-{shards}-{tensors}-{size}"
    found = [str(folder / f"{shard:03}.safetensors") for shard in range(shards)]
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        folder.mkdir(exist_ok=True)
        piece = os.urandom(1 << 20)
        for shard, path in enumerate(found):
            names = [f"{shard}.{number}" for number in range(tensors)]
            header = json.dumps(
                {
                    name: {"dtype": "U8", "shape": [size], "data_offsets": [number * size, number * size + size]}
                    for number, name in enumerate(names)
                }
            ).encode()
            header += b" " * (-(len(header) + 8) % 4096)
            with open(path, "wb") as file:
                file.write(len(header).to_bytes(8, "little") + header)
                rest = tensors * size
                while rest:
                    rest -= file.write(piece[:rest])
                file.flush()
                os.fsync(file.fileno())
        where = {f"{n}.{k}": f"{n:03}.safetensors" for n in range(shards) for k in range(tensors)}
        index.write_text(json.dumps({"weight_map": where}))
    return [*found, str(index)]


@bench
def load_tensors(n: int, shards: int, tensors: int, size: int, cold: bool = False) -> float:
    """All of them, again and again; what was loaded is dropped before the next."""
    places = paths(shards, tensors, size)
    took = []
    for _ in range(n + 1):  # the first makes memory that later ones have
        for place in places[:-1]:
            files.prepare(place, cold)
        start = perf_counter()
        loaded = LOAD["call"](places)
        took.append(perf_counter() - start)
        expect("tensors", len(loaded), shards * tensors)
        del loaded
    return median(took[1:])


@bench
def load_first(n: int, shards: int, tensors: int, size: int) -> Answer:
    """In a new interpreter, whose first load it is: into memory that no process has had."""
    return {"value": _fresh(n, shards, tensors, size)["value"]}


@bench
def load_peak(n: int, shards: int, tensors: int, size: int) -> Answer:
    """MiB that a new interpreter had resident at most, above what it had before and the tensors."""
    answer = _fresh(n, shards, tensors, size)
    return {"value": answer["peak"] - answer["before"] - shards * tensors * size / (1 << 20)}


_RESIDENT = """
def kib(field):
    return next(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith(field))
"""


def _fresh(n: int, shards: int, tensors: int, size: int) -> Answer:
    places = paths(shards, tensors, size)
    for place in places[:-1]:
        files.prepare(place, False)
    setup = f"{SOURCE['setup']}\npaths = {places!r}\n{_RESIDENT}\nextra['before'] = kib('VmRSS:') / 1024"
    return fresh_median(n, setup, SOURCE["load"], "extra['peak'] = kib('VmHWM:') / 1024")
