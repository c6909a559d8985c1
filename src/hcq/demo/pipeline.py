"""Runs a plan on one device: copies on the copy queue, kernels on the compute queue, signals between them, all timed.

A frame of work is three queues, built and bound once, and submitted for every frame with the next value n:

    copy     wait freed >= n-1     photo -> device      set arrived = n
    compute  wait arrived >= n     seven launches       set made = n
    copy     wait made >= n        results -> host      set freed = n

With two slots of buffers the copies of one frame run beside the kernels of another. What does not live here: what the
steps are (plan), and the kernels (picture).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

import hcq
from hcq.demo.picture import kernels
from hcq.demo.plan import TRIAD_FLOATS_A_GROUP, gaussian_weights, make_plan
from hcq.kernels.lower import entry_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from hcq.demo.memory import Copier
    from hcq.demo.plan import Plan, Step

    Array = NDArray[Any]

LANGUAGES = {"c": "C", "llvm": "LLVM IR", "opencl": "OpenCL C", "cuda": "CUDA C", "spirv": "SPIR-V"}
"""What portable kernels become for a device, in words."""

RESULTS = {"blurred": "uint8", "edges": "uint8", "counts": "uint32", "shift": "int32", "equalised": "uint8"}
"""The buffers that are copied back to the host, and what they hold."""

KERNARGS_STRIDE = 256
"""Bytes between the kernargs of two steps: more than any of them needs, aligned for any device."""

PARTS = 5
"""How many times `run` calls its `step`."""

ROUNDS = 5
FRAMES = 8
LAUNCHES = 2000
ROUND_TRIPS = 500
TRIAD_FLOATS = 1 << 24
WAIT_MS = 120_000

BYTE, FLOAT = np.dtype("uint8"), np.dtype("float32")


@dataclass
class Timing:
    """One row of the report. `seconds` is a median; `moves` the bytes read and written meanwhile, 0 where that says
    nothing; `queue` is who did it: copy, compute or host."""

    name: str
    queue: str
    seconds: float
    moves: int = 0


@dataclass
class Outcome:
    """What a device made of a photograph: the results by name, and how long each part took."""

    device: str
    language: str
    compile_s: float
    cached: bool
    """Whether the compile cache had the kernels: then `compile_s` is what finding them took."""
    copy_speed: float = 0.0
    """Bytes a second, read and written, that NumPy copied in between, at best: what the memory can do."""
    timings: list[Timing] = field(default_factory=list)
    results: dict[str, Array] = field(default_factory=dict)


def run(
    dev: Any, photo: Array, sigma: float, copier: Copier, step: Callable[[str], None] = lambda what: None
) -> Outcome:
    """Run the whole demo on an opened device. `photo` is (3, height, width) uint8. `copier` is what copies are compared
    with, in between, so that both meet the same load. `step` is called before each part.

    Blocks for seconds; frees what it allocated. Raises ValueError for a device that runs no portable kernels, and
    whatever the device raises.
    """
    plan = make_plan(photo.shape[2], photo.shape[1], sigma)
    language = dev.kernel_language
    if language is None:
        raise ValueError(f"{dev.dname} runs no portable kernels, which the demo's are")
    step("compile")
    names = {*(planned.kernel for planned in plan.steps), "triad"}
    made = {name: each for name, each in kernels(gaussian_weights(sigma)).items() if name in names}
    start = time.perf_counter()
    texts = {name: each.source(dev) for name, each in made.items()}
    cached = all(hcq.cache.explain(text, dev.compiler).hit for text in texts.values())
    programs = {name: dev.program(entry_name(name), text) for name, text in texts.items()}
    outcome = Outcome(dev.dname, LANGUAGES.get(language, language), time.perf_counter() - start, cached)
    step("prepare buffers and queues")
    slots = [Slot(dev, plan, programs, photo) for _ in range(2)]
    step(f"{ROUNDS} frames, one by one")
    outcome.timings, outcome.copy_speed = _one_by_one(slots[0], plan, copier)
    step(f"{FRAMES} frames, copies beside kernels")
    outcome.timings.append(_overlapped(slots))
    outcome.results = slots[0].results()
    step("launches and memory")
    outcome.timings += _launches(dev, programs["triad"])
    dev.synchronize()
    return outcome


class Slot:
    """The buffers of one frame in flight, and the three queues that work on it. Belongs to one thread."""

    def __init__(self, dev: Any, plan: Plan, programs: dict[str, Any], photo: Array) -> None:
        self.dev, self.plan, self.frame = dev, plan, 0
        host = hcq.BufferOptions(host=True)
        self.buffers = {name: _bytes(dev, size) for name, size in plan.buffers.items()}
        self.photo = _bytes(dev, plan.buffers["photo"], host)
        self.photo.copyin(photo)
        self.back = {name: _bytes(dev, plan.buffers[name], host) for name in RESULTS}
        self.kernargs = _bytes(dev, KERNARGS_STRIDE * len(plan.steps), host)
        self.arrived, self.made, self.freed = dev.signal_t(), dev.signal_t(), dev.signal_t()
        self.stamps = {
            "in": [dev.signal_t() for _ in range(2)],
            "steps": [dev.signal_t() for _ in range(len(plan.steps) + 1)],
            "out": [dev.signal_t() for _ in range(2)],
        }
        self.copy_in = self._copies("in", self.freed, self.arrived, [(self.buffers["photo"], self.photo)])
        self.compute = self._launches(programs)
        self.copy_out = self._copies(
            "out", self.made, self.freed, [(to, self.buffers[name]) for name, to in self.back.items()]
        )

    def submit_in(self) -> None:
        """Queue the next frame's copy to the device."""
        self.frame += 1
        self.copy_in.update_wait(0, value=self.frame - 1)
        self.copy_in.update_signal(len(self.copy_in) - 1, value=self.frame)
        self.copy_in.submit(self.dev)

    def submit_compute(self) -> None:
        """Queue that frame's launches."""
        self.compute.update_wait(0, value=self.frame)
        self.compute.update_signal(len(self.compute) - 1, value=self.frame)
        self.compute.submit(self.dev)

    def submit_out(self) -> None:
        """Queue the copy of that frame's results to the host."""
        self.copy_out.update_wait(0, value=self.frame)
        self.copy_out.update_signal(len(self.copy_out) - 1, value=self.frame)
        self.copy_out.submit(self.dev)

    def wait(self) -> None:
        """Block until the frame is over."""
        self.freed.wait(self.frame, timeout=WAIT_MS)

    def took(self, part: str) -> list[float]:
        """Seconds between neighbouring time-stamps of the last frame, on the device's clock."""
        stamps = [stamp.timestamp for stamp in self.stamps[part]]
        return [float(after - before) / 1e6 for before, after in pairwise(stamps)]

    def results(self) -> dict[str, Array]:
        """What the last frame gave, as arrays of this process."""
        planes, plane = (3, self.plan.height, self.plan.width), (self.plan.height, self.plan.width)
        arrays = {name: np.frombuffer(self.back[name].as_buffer(), dtype) for name, dtype in RESULTS.items()}
        return {
            "blurred": arrays["blurred"].reshape(planes),
            "edges": arrays["edges"].reshape(plane),
            "histogram": arrays["counts"].reshape(-1, 256).sum(axis=0, dtype=np.uint32),
            "shift": arrays["shift"],
            "equalised": arrays["equalised"].reshape(planes),
        }

    def _copies(self, part: str, after: Any, then: Any, pairs: list[tuple[Any, Any]]) -> Any:
        before_all, after_all = self.stamps[part]
        queue = self.dev.hw_copy_queue_t().wait(after, 0).timestamp(before_all)
        for dest, src in pairs:
            queue.copy(dest._buf.va_addr, src._buf.va_addr, dest.nbytes)
        return queue.timestamp(after_all).signal(then, 0).bind(self.dev)

    def _launches(self, programs: dict[str, Any]) -> Any:
        stamps = self.stamps["steps"]
        queue = self.dev.hw_compute_queue_t().wait(self.arrived, 0).memory_barrier().timestamp(stamps[0])
        for i, step in enumerate(self.plan.steps):
            program = programs[step.kernel]
            queue.exec(program, self._fill(program, step, i), step.groups, step.items).timestamp(stamps[i + 1])
        return queue.signal(self.made, 0).bind(self.dev)

    def _fill(self, program: Any, step: Step, index: int) -> int:
        address: int = self.kernargs._buf.va_addr + KERNARGS_STRIDE * index
        buffers = [self.buffers[name]._buf for name in step.arguments]
        filled: int = program.fill_kernargs(buffers, step.values, kernargs_ptr=address)
        return filled


