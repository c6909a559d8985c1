"""Compiling in a process of its own what might end the process: LLVM aborts, or exits, on much that it can't compile.

Inline assembly with a mistake, an intrinsic of another processor, a scalable vector: LLVM has no way to report these to
a caller. So whatever isn't known to be ordinary is optimised and emitted by a child. What does not live here: ordinary
modules (llvm_host), and everything before the code generator (compiler_llvm).
"""

from __future__ import annotations

import re
import sys

from hcq.errors import CompileError

_SECONDS = 300.0
_START = "import sys; sys.path[:0] = sys.argv[1:]; from hcq.drivers.cpu.llvm_isolated import main; main()"

# Intrinsics that every processor can be given, by the first part of their names. As text: re compiles it for the first
# module that has intrinsics.
_ORDINARY = (
    r"@llvm\.(?:mem(?:cpy|move|set)|[su](?:min|max|cmp)|abs|[su](?:add|sub|mul|shl)\.(?:with\.overflow|sat)"
    r"|bswap|bitreverse|ctpop|ctlz|cttz|fsh[lr]|sqrt|powi?|sin|cos|tan|exp(?:2|10)?|log(?:2|10)?|fma|fmuladd|fabs"
    r"|(?:min|max)(?:num|imum|imumnum)|copysign|floor|ceil|trunc|rint|nearbyint|round|roundeven|l?l(?:round|rint)|ldexp"
    r"|frexp|canonicalize|is\.fpclass|fpto[su]i\.sat|vector\.reduce|masked\.(?:load|store|gather|scatter)"
    r"|vector\.(?:insert|extract|reverse|splice|interleave2|deinterleave2)|stepvector|lifetime\.(?:start|end)"
    r"|invariant\.(?:start|end)|assume|expect|experimental\.noalias\.scope\.decl|prefetch|is\.constant|objectsize"
    r"|stacksave|stackrestore|threadlocal\.address|trap|debugtrap|donothing|dbg)\b"
)
_NAME = r"[%@$][-\w.$]+"
# Between words and names stand these; names keep what they begin with, and labels their colon.
_BETWEEN = "!\"#&'()*+,/;<=>?[\\]^`{|}~"
_APART = str.maketrans(_BETWEEN, " " * len(_BETWEEN))
_UNUSUAL = frozenset(
    ("asm", "vscale", "ppc_fp128", "x86_amx", "token", "gc", "personality", "prefix", "prologue", "naked")
    + ("presplitcoroutine", "ifunc", "cc")
)
_CONVENTIONS = frozenset(["ccc", "fastcc", "coldcc"])  # of those that end like this
_UNUSUAL_TYPE = r"\btarget\(|\baddrspace\((?![0134]\))"
_WIDEST = 128  # bits of integers that take ordinary time


def ordinary(printed: str) -> bool:
    """True if a printed module has nothing that LLVM might stop the process for."""
    bare = "\n".join(line for line in printed.split("\n") if not line.startswith(("!", ";")))
    if '"' in bare:  # what was a name in quotes leaves its sign, which is no word
        bare = " ".join(bare.split('"')[::2])
    if "@llvm." in bare and not all(
        re.match(_ORDINARY, name) for name in re.findall(_NAME, bare) if name.startswith("@llvm.")
    ):
        return False
    if ("target(" in bare or "addrspace(" in bare) and re.search(_UNUSUAL_TYPE, re.sub(_NAME, "", bare)):
        return False
    return not any(map(_unusual, _words(bare)))


def _words(bare: str) -> set[str]:
    """The words of a printed module without strings that are neither names nor labels. By hand: most modules are
    compiled before re would have compiled the patterns."""
    words: set[str] = set()
    for token in set(bare.translate(_APART).split()):
        if token[0] in "%@$" or (token[-1] == ":" and f"\n{token}" in bare):
            continue
        if token.isalnum():
            words.add(token)
            continue
        for sign in "%@$":
            token = token.split(sign, 1)[0]
        words.update(token.replace("-", " ").replace(".", " ").replace(":", " ").split())
    return words


def _unusual(word: str) -> bool:
    if word in _UNUSUAL or (word.endswith("cc") and word not in _CONVENTIONS):
        return True
    number = word[1:] if word[0] == "i" else word[2:] if word.startswith("cc") else ""
    return number.isdigit() and (word[0] == "c" or int(number) > _WIDEST)


def emit(printed: str, source: str) -> bytes:
    """The object of a printed module, by a child process. Raises CompileError with what LLVM said; `source` is the
    user's text for it. Takes some tenths of a second."""
    import subprocess  # most modules need none, and it takes longer to import than they take to compile

    if not sys.executable:
        raise CompileError("LLVM IR: this must be compiled in a process of its own, and there is no sys.executable")
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _START, *(p for p in sys.path if p)],
            input=printed.encode(),
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CompileError(f"LLVM IR: LLVM took more than {_SECONDS:.0f} s over it", source=source) from None
    if done.returncode != 0 or not done.stdout.startswith(b"\x7fELF"):
        said = [line for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
        log = "\n".join(said[:20]) or f"(it said nothing; exit status {done.returncode})"
        what = said[0].removeprefix("LLVM ERROR: ").removeprefix("error: ") if said else "see the log"
        raise CompileError(f"LLVM IR that LLVM can't compile for this processor: {what}", log, source)
    return done.stdout


def main() -> None:
    """The child: a module's text in, an object out."""
    from hcq.drivers.cpu import llvm_host

    printed = sys.stdin.buffer.read().decode()
    with llvm_host.LOCK, llvm_host.Session(printed) as session:
        sys.stdout.buffer.write(llvm_host.emit(session.parse(printed)))
