"""MINI, a driver as a third party would write it (its conformance is test_conformance_mini.py), stays what it shows."""

import ast
from pathlib import Path

SOURCE = (Path(__file__).parent / "third_party" / "mini.py").read_text()


def test_the_driver_is_some_150_lines():
    code = [line for line in SOURCE.splitlines() if line.strip() and not line.strip().startswith(("#", '"""'))]
    assert len(code) <= 180


def test_the_driver_is_written_on_public_names():
    imported = [node for node in ast.walk(ast.parse(SOURCE)) if isinstance(node, ast.ImportFrom)]
    ours = {node.module for node in imported if node.module.partition(".")[0] == "hcq"}
    assert ours == {"hcq", "hcq.errors", "hcq.queues.signal"}
