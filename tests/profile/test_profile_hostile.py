"""Profiles of programs that name things badly, and go elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import xml.dom.minidom

import hcq


def test_a_thread_may_be_called_what_no_file_can_hold(tmp_path):
    dev = hcq.Device["CLANG"]
    one = dev.program("one", "void one(int *a) { a[0] += 1; }")
    a = hcq.zeros(4, hcq.dtypes.int32, "CLANG")
    leave = threading.Event()
    launched = threading.Event()

    def run():
        one(a)
        launched.set()
        leave.wait(20)

    with hcq.profile() as p:
        thread = threading.Thread(target=run, name='t\udc80"<&>\n')
        thread.start()
        launched.wait(20)
    leave.set()
    thread.join()
    text = (tmp_path / "trace.json", tmp_path / "trace.svg", tmp_path / "trace.pftrace")
    assert p.save(text[0]) and p.plot(text[1]) and p.save(text[2])
    events = json.loads(text[0].read_bytes())["traceEvents"]
    assert any(e["name"] == "thread_name" and e["args"]["name"] == 't\\udc80"<&>\n' for e in events)
    xml.dom.minidom.parse(str(text[1]))


def test_profile_1_writes_where_the_program_began(tmp_path):
    away = tmp_path / "away"
    away.mkdir()
    code = "import hcq, os; hcq.zeros(4, hcq.dtypes.int32, 'CLANG').numpy(); os.chdir('away')"
    environment = {**os.environ, "PROFILE": "1", "PROFILEPATH": "here.json"}
    environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in sys.path if path)
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, timeout=60)
    assert (tmp_path / "here.json").exists() and not list(away.iterdir())
