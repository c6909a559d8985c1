"""`hcq demo`: runs the pipeline of hcq.demo on the chosen devices, checks it, writes the picture, prints the tables."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hcq.cli.output import DONE, FAILED, Failure, Mistake, console, print_json
from hcq.errors import DeviceUnavailable

if TYPE_CHECKING:
    from rich.progress import Progress

    from hcq.demo.pipeline import Outcome
    from hcq.demo.reference import Difference

NOTES = (
    "Times are medians. GB/s count bytes read and written; `of copy speed`: beside the best of NumPy's copies.",
    "A copy reads as much as it writes, and writing is dearer: a step that mostly reads can pass 100 %.",
    "A frame is one picture through all steps; overlapped, its copies run beside the kernels of the one before.",
)
USUAL = ("CLANG", "LLVM")
"""The devices that the demo runs on where none is named."""
NEEDED = {"scipy": "scipy", "PIL": "pillow"}


@dataclass
class Report:
    """All that the command found out, for people and for --json."""

    photo: str
    shape: tuple[int, int]
    measured_shape: tuple[int, int]
    sigma: float
    threads: int
    load: float
    outcomes: list[Outcome] = field(default_factory=list)
    copy_speed: float = 0.0
    differences: dict[str, list[Difference]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    picture: str = ""

    @property
    def right(self) -> bool:
        return all(row.wrong == 0 for rows in self.differences.values() for row in rows)


def show(
    photo: Path | None,
    devices: list[str],
    everything: bool,
    output: Path,
    sigma: float,
    megapixels: float,
    as_json: bool,
) -> int:
    """Run the demo. FAILED where a pixel is wrong or no device runs; raises Mistake and Failure."""
    _check_installed()
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    if not output.parent.is_dir():
        raise Mistake(f"there is no folder {output.parent} to write {output.name} into")
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    errors = console(stderr=True)
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        report = _work(photo, devices, everything, output, sigma, megapixels, progress)
    if as_json:
        print_json(_plain(report))
    else:
        _print(report)
    return DONE if report.right else FAILED


# Work


def _work(
    photo: Path | None,
    names: list[str],
    everything: bool,
    output: Path,
    sigma: float,
    megapixels: float,
    progress: Progress,
) -> Report:
    from hcq.demo import memory, pipeline, reference
    from hcq.demo import photo as photos
    from hcq.demo.plan import make_plan

    try:
        path = photos.shipped() if photo is None else photo
        planes = photos.read(path)
        make_plan(planes.shape[2], planes.shape[1], sigma)
    except (OSError, ValueError) as error:
        raise Mistake(str(error)) from None
    large = photos.enlarged(planes, int(megapixels * 1e6)) if megapixels else planes
    opened, left_out = _open(names, everything)

    threads, load = _threads(), os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    report = Report(path.name, _size(planes), _size(large), sigma, threads, load, left_out=left_out)
    copier = memory.Copier(threads)
    task = progress.add_task("the same pictures by SciPy", total=2 * len(reference.RESULTS))
    expected = [reference.pictures(picture, sigma, lambda: progress.advance(task)) for picture in (planes, large)]
    progress.remove_task(task)
    for device in opened:
        task = progress.add_task(device.dname, total=2 * pipeline.PARTS + 2)

        def step(what: str, task: Any = task, name: str = device.dname) -> None:
            progress.update(task, advance=1, description=f"{name}: {what}")

        small = pipeline.run(device, planes, sigma, copier, step)
        measured = pipeline.run(device, large, sigma, copier, step)
        measured.compile_s, measured.cached = small.compile_s, small.cached  # the second run finds it in memory
        rows = []
        for picture, outcome, right in ((planes, small, expected[0]), (large, measured, expected[1])):
            step("compare with SciPy")
            rows += reference.compare(outcome.results, picture, right, sigma)
            outcome.results = {} if outcome is measured else outcome.results
        report.outcomes.append(measured)
        report.copy_speed = max(report.copy_speed, small.copy_speed, measured.copy_speed)
        report.differences[device.dname] = rows
        if not report.picture:
            results = small.results
            panels = [
                ("photograph", planes),
                (f"blurred: Gaussian, sigma {sigma:g}", results["blurred"]),
                ("edges of the blurred: Sobel", results["edges"]),
                ("equalised histogram", results["equalised"]),
            ]
            try:
                photos.compose(panels, output)
            except OSError as error:
                raise Mistake(f"{output} can't be written: {error}") from None
            report.picture = str(output)
        progress.remove_task(task)
    copier.close()
    return report


def _open(names: list[str], everything: bool) -> tuple[list[Any], dict[str, str]]:
    """The devices to run on, and those left out with the reason. One that was named must open."""
    from hcq import Device

    if names:
        opened = [Device[name] for name in dict.fromkeys(Device.canonicalize(name) for name in names)]
        for device in opened:
            if (reason := _unfit(device)) is not None:
                raise Mistake(f"{device.dname} {reason}")
        return opened, {}
    opened, left_out = [], {}
    for name in Device._devices if everything else USUAL:
        if name == "PYTHON":
            left_out[name] = "it would take hours: --device PYTHON --megapixels 0.01"
            continue
        try:
            device = Device[name]
        except DeviceUnavailable as error:
            left_out[name] = str(error)
            continue
        if (reason := _unfit(device)) is not None:
            left_out[name] = f"it {reason}"
        else:
            opened.append(device)
    if not opened:
        raise Failure("no device opens here that the demo runs on:\n  " + _lines(left_out))
    return opened, left_out


def _unfit(device: Any) -> str | None:
    """Why an opened device can't run the demo; None where it can."""
    if device.kernel_language is None:
        return "runs no portable kernels, which the demo's are"
    if device.most_rounds is not None:
        return f"ends loops after {device.most_rounds} rounds, and the demo's are longer"
    return None


