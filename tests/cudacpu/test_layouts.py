"""Structures, enumerations and names of the driver on the CPU are those of the toolkit's headers, and its own the same
in both languages."""

import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import pytest

from hcq.cudacpu.lower.accesses import Code

NATIVE = Path(__file__).parents[2] / "native" / "cudacpu" / "api"
# Ours hold what several of the toolkit's have in common, or what it calls otherwise.
OURS = {"MemOpValue", "MemOpFlags", "MemOpReduction"}

HIDDEN = {"CU_LAUNCH_ATTRIBUTE_MAX"}  # in the header only for NVIDIA's own


def toolkit():
    """The folder with cuda.h, of the package nvidia-cuda-runtime."""
    try:
        found = [file for file in files("nvidia-cuda-runtime") or () if file.name == "cuda.h"]
    except PackageNotFoundError:
        found = []
    if not found:
        pytest.skip("cuda.h is not installed (nvidia-cuda-runtime, of hcq[cuda])")
    if not shutil.which("c++"):
        pytest.skip("there is no C++ compiler")
    return Path(found[0].locate()).parent


def structures(text):
    """Name and plain fields of each structure at the outer level of a header."""
    for name, body in re.findall(r"^struct (\w+)(?: : \w+)? \{\n(.*?)^\};", text, flags=re.M | re.S):
        fields = []
        depth = 0
        for line in body.splitlines():
            code = line.split("//")[0].strip()
            if depth == 0 and code.endswith(";") and "(" not in code and not code.startswith("}"):
                fields += [re.sub(r"\[.*?\]|[*&\s]", "", part.split()[-1]) for part in code[:-1].split(",")]
            depth += code.count("{") - code.count("}")
        yield name, fields


def test_codes_of_addresses_are_the_ones_that_are_written():
    (names,) = re.findall(r"^enum Code : uint8_t \{(.*?)\}", (NATIVE.parent / "run/whose.cpp").read_text(), re.M | re.S)
    names = [{"band": "and_", "bor": "or_", "bxor": "xor"}.get(name, name) for name in re.findall(r"\w+", names)]
    assert names == [code.name for code in Code] and list(Code) == list(range(len(names)))


def test_layouts_are_the_toolkits(tmp_path):
    include = toolkit()
    headers = ["api.hpp", "api_graph.hpp", "api_launch.hpp"]
    known = re.sub(r"/\*.*?\*/", "", (include / "cuda.h").read_text(), flags=re.S)
    lines = ["#include <cstddef>", "#include <cuda.h>"]
    lines += [f"#undef {macro}" for macro in re.findall(r"^#define (CU_\w+)", known, flags=re.M)]  # ours are constants
    lines += [f'#include "api/{header}"' for header in headers]
    for header in headers:
        for name, fields in structures((NATIVE / header).read_text()):
            if not re.search(rf"\b{name};", known):
                assert name in OURS, name
                continue
            lines.append(f'static_assert(sizeof(::{name}) == sizeof(cudacpu::{name}), "{name}");')
            lines += [
                f'static_assert(offsetof(::{name}, {field}) == offsetof(cudacpu::{name}, {field}), "{name}.{field}");'
                for field in fields
            ]
    assert len(lines) > 150
    enumerators = re.findall(r"(CU\w+) = ", (NATIVE / "enums.hpp").read_text())
    assert len(enumerators) > 700
    lines += [f'static_assert(int(::{name}) == int(cudacpu::{name}), "{name}");' for name in {*enumerators} - HIDDEN]
    source = tmp_path / "layouts.cpp"
    source.write_text("\n".join(lines) + "\n")
    command = ["c++", "-std=c++17", "-fsyntax-only", "-Wno-deprecated-declarations", f"-I{include}"]
    done = subprocess.run([*command, f"-I{NATIVE.parent}", str(source)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
