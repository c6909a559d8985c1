"""Two caches side by side, which never mix: tinygrad's, for what it searched for; hcq's, for what was compiled."""

import pickle
import sqlite3

import pytest
from running import alone, client
from tinygrad import Device

PROGRAM = """
from tinygrad import Device, Tensor
from tinygrad.helpers import diskcache_get, diskcache_put
x = Tensor.ones(7, 3).contiguous().realize()
print((x * 5 + 2).sum().item())
print(diskcache_get("of_the_program", "key"))
diskcache_put("of_the_program", "key", 41)
"""


def tables(path):
    with sqlite3.connect(path) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: connection.execute(f"SELECT COUNT(*) FROM '{name}'").fetchone()[0] for name in names}


def test_compiled_code_is_kept_in_hcqs_cache_and_not_in_tinygrads(tmp_path):
    db, ours = tmp_path / "tinygrad.db", tmp_path / "hcq"
    more = {"CACHEDB": str(db), "HCQ_CACHE_DIR": str(ours), "CLANG": "1"}
    first = client("-c", PROGRAM, **more)
    assert first == "147.0\nNone\n"
    assert [name for name in tables(db) if "compile" in name] == []
    assert [path for path in ours.rglob("*") if path.is_file()]
    # what programs keep for themselves is tinygrad's and shared, with and without hcq
    assert alone("-c", PROGRAM, **more) == "147.0\n41\n"
    compiled = {name: count for name, count in tables(db).items() if "compile" in name}
    assert sum(compiled.values()) > 0
    assert client("-c", PROGRAM, **more) == "147.0\n41\n"
    assert {name: count for name, count in tables(db).items() if "compile" in name} == compiled


def test_a_second_run_compiles_nothing(tmp_path):
    more = {"CACHEDB": str(tmp_path / "t.db"), "HCQ_CACHE_DIR": str(tmp_path / "hcq"), "CLANG": "1"}
    client("-c", PROGRAM, **more)
    assert client("-c", PROGRAM, ASSERT_COMPILE="1", **more).startswith("147.0")


@pytest.mark.parametrize("name", ["CLANG", "LLVM"])
def test_compilers_pickle_as_searches_send_them(name):
    compiler = pickle.loads(pickle.dumps(Device[name].compiler))
    assert type(compiler) is type(Device[name].compiler)
    assert compiler.cachekey == Device[name].compiler.cachekey


def test_what_a_search_found_is_kept_apart_from_tinygrads_own_devices():
    """The times behind it were measured on hcq's devices."""
    from tinygrad.renderer.cstyle import ClangRenderer

    assert Device["CLANG"].renderer.suffix != ClangRenderer().suffix
    assert Device["LLVM"].renderer.suffix
