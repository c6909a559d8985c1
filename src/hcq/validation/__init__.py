"""The validation layer: what is wrong with the order, the lifetimes and the bounds of a program's work, on any device.

`checks` turns it on (hcq.checks, HCQ_CHECK). It watches through hcq.runtime.watch and changes nothing that runs, save
that allocations get red zones. The model (model, machine, signals, memory, deadlocks) knows no devices; observer tells
it of them. docs/design/checks.md says why it is made so.
"""

from __future__ import annotations

from hcq.validation.switch import Checks as Checks
from hcq.validation.switch import checks as checks
