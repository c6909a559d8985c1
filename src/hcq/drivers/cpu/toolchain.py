"""C compilers: finding one, knowing which it is, and running it.

What does not live here: the Compiler that devices have (compiler_c), and what is made of an object (object_library).
"""

from __future__ import annotations

import functools
import os
from typing import NamedTuple

from hcq import config
from hcq.errors import CompileError

INCLUDE = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))), "include")
HINT = "install clang or gcc (apt install clang), or pip install 'hcq[clang]', or name a compiler in HCQ_CC"


def _has_glibc() -> bool:
    try:
        return bool(os.confstr("CS_GNU_LIBC_VERSION"))
    except (ValueError, OSError):
        return False


# Position-independent since the loader decides where code goes; hidden so that the source's own variables and functions
# are reached directly; no unwind tables, stack protector or PLT, which nothing here uses.
FLAGS = (
    *("-O3", "-fPIC", "-fvisibility=hidden", "-fno-semantic-interposition", "-fno-plt", "-fno-math-errno"),
    *("-fno-asynchronous-unwind-tables", "-fno-stack-protector", "-fno-ident", "-g", "-gdwarf-4"),
)
ZIG_FLAGS = ("-fno-sanitize=undefined", "-target", f"{os.uname().machine}-linux-{'gnu' if _has_glibc() else 'musl'}")
TARGET_FLAGS = {
    "x86_64": ("-march=native", "-fcf-protection=none"),
    "aarch64": ("-mcpu=native", "-mno-outline-atomics"),
}
# Would add files or change the target without being seen in the key.
HIDDEN_INPUTS = (
    "CPATH",
    "C_INCLUDE_PATH",
    "OBJC_INCLUDE_PATH",
    "COMPILER_PATH",
    "GCC_EXEC_PREFIX",
    "DEPENDENCIES_OUTPUT",
)


class CompilerWarning(UserWarning):
    """A C compiler's warnings about a kernel's source: shown, never fatal."""


class Toolchain(NamedTuple):
    """A C compiler on this machine: the command that runs it, and the program's file."""

    command: tuple[str, ...]
    path: str

    @property
    def is_zig(self) -> bool:
        """Whether it is Zig's C compiler, which wants flags of its own."""
        return self.command[-1] == "cc" and os.path.basename(self.path).startswith(("zig", "python"))

    def flags(self) -> tuple[str, ...]:
        """What this compiler is given besides the common flags."""
        return (*self.command[1:], *(ZIG_FLAGS if self.is_zig else ()))

    def version(self) -> str:
        """The compiler's own words about its version and target. Runs it."""
        import subprocess

        answers = []
        for question in ("--version", "-dumpmachine"):
            command = [*self.command, question]
            try:
                done = subprocess.run(
                    command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                    check=False,
                )  # fmt: skip
            except OSError as error:
                raise CompileError(f"cannot run {self.command[0]}: {error.strerror}; {HINT}") from error
            answers.append(done.stdout.partition("\n")[0].strip())
        return " ".join(answers)


class Compiled(NamedTuple):
    """What a compiler made: the object, and its warnings ('' without)."""

    object: bytes
    warnings: str


def find_c_compiler() -> Toolchain | None:
    """The C compiler to use: HCQ_CC where that is set, else clang, gcc, cc, else the ziglang wheel's. None without one.

    HCQ_CC is a program, by name or path, and may be followed by arguments. Looked up anew only when the environment
    changes.
    """
    return _find(config.CC(), os.environ.get("PATH"))


@functools.lru_cache(maxsize=8)
def _find(named: str | None, _path: str | None) -> Toolchain | None:
    if named is not None:
        import shlex

        try:
            program, *arguments = shlex.split(named)
        except ValueError:  # an open quote
            return None
        path = _which(program)
        return _toolchain(path, *arguments) if path is not None else None
    for name in ("clang", "gcc", "cc"):
        path = _which(name)
        if path is not None:
            return _toolchain(path)
    from importlib.util import find_spec

    spec = find_spec("ziglang")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = _which("zig", path=folder)
        if path is not None:
            return _toolchain(path, "cc")
    return None


def _toolchain(path: str, *arguments: str) -> Toolchain:
    # Absolute, since the compiler runs in a directory of its own; not resolved, since programs look at their own name.
    return Toolchain((os.path.abspath(path), *arguments), os.path.realpath(path))


def _which(program: str, path: str | None = None) -> str | None:
    """shutil.which, without the compression modules that shutil imports: opening a device would wait for them."""
    if os.path.dirname(program):
        folders = [""]
    else:
        folders = (path or os.environ.get("PATH") or os.defpath).split(os.pathsep)
    for folder in folders:
        candidate = os.path.join(folder, program)
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    return None


def common_flags() -> tuple[str, ...]:
    """The flags that every compiler is given."""
    return FLAGS + TARGET_FLAGS.get(os.uname().machine, ())


def missing() -> str:
    """Why there is no compiler, and what to do."""
    named = config.CC()
    if named is not None:
        return f"HCQ_CC={named!r} is no program that can be run; unset it, or name a C compiler"
    return (
        f"no C compiler found (looked for clang, gcc, cc and the ziglang package); {HINT}; "
        "Device['LLVM'] needs none, and takes LLVM IR; Device['CPU'] is whichever of the two works here"
    )


def compile_object(toolchain: Toolchain, source: str | bytes, flags: tuple[str, ...] = ()) -> Compiled:
    """An object of C source. Blocks while the compiler runs. Raises CompileError with its log.

    The compiler runs in an empty directory and without the variables that add include paths, so that the result depends
    on nothing but the source, the flags and the compiler with its own headers.
    """
    import subprocess  # here, as opening a device runs no compiler and should not wait for these
    import tempfile

    data = source.encode("utf-8", "surrogatepass") if isinstance(source, str) else source
    environment = {name: value for name, value in os.environ.items() if name not in HIDDEN_INPUTS}
    environment["LC_ALL"] = "C"
    with tempfile.TemporaryDirectory(prefix="hcq-") as folder:
        if toolchain.is_zig:  # whose own cache would want a home directory, and keep what ours keeps
            environment["ZIG_GLOBAL_CACHE_DIR"] = environment["ZIG_LOCAL_CACHE_DIR"] = folder
        command = [toolchain.command[0], *toolchain.flags(), *common_flags(), *flags, "-isystem", INCLUDE]
        command += ["-x", "c", "-c", "-", "-o", "out.o"]
        try:
            done = subprocess.run(
                command, input=data, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder, env=environment,
                check=False,
            )  # fmt: skip
        except OSError as error:
            raise CompileError(f"cannot run {toolchain.command[0]}: {error.strerror}; {HINT}", source=source) from error
        log = done.stdout.decode(errors="replace").strip()
        if done.returncode != 0:
            name = os.path.basename(toolchain.path)
            how = f"exit status {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
            raise CompileError(f"{name} refused the source ({how}):", log or "(it said nothing)", source)
        try:
            with open(os.path.join(folder, "out.o"), "rb") as file:
                return Compiled(file.read(), log)
        except FileNotFoundError:
            named = " ".join(toolchain.command)
            what = f"{named} wrote no object file, though its exit status was 0: is it a C compiler? {HINT}"
            raise CompileError(what, log, source) from None


@functools.cache
def host_features() -> str:
    """What this processor can do, as far as compilers look at it: part of every key."""
    from hcq import _native

    return f"{os.uname().machine} {_native.cpu_features()}"
