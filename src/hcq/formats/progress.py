"""The progress bar of long loads. What does not live here: loading."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_LONG = 512 << 20  # bytes from which a bar is shown without being asked for


@contextmanager
def progress_of(total: int, show: bool | None) -> Iterator[Callable[[int], None]]:
    """A function to be told of bytes that are done, from any thread, while a bar on standard error shows them.

    `show` None means a long load when standard error is a terminal.
    """
    if show is None:
        show = total >= _LONG and sys.stderr is not None and sys.stderr.isatty()
    if not show:
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    lock = threading.Lock()  # guards the bar
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("load", total=total)

        def done(count: int) -> None:
            with lock:
                bar.advance(task, count)

        yield done
