"""Which CUDA devices a machine has, and which one a name means.

What does not live here: anything done with a device once it is chosen.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from hcq import _native, config
from hcq.drivers import finding
from hcq.errors import DeviceUnavailable

_use = finding.Use("CUDA", "CUDA", "its driver does not work in a child")


class Found(NamedTuple):
    """A device: its number with the driver, whether it is the stand-in on the CPU, and what the driver says of it."""

    number: int
    on_cpu: bool
    facts: dict[str, Any]

    @property
    def name(self) -> str:
        """What the driver calls it."""
        return str(self.facts["name"])

    @property
    def capability(self) -> tuple[int, int]:
        """Its compute capability."""
        major, minor = self.facts["capability"]
        return major, minor


def devices() -> list[Found]:
    """The CUDA devices here, in the driver's order; with HCQ_CUDA=cpu those of hcq.cudacpu.

    Raises DeviceUnavailable where there are none, and in a child forked after CUDA was used.
    """
    _use.check()
    on_cpu = config.CUDA() == "cpu"
    if on_cpu:
        _install()
    try:
        facts = _native.cuda_devices()
    except DeviceUnavailable as why:
        if not on_cpu:
            raise
        raise DeviceUnavailable(
            why.reason.replace("NVIDIA's driver", "hcq.cudacpu"),
            "HCQ_CUDACPU_DEVICES, HCQ_CUDACPU_CC, HCQ_CUDACPU_MEMORY, HCQ_CUDACPU_PEERS and CUDA_VISIBLE_DEVICES say "
            "what there is; a line on standard error (CUDA_LOG_FILE) says which of them can't be read",
        ) from None
    _use.begin()
    if not facts:
        raise DeviceUnavailable("NVIDIA's driver finds no device", "CUDA_VISIBLE_DEVICES may hide those there are")
    return [Found(number, on_cpu, each) for number, each in enumerate(facts)]


def choose(name: str) -> Found:
    """The CUDA device that a canonical name (CUDA, CUDA:1, CUDA:H200) means; raises DeviceUnavailable."""
    return finding.choose(
        name,
        devices(),
        lambda each: (each.name,),
        "CUDA device",
        "count from 0; CUDA_VISIBLE_DEVICES may hide some",
    )


def _install() -> None:
    try:
        from hcq.cudacpu import install
    except ImportError as error:
        raise DeviceUnavailable(
            f"HCQ_CUDA=cpu, and hcq.cudacpu can't be imported ({error})", "this build of hcq was made without it"
        ) from error
    install()
