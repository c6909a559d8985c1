"""The command line: `hcq devices`, `doctor`, `cache`, `demo`, `conformance`, `replay`, `bench`, `trace`.

Nothing of hcq imports this package, and it imports typer and rich only when a command runs. What does not live here:
any of the work. A command asks the library, words the answer, and turns a user's mistake into a line and an exit code.
"""


def main() -> None:
    """The console script `hcq`. Exits 0 when done, 1 when what was asked for failed, 2 when it was asked wrongly."""
    try:
        from hcq.cli.app import app

        app(prog_name="hcq")
    except KeyboardInterrupt:  # before or after a command's own handling
        raise SystemExit(130) from None
