"""The breakages themselves: one small wrong thing each, of the kind that a driver might really do.

They patch hcq's classes while they last and apply to the null device. breakages.py runs them.
"""

from __future__ import annotations