# Measuring


def _one_by_one(slot: Slot, plan: Plan, copier: Copier) -> tuple[list[Timing], float]:
    """Frames that wait for one another: what each part takes by itself, and how fast NumPy copies in between. The first
    frame only touches the memory."""
    parts: dict[str, list[list[float]]] = {"in": [], "steps": [], "out": []}
    submits, totals, copied = [], [], []
    for _ in range(ROUNDS + 1):
        start = time.perf_counter()
        slot.submit_in()
        slot.submit_compute()
        slot.submit_out()
        submitted = time.perf_counter()
        slot.wait()
        totals.append(time.perf_counter() - start)
        submits.append(submitted - start)
        for part, rounds in parts.items():
            rounds.append(slot.took(part))
        copied.append(copier.speed())
    medians = {part: [median(column) for column in zip(*rounds[1:], strict=True)] for part, rounds in parts.items()}
    back = sum(plan.buffers[name] for name in RESULTS)
    rows = [Timing("photo to device", "copy", medians["in"][0], 2 * plan.buffers["photo"])]
    rows += [Timing(step.title, "compute", s, step.moves) for step, s in zip(plan.steps, medians["steps"], strict=True)]
    rows.append(Timing("results to host", "copy", medians["out"][0], 2 * back))
    moved = sum(row.moves for row in rows)
    rows.append(Timing("frame, one by one", "both", median(totals[1:]), moved))
    rows.append(Timing("submit of three queues", "host", median(submits[1:])))
    return rows, max(copied)


