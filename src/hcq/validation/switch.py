"""hcq.checks(): turning the checks on and off, and what becomes of what they find.

What does not live here: finding it. docs/checks.md says what each check sees and what it can't.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any, Self

from hcq import config
from hcq.errors import ValidationWarning
from hcq.queues import settling
from hcq.queues.device import HCQCompiled
from hcq.runtime import process, watch
from hcq.validation.observer import Watcher
from hcq.validation.redzones import RedZones
from hcq.validation.report import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hcq.validation.events import Access, Deed
    from hcq.validation.memory import Region
    from hcq.validation.report import Finding

_LEAVE_SECONDS = 5.0

_lock = threading.Lock()
_current: Checks | None = None


class Checks:
    """The checks of this process: `with hcq.checks() as c:`. What they find is raised by the call that shows it, as one
    of hcq.errors' ValidationErrors.

    - `findings`: the texts of all that was found, the first of each kind and pair of lines;
    - `possible`: the texts of conflicts that rest on an access which nobody declared. They are warned of
      (hcq.errors.ValidationWarning), and raised only with `strict`.

    Without `raises` what is found is warned of too, and the program goes on; only a submit that would close a deadlock
    raises all the same. All threads are checked. Blocks may be nested: the outermost turns the checks on and off. Its
    end, unless by an error, waits until devices are idle or stand at waits, and then looks at what was written beside
    allocations.
    """

    def __init__(self, strict: bool = False, raises: bool = True) -> None:
        self.strict, self.raises = strict, raises
        self.findings: list[str] = []
        self.possible: list[str] = []
        self._told: set[object] = set()
        self._late: list[Finding] = []  # found where nothing can be raised
        self._depth = 0
        self._start()

    def __enter__(self) -> Self:
        global _current
        with _lock:
            self._depth += 1
            if self._depth == 1:
                _current = self
                self._begin()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and self._depth == 1 and not watch.capturing():
            settling.settled()  # else what still runs would write beside its memory after the last look
        self.report(self._leave(), raising=kind is None)

    def report(self, found: Sequence[Finding], raising: bool = True, warning: bool = True) -> None:
        """Note what was found, warn of what is not to be raised, and raise the first of the rest."""
        late, self._late = self._late, []
        errors = []
        for finding in (*late, *found):
            only_possible = finding.possible and not self.strict
            raised = not only_possible and (self.raises or finding.kind is Kind.DEADLOCK)
            if raised:  # each time: who caught the first one is as wrong again
                errors.append(finding)
            if finding.key in self._told:
                continue
            self._told.add(finding.key)
            (self.possible if only_possible else self.findings).append(finding.text)
            if warning and not raised:
                _warn(finding)
        if errors and raising:
            raise errors[0].error()

    # Helpers

    def _leave(self) -> list[Finding]:
        """Leave a block; what was found and not told, where it was the outermost."""
        global _current
        with _lock:
            self._depth -= 1
            if self._depth:
                return []
            _current = None
            found = self._watcher.untold()
            found += [finding for zones in self._zones.values() for finding in zones.check()]
            self._end()
            return found

    def _at_exit(self) -> None:
        """The end of a process whose checks are on: what is found only now is printed, since nobody can catch it."""
        settling.settled(patience=_LEAVE_SECONDS)
        said = len(self.findings), len(self.possible)
        self._depth = 1
        self.report(self._leave(), raising=False, warning=False)
        texts = [*self.findings[said[0] :], *(f"possible {text}" for text in self.possible[said[1] :])]
        for text in texts:
            print(f"hcq: found by the checks when the program ended: {text}", file=sys.stderr)
        if self.strict and texts:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)

    def _start(self) -> None:
        self._zones: dict[int, RedZones] = {}
        self._watcher = _Watcher(self)

    def _begin(self) -> None:
        self._start()
        for device in HCQCompiled.devices:
            self.guard(device)
        watch.observe(self._watcher)

    def _end(self) -> None:
        watch.forget(self._watcher)
        for zones in self._zones.values():
            zones.stop()

    def guard(self, device: Any) -> None:
        """Give a device's allocations red zones."""
        for number in [number for number, zones in self._zones.items() if zones.device.closed]:
            del self._zones[number]
        known = self._zones.get(id(device))
        if RedZones.possible(device) and (known is None or known.device is not device):
            self._zones[id(device)] = RedZones.of(
                device, self._watcher, lambda finding: self._late.append(finding), lambda at: self._describe(device, at)
            )

    def check_zones(self, device: Any) -> list[Finding]:
        """What was written beside the allocations of a device, as far as a look now and then tells."""
        zones = self._zones.get(id(device))
        if zones is None or zones.device is not device:
            return []
        return zones.check(self._watcher.given(device))

    def is_pristine(self, region: Region, access: Access) -> bool:
        """Whether bytes of an allocation are as they were given out. Without red zones nobody can tell: no."""
        device = region.owner.device()
        zones = self._zones.get(id(device)) if device is not None else None
        return zones is not None and zones.is_pristine(region.first, access.first, access.last)

    def _describe(self, device: Any, address: int) -> tuple[str, Iterable[Deed]]:
        region = self._watcher.find(device, address)
        if region is None:
            return f"memory of {device.dname}", ()
        return str(region), self._watcher.writers(region.number)


class _Watcher(Watcher):
    """The same, and red zones."""

    def __init__(self, checks: Checks) -> None:
        super().__init__(checks.report)
        self._checks = checks
        self.model.memory.is_pristine = checks.is_pristine

    def opened(self, device: Any) -> None:
        super().opened(device)
        if isinstance(device, HCQCompiled):
            self._checks.guard(device)

    def synchronized(self, device: Any) -> None:
        super().synchronized(device)
        found = self._checks.check_zones(device)
        self.forget_writers(device)
        self._checks.report(found)


def checks(strict: bool = False, raises: bool = True) -> Checks:
    """Check all work from here on: a context manager. See Checks, and docs/checks.md.

    `strict` raises also for conflicts that are only possible; without `raises` all is warned of, and the program goes
    on. Inside another block, or with HCQ_CHECK=1, this is a part of that one, and either counts if one of them says so.
    """
    current = _current
    if current is None:
        return Checks(strict, raises)
    current.strict, current.raises = current.strict or strict, current.raises or raises
    return current


def from_environment() -> None:
    """Turn the checks on for the whole process: HCQ_CHECK. Raises ValueError for what it can't be."""
    mode = (config.CHECK() or "").lower()
    if mode not in ("1", "true", "yes", "on", "strict"):
        raise ValueError(f"HCQ_CHECK={config.CHECK()!r}: expected 0, 1 or strict")
    checks = Checks(strict=mode == "strict")
    checks.__enter__()
    atexit.register(checks._at_exit)  # finalizers that run later find nobody watching


def _warn(finding: Finding) -> None:
    """Warn of it at the user's line."""
    warning = ValidationWarning(finding.text)
    site = next((deed.site for deed in reversed(finding.deeds) if deed.site is not None), None)
    if site is None:
        warnings.warn(warning, stacklevel=3)
    else:
        warnings.warn_explicit(warning, ValidationWarning, site.file, site.line)


def _in_child() -> None:
    # Of the parent's devices a child can use nothing: it begins anew.
    global _lock
    _lock = threading.Lock()
    current = _current
    if current is not None:
        watch.forget(current._watcher)
        current._late = []
        current._begin()


process.at_fork_in_child(_in_child)
