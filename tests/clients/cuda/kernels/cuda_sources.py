"""The kernels' sources, and NVRTC, which makes PTX of them. What does not live here: any device."""

from __future__ import annotations

import glob
import os
import site
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
ARCHITECTURES = (75, 80, 90)


@dataclass(frozen=True)
class Source:
    names: tuple[str, ...] = ()  # of instances of templates, which NVRTC is asked for
    oldest: int = 75  # the first architecture that has what the file needs


SOURCES = {
    "atomics": Source(),
    "attention": Source(),
    "barrier": Source(oldest=80),
    "cccl": Source(),
    "cub": Source(),
    "data": Source(),
    "fast": Source(),
    "fft": Source(),
    "flash": Source(oldest=80),
    "groups": Source(oldest=80),
    "histogram": Source(),
    "language": Source(names=("powers<int, 3, int, short>", "powers<double, 5>", "powers<float, 0, float>")),
    "library": Source(),
    "matrix": Source(
        names=(
            "product<float, 16>",
            "product<double, 8>",
            "product<int, 16>",
            "transpose<float>",
            "transpose<double>",
            "transpose<unsigned char>",
        )
    ),
    "numbers": Source(),
    "pipeline": Source(),
    "quantised": Source(),
    "recent": Source(oldest=90),
    "reduce": Source(),
    "rows": Source(),
    "scan": Source(),
    "signals": Source(),
    "simulate": Source(),
    "solve": Source(),
    "sort": Source(),
    "sparse": Source(names=("csr_scalar<float>", "csr_scalar<double>", "csr_warp<float>", "csr_warp<double>")),
    "stencil": Source(),
    "strings": Source(),
    "tables": Source(),
    "tensor": Source(),
    "warp": Source(),
    "wmma": Source(),
}


@dataclass(frozen=True)
class Compiled:
    ptx: bytes
    lowered: dict[str, str]  # what an instance of a template is called in PTX


class NoHeader(Exception):
    """A header of the toolkit that is in a package which is not installed."""


@cache
def compiled(name: str, architecture: int, options: tuple[str, ...] = ("-lineinfo",)) -> Compiled:
    """PTX of kernels/NAME.cu for compute_ARCHITECTURE; RuntimeError has NVRTC's log; NoHeader."""
    from cuda.bindings import nvrtc

    path = HERE / f"{name}.cu"
    _, program = nvrtc.nvrtcCreateProgram(path.read_bytes(), str(path).encode(), 0, [], [])
    try:
        names = SOURCES[name].names
        for each in names:
            nvrtc.nvrtcAddNameExpression(program, each.encode())
        given = [f"--gpu-architecture=compute_{architecture}", "--std=c++17", "--device-int128", *options]
        given += [f"-I{folder}" for folder in headers()]
        encoded = [each.encode() for each in given]
        (error,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
        if error:
            size = nvrtc.nvrtcGetProgramLogSize(program)[1]
            log = bytearray(size)  # not b" " * size: where that is 1 it is a byte that all of Python shares
            nvrtc.nvrtcGetProgramLog(program, log)
            if b"cannot open source file" in log:
                raise NoHeader(log.decode(errors="replace"))
            raise RuntimeError(f"{path.name} for compute_{architecture}: {log.decode(errors='replace')}")
        lowered = {each: nvrtc.nvrtcGetLoweredName(program, each.encode())[1].decode() for each in names}
        ptx = bytearray(nvrtc.nvrtcGetPTXSize(program)[1])
        nvrtc.nvrtcGetPTX(program, ptx)
        return Compiled(bytes(ptx), lowered)
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def headers() -> list[str]:
    """Where the toolkit's headers are: those of its wheels (nvidia-cuda-runtime, nvidia-cuda-cccl), or CUDA_PATH's."""
    folders = [*site.getsitepackages(), *sys.path]
    found = [at for each in folders for at in glob.glob(os.path.join(each, "nvidia", "*", "include"))]
    if os.environ.get("CUDA_PATH"):
        found.append(os.path.join(os.environ["CUDA_PATH"], "include"))
    found += [os.path.join(each, "cccl") for each in found if os.path.isdir(os.path.join(each, "cccl"))]
    return list(dict.fromkeys(found))
