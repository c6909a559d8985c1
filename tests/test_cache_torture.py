"""Eight processes write and read one cache while a vandal truncates, fills, deletes and replaces what is in it.

Everyone gets right bytes, nobody gets an exception, and what is left afterwards is whole.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from hcq import cache

pytestmark = pytest.mark.thorough

WRITERS = 8
ROUNDS = 600
SOURCES = 12

WRITER = """
import random, sys
import hcq
from hcq.errors import CompileError

class Doubler(hcq.Compiler):
    def compile(self, src):
        return (src * 2).encode() * 500

seed, rounds, sources = map(int, sys.argv[1:])
chance = random.Random(seed)
compiler = Doubler("torture")
for _ in range(rounds):
    source = f"source {chance.randrange(sources)} "
    library = compiler.compile_cached(source)
    assert library == (source * 2).encode() * 500, library[:80]
    if chance.random() < 0.9:
        hcq.cache.forget()
    if chance.random() < 0.02:
        hcq.cache.stats(), hcq.cache.explain(source, compiler), list(hcq.cache.entries())
    if chance.random() < 0.01:
        hcq.cache.verify(remove=True)
print("done", *hcq.cache.stats()[:2])
"""


def vandalise(directory: Path, chance: random.Random) -> None:
    """One act against whatever file comes up. The vandal may fail; the writers may not."""
    try:
        victims = [path for path in directory.rglob("*") if path.is_file()]
        if not victims:
            return
        victim = chance.choice(victims)
        act = chance.randrange(7)
        if act == 0:
            os.truncate(victim, chance.randrange(victim.stat().st_size + 1))
        elif act == 1:
            victim.unlink()
        elif act == 2:
            victim.write_bytes(os.urandom(chance.randrange(2000)))
        elif act == 3:
            with victim.open("r+b") as file:
                file.seek(chance.randrange(victim.stat().st_size))
                file.write(b"\xa5")
        elif act == 4:
            os.replace(victim, chance.choice(victims))
        elif act == 5:
            victim.chmod(chance.choice((0o666, 0o600, 0)))
        else:
            for path in victim.parent.iterdir():
                path.unlink()
            victim.parent.rmdir()
    except (OSError, ValueError):
        pass


@pytest.mark.parametrize("limit", ["2G", "64K"])
def test_eight_writers_and_a_vandal_get_right_bytes_and_no_exception(tmp_path, monkeypatch, limit):
    directory = tmp_path / "cache"
    monkeypatch.setenv("HCQ_CACHE_DIR", str(directory))
    monkeypatch.setenv("HCQ_CACHE_LIMIT", limit)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(seed), str(ROUNDS), str(SOURCES)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for seed in range(WRITERS)
    ]
    chance = random.Random(1)
    acts = 0
    while any(writer.poll() is None for writer in writers):
        vandalise(directory, chance)
        acts += 1
    for writer in writers:
        out, err = writer.communicate(timeout=60)
        assert (writer.returncode, err) == (0, "")
        assert out.startswith("done ")
    assert acts > 100
    cache.verify(remove=True)
    assert cache.verify() == []
    cache.clear()
    assert cache.stats().entries == 0
