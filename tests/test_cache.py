"""The compile cache: what hits, misses, is trusted and kept; and that nothing on disk can break a compile."""

import os
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hcq import CompileError, Compiler, cache
from hcq.runtime.cache.file_store import FileStore
from hcq.runtime.cache.keys import Key, decode
from hcq.runtime.cache.memory_store import MemoryStore

compiled: Counter[object] = Counter()


class Upper(Compiler):
    """A compiler that can be told what it is, and counts how often it ran."""

    version: str | None = "upper 1.0"
    parts: dict[str, str] = {}

    def __init__(self, cachekey="upper"):
        super().__init__(cachekey)

    def compile(self, src):
        if self.version is None:
            raise CompileError("no compiler found: install upper", source=src)
        compiled[src] += 1
        if "error" in str(src):
            raise CompileError("refused", log="1: error", source=src)
        return (src if isinstance(src, bytes) else src.encode()).upper()

    def identity(self):
        return self.version

    def key_parts(self):
        return self.parts


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    compiled.clear()
    monkeypatch.setenv("HCQ_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def files(directory, pattern="*/*.hcq"):
    return sorted(directory.glob(pattern))


def with_parts(**parts):
    compiler = Upper()
    compiler.parts = parts
    return compiler


def test_a_source_is_compiled_once(directory):
    compiler = Upper()
    assert [compiler.compile_cached("abc") for _ in range(3)] == [b"ABC"] * 3
    assert Upper().compile_cached("abc") == b"ABC"
    assert compiled["abc"] == 1
    cache.forget()
    assert Upper().compile_cached("abc") == b"ABC"
    assert compiled["abc"] == 1
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.entries) == (4, 1, 1)
    assert 0 < stats.bytes < 4096
    assert stats.limit_bytes == 2 << 30
    assert cache.directory == directory


def test_another_process_hits(directory):
    code = (
        "import hcq\n"
        "class C(hcq.Compiler):\n    def compile(self, src): print('compiling'); return b'lib'\n"
        "print(C('c').compile_cached('abc'), *hcq.cache.stats()[:3])\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    first, second = (
        subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
        for _ in range(2)
    )
    assert (first.stdout, first.stderr) == ("compiling\nb'lib' 0 1 1\n", "")
    assert (second.stdout, second.stderr) == ("b'lib' 1 0 1\n", "")


@pytest.mark.parametrize(
    ("one", "two", "part"),
    [
        (with_parts(features="+avx2"), with_parts(features="+avx2,+avx512f"), "part features"),
        (with_parts(flags="-O3"), with_parts(), "part flags"),
        (with_parts(a="bc"), with_parts(ab="c"), "part a"),
        (with_parts(a="1", b="2"), with_parts(a="1b2"), "part b"),
    ],
)
def test_devices_that_differ_in_one_part_never_share(one, two, part):
    one.compile_cached("abc")
    two.compile_cached("abc")
    assert compiled["abc"] == 2
    assert cache.stats().entries == 2
    other = with_parts(**one.parts, more="x")
    assert part not in cache.explain("abc", other).changed
    assert cache.explain("abc", other).changed == ("part more",)


def test_version_cachekey_class_and_kind_of_source_are_in_the_key():
    class Other(Upper):
        pass

    newer = Upper()
    newer.version = "upper 1.1"
    for compiler, source in [
        (Upper(), "abc"),
        (newer, "abc"),
        (Upper("else"), "abc"),
        (Other(), "abc"),
        (Upper(), b"abc"),
    ]:
        compiler.compile_cached(source)
    assert compiled["abc"] + compiled[b"abc"] == 5
    assert cache.stats().entries == 5


def test_parts_of_the_key_do_not_run_into_each_other():
    assert Key({"a": b"bc", "d": b""}).encoded != Key({"a": b"b", "cd": b""}).encoded
    assert Key({"a": b"", "b": b"c"}).digest != Key({"a": b"b", "c": b""}).digest


@given(st.dictionaries(st.text(max_size=5), st.binary(max_size=9), max_size=5))
def test_a_key_says_its_parts_whatever_they_hold(parts):
    key = Key(parts)
    assert decode(key.encoded) == parts == key.parts
    assert Key(dict(reversed(parts.items()))).encoded == key.encoded


@given(st.binary(max_size=40))
def test_what_is_no_key_is_refused(junk):
    try:
        parts = decode(junk)
    except ValueError:
        return
    assert len(parts) <= len(junk) // 8


def test_a_source_with_lone_surrogates_is_cached():
    class Any_(Upper):
        def compile(self, src):
            compiled[src] += 1
            return b"anything"

    for _ in range(2):
        cache.forget()
        Any_().compile_cached("\udc80")
    assert compiled["\udc80"] == 1


def test_a_compiler_with_random_output_still_hits(directory):
    class Random(Upper):
        def compile(self, src):
            compiled[src] += 1
            return os.urandom(16)

    first = Random().compile_cached("abc")
    cache.forget()
    assert Random().compile_cached("abc") == first
    assert compiled["abc"] == 1


def test_a_failed_compile_is_not_kept(directory):
    for _ in range(2):
        with pytest.raises(CompileError) as caught:
            Upper().compile_cached("an error")
        assert caught.value.log == "1: error"
    assert compiled["an error"] == 2
    assert cache.stats().entries == 0


def test_no_cachekey_means_no_cache(directory):
    for _ in range(2):
        assert Upper(None).compile_cached("abc") == b"ABC"
    assert compiled["abc"] == 2
    assert not directory.exists()
    assert not cache.explain("abc", Upper(None)).hit


@pytest.mark.parametrize(("value", "key"), [("1", None), ("0", "upper"), ("", "upper")])
def test_the_cache_can_be_disabled(monkeypatch, value, key):
    monkeypatch.setenv("DISABLE_COMPILER_CACHE", value)
    assert Upper().cachekey == key


def test_assert_compile_makes_a_miss_an_error(monkeypatch):
    compiler = Upper()
    compiler.compile_cached("abc")
    monkeypatch.setenv("ASSERT_COMPILE", "1")
    assert compiler.compile_cached("abc") == b"ABC"
    with pytest.raises(CompileError, match="ASSERT_COMPILE") as caught:
        compiler.compile_cached("other")
    assert caught.value.source == "other"
    with pytest.raises(CompileError):
        Upper(None).compile_cached("abc")
    monkeypatch.setenv("ASSERT_COMPILE", "0")
    assert compiler.compile_cached("other") == b"OTHER"


def test_compilers_pickle():
    compiler = pickle.loads(pickle.dumps(Upper()))
    assert compiler.compile_cached("abc") == b"ABC"


def test_a_compile_that_gives_no_bytes_is_named():
    class Wrong(Upper):
        def compile(self, src):
            return None

    with pytest.raises(TypeError, match=r"Wrong\.compile must return bytes"):
        Wrong().compile_cached("abc")


def test_a_source_that_is_neither_text_nor_bytes_is_refused():
    with pytest.raises(TypeError, match="str or bytes, not bytearray"):
        Upper().compile_cached(bytearray(b"abc"))


def test_the_base_compiler_hands_the_source_on():
    assert Compiler().compile_cached("abc") == b"abc"


# A compiler that is gone


def test_without_its_compiler_the_cache_answers_for_the_one_last_used():
    older, newer, gone = Upper(), Upper(), Upper()
    older.version, newer.version, gone.version = "upper 1.0", "upper 2.0", None
    older.compile_cached("abc")
    newer.compile_cached("xyz")
    cache.forget()
    assert gone.compile_cached("xyz") == b"XYZ"
    with pytest.raises(CompileError, match="install upper"):
        gone.compile_cached("abc")
    assert cache.explain("xyz", gone).hit


def test_a_version_is_asked_once_for_a_tool_that_stays_as_it_is(tmp_path):
    tool = tmp_path / "tool"
    tool.write_text("one")
    asked = []

    def ask():
        asked.append(1)
        return tool.read_text()

    assert cache.tool_version(str(tool), ask) == "one"
    cache.forget()
    assert cache.tool_version(str(tool), ask) == "one"
    assert len(asked) == 1
    tool.write_text("other")
    assert cache.tool_version(str(tool), ask) == "other"
    assert len(asked) == 2
    with pytest.raises(FileNotFoundError):
        cache.tool_version(str(tmp_path / "none"), ask)


# Damage


def truncate(path):
    path.write_bytes(path.read_bytes()[:-1])


def flip(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def empty(path):
    path.write_bytes(b"")


def grow(path):
    path.write_bytes(path.read_bytes() + b"!")


def foreign(path):
    path.write_bytes(b"\x80\x04N." * 40)


def lie_about_length(path):
    path.write_bytes(path.read_bytes()[:8] + b"\xff" * 16 + path.read_bytes()[24:])


def as_directory(path):
    path.unlink()
    path.mkdir()


def as_pipe(path):
    path.unlink()
    os.mkfifo(path)


def as_link(path):
    other = path.with_suffix(".moved")
    path.rename(other)
    path.symlink_to(other)


def writable_by_others(path):
    path.chmod(0o666)


def unreadable(path):
    path.chmod(0)


ALL_DAMAGE = [truncate, flip, empty, grow, foreign, lie_about_length, as_pipe, as_link, writable_by_others]


@pytest.mark.parametrize("damage", ALL_DAMAGE)
def test_a_damaged_entry_is_a_miss_and_is_rewritten(directory, damage):
    Upper().compile_cached("abc")
    (path,) = files(directory)
    damage(path)
    cache.forget()
    assert [damaged.path for damaged in cache.verify()] == [str(path)]
    assert not cache.explain("abc", Upper()).hit
    assert Upper().compile_cached("abc") == b"ABC"
    assert compiled["abc"] == 2
    cache.forget()
    assert Upper().compile_cached("abc") == b"ABC"
    assert compiled["abc"] == 2
    assert cache.verify() == []


def test_an_entry_that_cannot_be_replaced_is_a_miss_each_time(directory):
    Upper().compile_cached("abc")
    as_directory(files(directory)[0])
    for _ in range(2):
        cache.forget()
        assert Upper().compile_cached("abc") == b"ABC"


def test_a_whole_entry_under_another_keys_name_is_foreign(directory):
    Upper().compile_cached("one")
    (one,) = files(directory)
    Upper().compile_cached("two")
    (two,) = set(files(directory)) - {one}
    two.write_bytes(one.read_bytes())
    cache.forget()
    assert "another key" in cache.verify()[0].reason
    assert Upper().compile_cached("two") == b"TWO"
    assert cache.verify() == []


def test_verify_can_remove_what_is_damaged(directory):
    Upper().compile_cached("one")
    Upper().compile_cached("two")
    flip(files(directory)[0])
    assert len(cache.verify(remove=True)) == 1
    assert len(files(directory)) == 1


@given(st.binary(max_size=300))
def test_any_bytes_in_an_entrys_place_are_a_miss(tmp_path_factory, junk):
    store = FileStore(str(tmp_path_factory.getbasetemp() / "junk"))
    key = Key({"source": b"abc"})
    store.put(key, b"right", 1 << 20)
    Path(store.path(key)).write_bytes(junk)
    assert store.get(key) is None
    store.put(key, b"right", 1 << 20)
    assert store.get(key) == b"right"


# Directories


def test_the_directory_is_made_for_us_alone(directory):
    Upper().compile_cached("abc")
    assert directory.stat().st_mode & 0o777 == 0o700
    assert files(directory)[0].parent.stat().st_mode & 0o777 == 0o700
    assert files(directory)[0].stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777, 0o1777])
def test_a_directory_that_others_may_write_is_not_trusted(directory, mode, caplog):
    Upper().compile_cached("abc")
    directory.chmod(mode)
    cache.forget()
    assert Upper().compile_cached("abc") == b"ABC"
    assert compiled["abc"] == 2
    for source in ("b", "c", "abc"):
        assert Upper().compile_cached(source) == source.upper().encode()
    assert compiled["abc"] == 2
    assert len(files(directory)) == 1
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "may be written by others" in caplog.text
    directory.chmod(0o700)
    cache.forget()
    Upper().compile_cached("abc")
    assert compiled["abc"] == 2


def test_a_directory_of_another_user_is_not_trusted(directory, caplog):
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    directory.mkdir(mode=0o700)
    os.chown(directory, 12345, -1)
    Upper().compile_cached("abc")
    assert files(directory) == []
    assert "may be written by others" in caplog.text


@pytest.mark.parametrize("kind", ["file", "below a file", "no name", "proc"])
def test_a_directory_that_cannot_be_written_degrades_to_memory_with_one_warning(tmp_path, monkeypatch, caplog, kind):
    (tmp_path / "file").write_text("in the way")
    place = {
        "file": str(tmp_path / "file"),
        "below a file": str(tmp_path / "file" / "cache"),
        "no name": str(tmp_path / ("n" * 300)),
        "proc": "/proc/cache",
    }[kind]
    monkeypatch.setenv("HCQ_CACHE_DIR", place)
    for source in ("a", "b", "a", "b"):
        assert Upper().compile_cached(source) == source.upper().encode()
    assert (compiled["a"], compiled["b"]) == (1, 1)
    assert len(caplog.records) == 1
    assert "memory only" in caplog.text
    assert cache.stats().entries == 2


def test_a_user_without_a_home_has_a_cache_in_memory(tmp_path):
    code = (
        "import hcq\n"
        "class C(hcq.Compiler):\n    def compile(self, src): return b'lib'\n"
        "c = C('c'); c.compile_cached('x'); c.compile_cached('x'); print(hcq.cache.stats().hits)\n"
    )
    environment = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "XDG_CACHE_HOME": str(tmp_path / "home")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("1\n", "")
    assert list((tmp_path / "home" / "hcq").glob("*/*.hcq"))


# Size


def test_the_cache_is_bounded_and_the_least_recently_used_go_first(directory, monkeypatch):
    monkeypatch.setenv("HCQ_CACHE_LIMIT", "64K")
    filler = "x" * 4000
    for number in range(40):
        Upper().compile_cached(f"{number:04d}{filler}")
        cache.forget()
        Upper().compile_cached(f"0000{filler}")
        assert cache.stats().bytes <= 64 << 10
    assert cache.stats().entries >= 5
    compiled.clear()
    cache.forget()
    for number in (0, 39, 38, 1):
        Upper().compile_cached(f"{number:04d}{filler}")
    assert [compiled[f"{number:04d}{filler}"] for number in (0, 39, 38, 1)] == [0, 0, 0, 1]


def test_what_is_larger_than_the_limit_is_kept_in_memory_only(directory, monkeypatch):
    monkeypatch.setenv("HCQ_CACHE_LIMIT", "0")
    Upper().compile_cached("abc")
    Upper().compile_cached("abc")
    assert compiled["abc"] == 1
    assert files(directory) == []


def test_writing_does_not_scan_the_directory_each_time(directory, monkeypatch):
    scans = []
    monkeypatch.setattr(FileStore, "tidy", lambda self, limit: scans.append(limit))
    monkeypatch.setenv("HCQ_CACHE_LIMIT", "16M")
    for number in range(1024):
        Upper().compile_cached(str(number))
    assert 1 <= len(scans) <= 8


def test_leftovers_of_dead_writers_go(directory):
    Upper().compile_cached("abc")
    shard = files(directory)[0].parent
    old, new = shard / ".new-1-a", shard / ".new-2-b"
    old.write_text("left")
    new.write_text("being written")
    os.utime(old, (1, 1))
    FileStore(str(directory)).tidy(1 << 30)
    assert not old.exists()
    assert new.exists()


def test_clear_removes_our_files_only(directory):
    for source in ("a", "b"):
        Upper().compile_cached(source)
    mine = directory / "mine.txt"
    mine.write_text("keep")
    beside = files(directory)[0].parent / "also-mine.txt"
    beside.write_text("keep")
    assert cache.clear() == 2
    assert sorted(path.name for path in directory.rglob("*") if path.is_file()) == ["also-mine.txt", "mine.txt"]
    assert cache.stats()[2:4] == (0, 0)
    Upper().compile_cached("a")
    assert compiled["a"] == 2


def test_memory_is_bounded_by_bytes_and_count():
    store = MemoryStore(limit_bytes=100, limit_entries=3)
    for number in range(5):
        store.put(number, b"12")
    assert [store.get(number) for number in range(5)] == [None, None, b"12", b"12", b"12"]
    store.get(2)
    store.put("large", b"x" * 98)
    assert (store.get(2), store.get(3), store.bytes) == (b"12", None, 100)
    store.put("too large", b"x" * 101)
    assert store.get("too large") is None
    store.put("large", b"y")
    assert (store.bytes, len(store)) == (3, 2)


# Questions


def test_explain_says_what_changed():
    compiler = with_parts(flags="-O3", features="+avx2")
    assert cache.explain("abc", compiler) == (False, "nothing of this compiler is in the cache", ())
    compiler.compile_cached("abc")
    before = cache.stats()
    assert cache.explain("abc", compiler).hit
    assert cache.explain("abc", with_parts(flags="-O2", features="+avx2")).changed == ("part flags",)
    newer = with_parts(flags="-O2", features="+avx2")
    newer.version = "upper 3"
    explained = cache.explain("abc", newer)
    assert explained.changed == ("compiler", "part flags")
    assert "compiler, part flags" in explained.reason
    assert cache.explain("xyz", compiler).changed == ("source",)
    cache.forget()
    assert cache.explain("abc", compiler).reason.startswith("on disk")
    assert cache.stats() == before


def test_entries_say_what_they_are():
    with_parts(flags="-O3").compile_cached("abc")
    (entry,) = cache.entries()
    assert entry.parts["source"] == b"abc"
    assert entry.parts["compiler"] == b"upper 1.0"
    assert entry.parts["part flags"] == b"-O3"
    assert entry.size == os.stat(entry.path).st_size


def test_a_forked_child_can_use_the_cache():
    Upper().compile_cached("abc")
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, Upper().compile_cached("abc") + Upper().compile_cached("new"))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answers:
        assert answers.read() == b"ABCNEW"
    os.waitpid(pid, 0)
