"""The documentation is true: the ```python blocks of README.md and docs/*.md run, and print what they say.

The blocks of one page run one after the other in one interpreter. A line `print(...)  # -> text` is checked against
what was printed. Links between pages lead somewhere.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PROMISED = re.compile(r"^\s*print\(.*\)  # -> (.*)$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)#]+?)(?:#[^)]*)?\)")

RUNNER = """
import sys
namespace = {"__name__": "__main__"}
for line, block in eval(sys.stdin.read()):
    exec(compile("\\n" * line + block, sys.argv[1], "exec"), namespace)
"""


def blocks(page):
    """(line it begins after, source) of each block."""
    text = page.read_text()
    return [(text.count("\n", 0, match.start(1)), match.group(1)) for match in BLOCK.finditer(text)]


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.name)
def test_the_examples_of_a_page_run_and_print_what_they_say(page, tmp_path):
    found = blocks(page)
    command = [sys.executable, "-c", RUNNER, str(page)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))}
    done = subprocess.run(
        command, input=repr(found), capture_output=True, text=True, cwd=tmp_path, timeout=240, env=environment
    )
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()
    for _, source in found:
        for promised in PROMISED.findall(source):
            assert promised in printed, f"{page.name}: not printed: {promised}\nprinted:\n{done.stdout}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_to_files_lead_somewhere(page):
    for target in LINK.findall(CODE.sub("", page.read_text())):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}, which is not there"