def _check_installed() -> None:
    from importlib.util import find_spec

    missing = [package for module, package in NEEDED.items() if find_spec(module) is None]
    if missing:
        raise Mistake(f"the demo needs {' and '.join(missing)}: pip install 'hcq[demo]'")


def _threads() -> int:
    from hcq import config

    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return config.CPU_THREADS() or usable


def _size(planes: Any) -> tuple[int, int]:
    return int(planes.shape[2]), int(planes.shape[1])


# Printing


def _print(report: Report) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    out = console()
    width, height = report.shape
    large = f"{report.measured_shape[0]} x {report.measured_shape[1]}"
    out.print(f"{report.photo}, {width} x {height}; times are of the same, laid out to {large} pixels")
    speed = f"{report.copy_speed / 1e9:.1f} GB/s"
    out.print(f"{report.threads} threads; load {report.load:.1f} before; between frames NumPy copied at up to {speed}")
    for outcome in report.outcomes:
        ready = f"{'from the cache' if outcome.cached else 'compiled'} in {_time(outcome.compile_s)}"
        table = Table(
            title=f"\n{outcome.device}: {outcome.language}, {ready}",
            box=box.SIMPLE_HEAD,
            title_justify="left",
            title_style="bold",
            pad_edge=False,
        )
        for heading, justify in (("step", "left"), ("by", "left"), ("time", "right"), ("moves", "right")):
            table.add_column(heading, justify=justify)  # type: ignore[arg-type]
        table.add_column("GB/s", justify="right")
        table.add_column("of copy speed", justify="right")
        for row in outcome.timings:
            cells = [row.name, row.queue, _time(row.seconds)]
            if row.moves and row.seconds > 0:
                rate = row.moves / row.seconds
                cells += [f"{row.moves / 1e6:.1f} MB", f"{rate / 1e9:.1f}", f"{rate / report.copy_speed:.0%}"]
            table.add_row(*cells)
        out.print(table)
    for line in NOTES:
        out.print(line)
    _print_checks(report)
    reasons: dict[str, list[str]] = {}
    for name, reason in report.left_out.items():
        reasons.setdefault(reason.replace(f" for {name};", " for it;"), []).append(name)
    for reason, names in reasons.items():
        out.print(f"{', '.join(names)} left out: {reason}")
    devices = ", ".join(outcome.device for outcome in report.outcomes)
    wrong = sum(row.wrong for rows in report.differences.values() for row in rows)
    said = Text(f"{wrong:,} values are wrong" if wrong else "every value is right", style="red" if wrong else "")
    out.print(said, f"on {devices}; the picture is in {report.picture}", soft_wrap=True)


def _print_checks(report: Report) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title="\nevery value compared, in both sizes",
        box=box.SIMPLE_HEAD,
        title_justify="left",
        title_style="bold",
        pad_edge=False,
    )
    for heading in ("device", "result", "against", "values", "tolerance", "largest", "wrong"):
        table.add_column(
            heading, justify="left" if heading in ("device", "result", "against") else "right", overflow="fold"
        )
    for name, rows in report.differences.items():
        merged: dict[tuple[str, str], list[Difference]] = {}
        for row in rows:
            merged.setdefault((row.name, row.against), []).append(row)
        for (result, against), same in merged.items():
            wrong = sum(row.wrong for row in same)
            table.add_row(
                name,
                result,
                against,
                f"{sum(row.pixels for row in same):,}",
                "exact" if not same[0].tolerance else f"{same[0].tolerance:.3g}",
                f"{max(row.largest for row in same):.3g}",
                Text(f"{wrong:,}", style="red" if wrong else "green"),
            )
    console().print(table)


def _time(seconds: float) -> str:
    for limit, factor, unit in ((1e-3, 1e6, "us"), (1, 1e3, "ms")):
        if seconds < limit:
            return f"{seconds * factor:.2f} {unit}" if seconds * factor < 100 else f"{seconds * factor:.0f} {unit}"
    return f"{seconds:.2f} s"


def _lines(facts: dict[str, str]) -> str:
    return "\n  ".join(f"{name}: {text}" for name, text in facts.items())


def _plain(report: Report) -> dict[str, Any]:
    """The report as JSON takes it: without pixels, with rates worked out."""
    plain = asdict(report)
    for outcome in plain["outcomes"]:
        del outcome["results"]
        for row in outcome["timings"]:
            if row["moves"] and row["seconds"]:
                row["of_copy_speed"] = row["moves"] / row["seconds"] / report.copy_speed
    plain["right"] = report.right
    return plain
