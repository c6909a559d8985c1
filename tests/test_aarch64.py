"""The loader, the calling convention and the fiber switch on aarch64, under emulation where that is installed."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from hcq.drivers.cpu import object_library, toolchain

ROOT = Path(__file__).parent.parent
TOOLS = ("aarch64-linux-gnu-g++", "aarch64-linux-gnu-gcc", "qemu-aarch64")

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(
        not all(shutil.which(tool) for tool in TOOLS), reason="no aarch64 cross compiler and emulator on this machine"
    ),
]


@pytest.fixture(scope="module")
def runner(tmp_path_factory):
    folder = tmp_path_factory.mktemp("aarch64")
    target = folder / "kernels"
    sources = [path for path in ROOT.glob("native/cpu/*.cpp") if path.name != "bindings.cpp"]
    sources += [ROOT / "native/core" / name for name in ("names.cpp", "lines.cpp")]
    include = Path(sysconfig.get_paths()["include"])
    flags = ["-std=c++17", "-O1", f"-I{ROOT / 'native'}", f"-I{include}", f"-I{folder}", "-pthread"]
    own = include.parent / (sysconfig.get_config_var("MULTIARCH") or "") / include.name / "pyconfig.h"
    if own.exists():  # Debian keeps one a processor and installs the host's, which agrees in what is used here
        other = folder / "aarch64-linux-gnu" / include.name / "pyconfig.h"
        other.parent.mkdir(parents=True)
        other.write_text(f'#include "{own}"\n')
    command = [TOOLS[0], *flags, ROOT / "tests/native/kernels.cpp", *sources, "-ldl", "-o", target]
    subprocess.run(command, check=True)
    return target


@pytest.mark.parametrize("flags", [("-O3",), ("-O0",), ("-O2", "-mcmodel=large", "-fno-pic")])
def test_kernels_run_on_aarch64(runner, flags, tmp_path):
    command = [TOOLS[1], *toolchain.FLAGS, *flags, "-isystem", toolchain.INCLUDE, "-c", ROOT / "tests/native/kernels.c"]
    subprocess.run([*command, "-o", tmp_path / "kernels.o"], check=True)
    library = tmp_path / "kernels.lib"
    library.write_bytes(object_library.make_library((tmp_path / "kernels.o").read_bytes()))
    emulated = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", runner, library]
    done = subprocess.run(emulated, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