def _overlapped(slots: list[Slot]) -> Timing:
    """Frames in two slots: a frame's copies run beside the other's kernels, ordered by nothing but signals."""
    start = time.perf_counter()
    for number in range(FRAMES):
        slot, other = slots[number % 2], slots[(number + 1) % 2]
        # The copy queue runs in order, so the next frame goes in before the last one's results come out.
        slot.submit_in()
        slot.submit_compute()
        if number:
            other.submit_out()
    slots[(FRAMES - 1) % 2].submit_out()
    for slot in slots:
        slot.wait()
    seconds = (time.perf_counter() - start) / FRAMES
    plan = slots[0].plan
    moved = sum(step.moves for step in plan.steps) + 2 * (
        plan.buffers["photo"] + sum(plan.buffers[name] for name in RESULTS)
    )
    return Timing("frame, overlapped", "both", seconds, moved)


def _launches(dev: Any, triad: Any) -> list[Timing]:
    """What one launch costs the host, alone and waited for; and what a kernel gets out of the memory at best."""
    a, b, c = (hcq.empty(TRIAD_FLOATS, FLOAT, dev.dname) for _ in range(3))
    ones = np.ones(TRIAD_FLOATS, FLOAT)
    for buffer in (a, b, c):
        buffer.copyin(ones)
    small = {"global_size": (1, 1, 1), "vals": (3.0, 256, 256)}
    for _ in range(100):
        triad(a, b, c, **small)
    dev.synchronize()
    start = time.perf_counter()
    for _ in range(LAUNCHES):
        triad(a, b, c, **small)
    dev.synchronize()
    queued = (time.perf_counter() - start) / LAUNCHES
    waited = []
    for _ in range(ROUND_TRIPS):
        start = time.perf_counter()
        triad(a, b, c, **small)
        dev.synchronize()
        waited.append(time.perf_counter() - start)
    groups = (-(-TRIAD_FLOATS // TRIAD_FLOATS_A_GROUP), 1, 1)
    large = {"global_size": groups, "vals": (3.0, TRIAD_FLOATS, TRIAD_FLOATS_A_GROUP), "wait": True}
    streamed = median([triad(a, b, c, **large) for _ in range(ROUNDS + 1)][1:])
    return [
        Timing("launch, queued", "host", queued),
        Timing("launch, waited for", "host", median(waited)),
        Timing("triad, 64 MiB arrays", "compute", streamed, 3 * TRIAD_FLOATS * FLOAT.itemsize),
    ]


# Helpers


def _bytes(dev: Any, size: int, options: Any = None) -> Any:
    return hcq.Buffer(dev.dname, size, BYTE, options=options, preallocate=True)
