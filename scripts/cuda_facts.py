#!/usr/bin/env python3
"""Writes native/cudacpu/api/names.inc and enums.hpp from the headers of a CUDA toolkit: cuda_facts.py DIR_WITH_CUDA_H

What is taken are facts: which functions there are, since which version of CUDA each variant is the one that a name
means, and what the enumerators are called and worth. Run it again when a new toolkit adds functions; building hcq
needs no toolkit.
"""

import re
import sys
from pathlib import Path

OUT = Path(__file__).resolve().parents[1] / "native" / "cudacpu" / "api"
# Enumerations that the library doesn't read: graphics, tensor maps, decompression, and so on.
UNUSED = re.compile(r"cl_|CUtensorMap|CUgraphics|CUresourceView|CUmemDecompress|CUcoredump|CUcig|CUstreamCig|CUfabric|"
                    r"CUlogicalEndpoint|CUclique|CUexternal|CUarray_cubemap|CUprocessState|CUflushGPU|CUGPUDirect|CUmulticast|"
                    r"CUarray_format|CUarraySparse|CUasync|CUfilter|CUaddress_mode|CUgraphRecapture")  # fmt: skip


def strip_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.S)


def enums(text: str) -> list[tuple[str, list[tuple[str, int]]]]:
    """Every enumeration in the order of the header, with the values worked out."""
    known = {k: int(v, 0) for k, v in re.findall(r"^#define (CU_\w+)\s+(0x[0-9A-Fa-f]+|\d+)\s*$", text, flags=re.M)}
    found = []
    for body, name in re.findall(r"^typedef enum \w+\s*\{([^}]*)\}\s*(\w+)\s*;", text, flags=re.M):
        value, members = -1, []
        lines = [line for line in body.splitlines() if not line.lstrip().startswith("#")]
        for entry in "\n".join(lines).split(","):
            if not entry.strip():
                continue
            key, _, expression = (part.strip() for part in entry.partition("="))
            value = (
                eval(re.sub(r"\(int\)|(?<=\d)[uU]", "", " ".join(expression.split())), {}, known)
                if expression
                else value + 1
            )
            known[key] = value
            members.append((key, value))
        found.append((re.sub(r"_v\d+$", "", name), members))
    return found


def write_enums(text: str) -> None:
    out = ["// Written by scripts/cuda_facts.py: the enumerations of the CUDA driver API.", "#pragma once", ""]
    out += ["namespace cudacpu {", "// clang-format off"]
    for name, members in enums(text):
        if UNUSED.match(name):
            continue
        members = [m for m in members if not m[0].endswith("_FORCE_INT")]
        base = "unsigned" if any(value > 0x7FFFFFFF for _, value in members) else "int"
        out.append(f"enum {name} : {base} {{")
        line = " "
        for key, value in members:
            word = f" {key} = {value if value < 0x10000 else hex(value)},"
            if len(line) + len(word) > 120:
                out.append(line)
                line = " "
            line += word
        out += [line, "};"]
    out += ["// clang-format on", "}  // namespace cudacpu", ""]
    (OUT / "enums.hpp").write_text("\n".join(out))


def write_errors(text: str) -> None:
    out = ["// Written by scripts/cuda_facts.py: every result of the API. X(name)", "// clang-format off"]
    for name, members in enums(text):
        if name == "CUresult":
            out += [f"X({key})" for key, _ in members]
    (OUT / "errors.inc").write_text("\n".join([*out, "// clang-format on", ""]))


def write_names(header: str, typedefs: str) -> None:
    renamed = re.findall(r"^#define\s+(cu\w+)\s+(?:__CUDA_API_PT[DS]Z?\()?(cu\w+)\)?\s*$", header, flags=re.M)
    latest = dict(reversed(renamed))  # the first counts: later ones undo it for the older declarations
    declared = set(re.findall(r"\b(cu[A-Z]\w+)\s*\(", header)) | set(latest.values())
    versions: dict[str, set[tuple[int, str]]] = {}
    for name, version, suffix in re.findall(r"\bPFN_(cu\w+?)_v(\d+)(_pt[ds][sz])?\)", typedefs):
        versions.setdefault(name, set()).add((int(version), suffix))
    lines = []
    for name, found in sorted(versions.items()):
        plain = sorted(version for version, suffix in found if not suffix)
        suffixes = sorted((version, suffix) for version, suffix in found if suffix)
        if not plain:  # only its per-thread variants have a typedef; the plain one is as old
            plain = sorted(version for version, _ in suffixes)
        top = latest.get(name, name)
        symbols = {v: name if i == 0 else f"{name}_v{i + 1}" for i, v in enumerate(plain)}
        if name == "cuGraphInstantiate":  # it became another function's second name
            symbols = {10000: name, 11000: name + "_v2", 12000: top}
        elif top not in symbols.values() and len(plain) == 1:
            symbols = {plain[0]: top}  # the older one is gone from the headers
        for symbol in symbols.values():
            if symbol not in declared and symbol + "_ptsz" not in declared:
                print(f"{name}: {symbol} is not in the header", file=sys.stderr)
        for version, symbol in sorted(symbols.items()):
            lines.append(f'X("{name}", {version}, 0, "{symbol}")')
        for version, suffix in suffixes:
            symbol = symbols[max(v for v in plain if v <= version)]
            lines.append(f'X("{name}", {version}, 1, "{symbol}{suffix}")')
    head = ["// Written by scripts/cuda_facts.py: which symbol a name means since which version of CUDA.",
            "// X(name, version, whether its default stream is the thread's, symbol)",
            "// clang-format off"]  # fmt: skip
    (OUT / "names.inc").write_text("\n".join([*head, *lines, "// clang-format on", ""]))


def main() -> None:
    folder = Path(sys.argv[1])
    header = strip_comments((folder / "cuda.h").read_text())
    write_enums(header)
    write_errors(header)
    # The typedefs without a version in their name are the macros' results, not functions.
    typedefs = [(folder / name).read_text() for name in ("cudaTypedefs.h", "cudaProfilerTypedefs.h")]
    write_names(header, strip_comments("".join(typedefs)))


main()
