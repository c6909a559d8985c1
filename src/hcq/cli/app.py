"""The typer application: names, options and help of every command. Each command's work is in a module of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hcq.cli.output import Mistake, check_environment, worded

app = typer.Typer(
    help="One contract - device, buffer, program, hardware command queue, signal - over every accelerator.",
    epilog="Exit codes: 0 done, 1 what was asked for failed, 2 it was asked wrongly. HCQ_LOG=debug shows what happens, "
    "HCQ_CHECK=1 checks all work of any command.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

cache = typer.Typer(help="Look into the compile cache, check it, empty it.", no_args_is_help=True)
app.add_typer(cache, name="cache")
kernel = typer.Typer(help="Look at portable kernels.", no_args_is_help=True)
app.add_typer(kernel, name="kernel")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text for people.")]


def _version(asked: bool) -> None:
    if asked:
        import hcq

        print(f"hcq {hcq.__version__}")
        raise typer.Exit


@app.callback()
@worded
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand != "doctor":  # which is there to show what is wrong
        check_environment()


@app.command()
@worded
def devices(
    names: Annotated[list[str] | None, typer.Argument(help="Only these devices, such as CLANG or CPU:1.")] = None,
    json: AsJson = False,
) -> int:
    """List every known device: what it is, or why it does not open here and what to do."""
    from hcq.cli.devices import show

    return show(names, json)


@app.command()
@worded
def doctor(json: AsJson = False) -> int:
    """Print one page about this machine and installation, to paste into a bug report."""
    from hcq.cli.doctor import show

    return show(json)


@app.command()
@worded
def demo(
    photo: Annotated[
        Path | None, typer.Argument(help="A photograph of yours; else one that scikit-image ships.")
    ] = None,
    device: Annotated[
        list[str] | None, typer.Option(help="Run on this device; may be repeated. Else on every CPU device.")
    ] = None,
    all_devices: Annotated[bool, typer.Option("--all", help="Run on every device that opens.")] = False,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the picture goes, a PNG.")] = Path(
        "hcq-demo.png"
    ),
    sigma: Annotated[float, typer.Option(min=0.5, max=10, help="Width of the blur, in pixels.")] = 2.0,
    megapixels: Annotated[
        float, typer.Option(min=0, max=128, help="Size that is timed: the photograph laid out that large; 0: as it is.")
    ] = 12,
    json: AsJson = False,
) -> int:
    """Blur a photograph, find its edges, equalise it, on command queues; check every pixel against SciPy; time it."""
    from hcq.cli.demo import show

    return show(photo, device or [], all_devices, output, sigma, megapixels, json)


@app.command()
@worded
def replay(
    file: Annotated[Path, typer.Argument(help="What g.save wrote.")],
    device: Annotated[str, typer.Option(help="Run on this device.")],
    compare: Annotated[
        str | None, typer.Option(help="Run on this one too, and name the first command whose output differs.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Run the programs of the file, which are foreign code.")] = False,
    trust_binaries: Annotated[
        bool, typer.Option("--trust-binaries", help="Load the file's binaries instead of compiling its sources.")
    ] = False,
    json: AsJson = False,
) -> int:
    """Run a saved graph on any device; compare two devices command by command."""
    from hcq.cli.replay import replay

    return replay(file, device, compare, yes, trust_binaries, json)


@kernel.command("show")
@worded
def kernel_show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="KERNEL", help="FILE.py:NAME or package.module:NAME; the file is run, or the module imported."
        ),
    ],
    choices: Annotated[
        list[str] | None, typer.Argument(help="Types of untyped buffers and constants: x=f32 size=64.")
    ] = None,
    target: Annotated[
        str, typer.Option("--target", "-t", help="A language (ir, llvm, c, ...), or a device such as CLANG.")
    ] = "ir",
) -> int:
    """Print what a portable kernel becomes: the form in the middle, or a device's language."""
    from hcq.cli.kernel import show

    return show(name, target, choices)


@cache.command()
@worded
def ls(json: AsJson = False) -> int:
    """List what is in the cache, the last used first."""
    from hcq.cli.cache import ls

    return ls(json)


