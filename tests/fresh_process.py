"""Code in an interpreter of its own: what a process finds, is refused, and leaves behind. No tests."""

import os
import subprocess
import sys
import textwrap

_REFUSAL = """
import hcq
try:
    hcq.Device[{name!r}]
except hcq.errors.DeviceUnavailable as why:
    print(why.reason, "|", why.hint)
"""


def run(code, **env):
    """The ended process; code may be indented."""
    path = os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={**os.environ, "PYTHONPATH": path, **env},
        capture_output=True,
        text=True,
        timeout=100,
    )


def in_process(code, **env):
    """What it prints; it ends well."""
    done = run(code, **env)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def refusal(name, before="", **env):
    """Reason and hint of a device that is not available; empty where it opens. `before`: a line that comes first."""
    return in_process(f"{before}\n{_REFUSAL.format(name=name)}", **env)


def refusal_in_a_forked_child(name):
    """The same, of a child whose parent has opened the device."""
    code = f"import os\nimport hcq\nhcq.Device[{name!r}]\nif os.fork() == 0:\n"
    code += textwrap.indent(_REFUSAL.format(name=name), "    ")
    return in_process(code + "    import sys; sys.stdout.flush(); os._exit(0)\nos.wait()")


def default_of_a_process_that_names_no_device(names):
    """What Device.DEFAULT is there; `names` of drivers have no variables."""
    return in_process("import hcq; print(hcq.Device.DEFAULT)", **dict.fromkeys((*names, "CPU", "HCQ_DEVICE"), ""))
