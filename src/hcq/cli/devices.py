"""`hcq devices`: every known driver, whether it opens here, why not, and what to do."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from hcq.cli.output import FAILED, bytes_text, console, print_json
from hcq.errors import DeviceUnavailable, UnknownDevice

if TYPE_CHECKING:
    from rich.console import Console


@dataclass
class Row:
    """One device: `state` is `open`, `unavailable` or `broken` (an error that is the driver's bug).

    One that is open has a reason and a hint where its compiler can't work.
    """

    name: str
    state: str
    default: bool = False
    reason: str = ""
    hint: str = ""
    info: dict[str, Any] = field(default_factory=dict)


def survey(names: list[str] | None = None) -> list[Row]:
    """Opens each known device (or those named) and says what came of it. Devices stay open. May block as drivers start.

    Raises UnknownDevice for a name that no driver has.
    """
    from hcq import Device

    try:
        default = Device.DEFAULT
    except Exception:  # whatever keeps a default from being found, the device's own row says it
        default = ""
    rows = []
    for name in [Device.canonicalize(name) for name in names] if names else Device._devices:
        try:
            opened = Device[name]
            identity = getattr(opened.compiler, "identity", lambda: None)() or ""
            reason, hint = getattr(opened.compiler, "lacking", lambda: None)() or ("", "")
            info = {**opened.info, "compiler version": identity}
            rows.append(Row(name, "open", name == default, reason, hint, info))
        except DeviceUnavailable as error:
            rows.append(Row(name, "unavailable", reason=error.reason or str(error), hint=error.hint))
        except UnknownDevice:
            raise
        except Exception as error:  # a driver's bug must not hide the other drivers
            hint = "this is a bug of the driver: please report it with the output of `hcq doctor`"
            rows.append(Row(name, "broken", reason=f"{type(error).__name__}: {error}", hint=hint))
    return rows


def show(names: list[str] | None, as_json: bool) -> int:
    """Print the survey. The exit code is FAILED where a device that was named does not open, or a driver is broken."""
    rows = survey(names)
    if as_json:
        print_json([asdict(row) for row in rows])
    else:
        _table(rows)
    failed = [row for row in rows if row.state == "broken" or (names and row.state != "open")]
    return FAILED if failed else 0


def _table(rows: list[Row]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("device", "", "what it is", "memory", "cores", "queues", "compiler"):
        table.add_column(heading, justify="right" if heading in ("memory", "cores") else "left")
    for row in (row for row in rows if row.state == "open"):
        info = row.info
        name = f"{row.name} *" if row.default else row.name
        memory = info.get("memory")
        size = bytes_text(memory) if isinstance(memory, int | float) else _cell(memory)
        cells = size, _cell(info.get("cores")), _cell(info.get("queues")), info["compiler version"] or "-"
        is_open = Text(f"open, {row.reason}", style="yellow") if row.reason else Text("open", style="green")
        table.add_row(name, is_open, what(info), *cells)
    out = console()
    if table.row_count:
        out.print(table)
    for row in (row for row in rows if row.state == "open" and row.hint):
        out.print(f"{row.name}: {row.hint}")
    closed = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("device", "", "why not", "what to do"):
        closed.add_column(heading, overflow="fold")
    alike: dict[tuple[str, str, str], list[str]] = {}
    for row in (row for row in rows if row.state != "open"):
        alike.setdefault((row.state, row.reason, _about_it(row)), []).append(row.name)
    for (state, reason, hint), names in alike.items():
        closed.add_row(", ".join(names), Text(state, style="red" if state == "broken" else "yellow"), reason, hint)
    if closed.row_count:
        out.print(closed)
    if any(row.default for row in rows):
        out.print(
            "* the default device. HCQ_DEVICE=NAME chooses another; `hcq devices --json` has all there is to know."
        )
    else:
        _print_default(out)


def _about_it(row: Row) -> str:
    """The hint, the same for devices that differ in the name alone; names of variables keep theirs."""
    return re.sub(rf"(?<!\w){re.escape(row.name)}(?!\w)", "it", row.hint)


def _print_default(out: Console) -> None:
    from hcq import Device

    try:
        out.print(f"the default device is {Device.DEFAULT}")
    except Exception as error:  # a driver's bug must not hide the list
        out.print(f"no default device: {error}")


def what(info: dict[str, Any]) -> str:
    """What an opened device is, in words: its driver's own."""
    return str(info.get("kind") or info.get("driver") or "")


def _cell(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(str(item) for item in value)
    return "-" if value is None else str(value)