@cache.command()
@worded
def explain(
    source: Annotated[str, typer.Argument(help="A file of kernel source, or - for standard input.")],
    device: Annotated[str | None, typer.Option(help="Whose compiler; else the default device's.")] = None,
    json: AsJson = False,
) -> int:
    """Say whether a source's library is in the cache, and if not, what changed."""
    from hcq.cli.cache import explain

    return explain(source, device, json)


@cache.command()
@worded
def verify(
    remove: Annotated[bool, typer.Option("--remove", help="Delete what is damaged.")] = False, json: AsJson = False
) -> int:
    """Read and check every entry. Exits 1 where one is damaged and stays."""
    from hcq.cli.cache import verify

    return verify(remove, json)


@cache.command()
@worded
def clear(yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False) -> int:
    """Delete every entry."""
    from hcq.cli.cache import clear

    return clear(yes)


@app.command(context_settings={"allow_extra_args": True})
@worded
def conformance(
    context: typer.Context,
    device: Annotated[str | None, typer.Option(help="The device to hold to the contract.")] = None,
    driver: Annotated[
        str | None,
        typer.Option(help="module:attribute of a DriverUnderTest, for another driver; also looked for in this folder."),
    ] = None,
    list_promises: Annotated[bool, typer.Option("--list", help="List the promises that have no test.")] = False,
    quick: Annotated[bool, typer.Option(help="Leave out what takes more than a second.")] = False,
) -> int:
    """Run the conformance suite on a device. Arguments after `--` go to pytest."""
    if not (device or driver or list_promises):
        raise Mistake(
            "name the device to test (--device CLANG) or its description (--driver module:attribute), or --list"
        )
    if driver:  # as with `python -m`: the console script's own folder is there instead of the current one
        import os
        import sys

        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
    from hcq.testing.conformance import main

    return main(device, list=list_promises, driver=driver, arguments=context.args, quick=quick)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False)
@worded
def bench(context: typer.Context) -> int:
    """Run the benchmarks of a checkout, beside their peers. All arguments go to them: `hcq bench --help`."""
    import subprocess
    import sys

    root = _checkout()
    if root is None:
        raise Mistake("the benchmarks are not part of the installed package: run this in a checkout of the sources")
    return subprocess.run([sys.executable, "-m", "benchmarks", *context.args], cwd=root).returncode


@app.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
@worded
def check(
    script: Annotated[str, typer.Argument(help="A Python script, run as `python SCRIPT ARGUMENTS` would run it.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="What the script is given.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Count conflicts that are only possible: nobody said what a kernel does.")
    ] = False,
    stop: Annotated[
        bool, typer.Option("--stop", help="Raise what is found in the call that shows it, instead of going on.")
    ] = False,
    module: Annotated[bool, typer.Option("-m", help="SCRIPT is a module's name, as after `python -m`.")] = False,
) -> int:
    """Run a script or module under the checks: races, deadlocks, lifetimes, bounds. Exits 1 where they find any."""
    from hcq.cli.check import show
    from hcq.cli.script import Module, Script

    return show((Module if module else Script)(script), arguments or [], strict, stop)


@app.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
@worded
def trace(
    script: Annotated[str, typer.Argument(help="A Python script, run as `python SCRIPT ARGUMENTS` would run it.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="What the script is given.")] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where the trace goes, .json or .pftrace; else named after the script."),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Also draw the timeline, an SVG.")] = None,
    table: Annotated[bool, typer.Option("--table", help="Also print the sums by kernel, to standard error.")] = False,
    module: Annotated[bool, typer.Option("-m", help="SCRIPT is a module's name, as after `python -m`.")] = False,
) -> int:
    """Run a script or module and write a trace of it, which ui.perfetto.dev opens. Options come before the script."""
    from hcq.cli.script import Module, Script
    from hcq.cli.trace import show

    return show((Module if module else Script)(script), arguments or [], output, plot, table)


def _checkout() -> Path | None:
    """The checkout that this is run in, or that the package is imported from."""
    import hcq

    for start in (Path.cwd(), Path(hcq.__file__).resolve().parent):
        for folder in (start, *start.parents):
            if (folder / "benchmarks" / "__main__.py").exists() and (folder / "src" / "hcq").is_dir():
                return folder
    return None
