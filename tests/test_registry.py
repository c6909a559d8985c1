"""The registry: names, opening once, defaults, registering, closing, and what a forked child sees."""

import os
import subprocess
import sys
import threading
import zipfile

import pytest

import hcq
from hcq import Buffer, Compiled, Device, LRUAllocator, dtypes
from hcq.drivers import DEFAULT_ORDER
from hcq.errors import DeviceLost, DeviceUnavailable, InvalidProgram, SignalTimeout, UnknownDevice
from hcq.runtime.registry import Registry, device_index


class Plain(Compiled):
    """A device that only opens: as small as a driver can be."""

    opened = 0

    def __init__(self, name):
        type(self).opened += 1
        super().__init__(name, allocator=None)


@pytest.fixture
def registered():
    """Registers factories for one test and takes them away after it."""
    names = []

    def register(name, factory, **options):
        Device.register(name, factory, **options)
        names.append(name)
        return name

    yield register
    for name in names:
        for opened in [opened for opened in Device.opened if opened.partition(":")[0] == name.upper()]:
            Device.close(opened)
        Device.unregister(name)


@pytest.fixture
def fresh(monkeypatch):
    """A registry of its own, with nothing open and no default decided, in an environment that names no device."""
    for name in [*Device._devices, "CPU", "OPENCL", "HCQ_DEVICE"]:
        monkeypatch.delenv(name, raising=False)
    registry = Registry()
    monkeypatch.setattr("hcq.runtime.registry.Device", registry)  # where a closing device is forgotten
    yield registry
    del registry.DEFAULT


def in_child(body):
    """Run body() in a forked child and return what it returned, as text."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = str(body())
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answers:
        answer = answers.read().decode()
    os.waitpid(pid, 0)
    return answer


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("gpu:0", "GPU"),
        ("gpu", "GPU"),
        ("Gpu:1", "GPU:1"),
        ("gpu:00", "GPU:00"),
        ("gpu:10", "GPU:10"),
        ("opencl:1", "GPU:1"),
        ("disk:/tmp/a:0", "DISK:/tmp/a:0"),
        ("disk:/tmp/A", "DISK:/tmp/A"),
        ("DISK", "DISK"),
        ("nosuch:0", "NOSUCH"),
    ],
)
def test_names_have_one_spelling(name, canonical):
    assert Device.canonicalize(name) == canonical
    assert Device.canonicalize(canonical) == canonical


def test_cpu_is_an_alias_of_one_of_the_cpu_devices_decided_once(monkeypatch):
    assert Device.canonicalize("cpu") in ("CLANG", "LLVM")
    monkeypatch.setenv("PATH", "")
    assert Device.canonicalize("CPU:3") == Device.canonicalize("cpu") + ":3"


def test_a_name_that_is_no_string_is_refused():
    with pytest.raises(TypeError, match="is a string"):
        Device.canonicalize(3)


def test_known_names_are_upper_case_and_unique():
    assert set(DEFAULT_ORDER) <= set(Device._devices)
    assert len(set(Device._devices)) == len(Device._devices)
    assert all(name == name.upper() for name in Device._devices)


def test_the_registry_shows_what_is_open_and_decides_nothing(registered):
    registered("SHOWN", Plain)
    Device["SHOWN"].synchronize()
    before = Device._default
    assert repr(Device).startswith("<hcq.Device: ") and "SHOWN" in repr(Device) and " open, default " in repr(Device)
    assert Device._default == before


def test_a_device_is_opened_once_whatever_the_spelling(registered):
    registered("PLAIN1", Plain)
    before = Plain.opened
    assert Device["plain1"] is Device["PLAIN1:0"] is Device["PLAIN1"]
    assert Device["PLAIN1:1"] is not Device["PLAIN1"]
    assert Device["PLAIN1:1"].dname == "PLAIN1:1"
    assert Plain.opened == before + 2


def test_threads_that_open_one_device_together_get_the_same_object(registered):
    barrier = threading.Barrier(8)
    seen = []

    class Slow(Plain):
        opened = 0

        def __init__(self, name):
            threading.Event().wait(0.02)
            super().__init__(name)

    registered("SLOW", Slow)

    def ask():
        barrier.wait()
        seen.append(Device["SLOW"])

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 8
    assert len(set(map(id, seen))) == 1
    assert Slow.opened == 1


def test_an_unknown_device_lists_the_known_ones_and_the_nearest():
    with pytest.raises(UnknownDevice, match="Did you mean 'CLANG'") as caught:
        Device["CLANGG"]
    assert "LLVM" in str(caught.value)
    assert isinstance(caught.value, KeyError)
    with pytest.raises(UnknownDevice):
        Device.close("CLANGG")


@pytest.mark.parametrize("name", ["METAL", "AMD", "NV"])
def test_a_known_device_without_a_driver_is_unavailable_with_a_reason(name):
    for _ in range(2):
        with pytest.raises(DeviceUnavailable) as caught:
            Device[name]
        assert caught.value.reason == "not built yet"
        assert caught.value.hint


def test_unavailable_is_tried_anew_each_time(registered):
    def moody(name, asked=[]):  # noqa: B006 - the list is the memory between calls
        asked.append(name)
        if len(asked) < 3:
            raise DeviceUnavailable(reason=f"not in the mood, try {len(asked)}", hint="ask again")
        return Plain(name)

    registered("MOODY", moody)
    for attempt in (1, 2):
        with pytest.raises(DeviceUnavailable, match=f"try {attempt}"):
            Device["MOODY"]
    assert Device["MOODY"].dname == "MOODY"


def test_any_other_exception_of_a_driver_is_not_hidden(registered):
    def broken(name):
        raise ZeroDivisionError("a bug")

    registered("BROKEN", broken)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        Device["BROKEN"]


def test_a_factory_that_returns_something_else_is_refused(registered):
    registered("NOTHING", lambda name: None)
    with pytest.raises(TypeError, match=r"factory of NOTHING must return an hcq\.Compiled"):
        Device["NOTHING"]


def test_a_driver_may_open_another_device_but_not_itself(registered):
    registered("BELOW", Plain)

    def above(name):
        Device["BELOW"]
        return Plain(name)

    registered("ABOVE", above)
    registered("SELF", lambda name: Device[name])
    assert Device["ABOVE"].dname == "ABOVE"
    with pytest.raises(RuntimeError, match="while opening it"):
        Device["SELF"]


def test_registering_a_taken_name_needs_replace_and_no_open_device(registered):
    registered("PLAIN2", Plain)
    with pytest.raises(ValueError, match="taken"):
        Device.register("plain2", Plain)
    for builtin in ("CLANG", "CPU", "OPENCL", "METAL"):
        with pytest.raises(ValueError, match="taken"):
            Device.register(builtin, Plain)
    Device["PLAIN2:1"]
    with pytest.raises(ValueError, match="PLAIN2:1 is open"):
        Device.register("PLAIN2", Plain, replace=True)
    Device.close("PLAIN2:1")
    Device.register("PLAIN2", Plain, replace=True)


def test_a_built_in_name_can_be_overridden_and_given_back(registered):
    registered("METAL", Plain, replace=True)
    assert type(Device["METAL"]) is Plain
    Device.close("METAL")
    Device.unregister("METAL")
    with pytest.raises(DeviceUnavailable):
        Device["METAL"]
    Device.register("METAL", Plain, replace=True)


@pytest.mark.parametrize("name", ["", "A:1", " A"])
def test_a_name_that_cannot_be_a_device_is_refused(name):
    with pytest.raises(ValueError, match="can't name a kind of device"):
        Device.register(name, Plain)


def test_a_factory_must_be_callable():
    with pytest.raises(TypeError, match="callable"):
        Device.register("PLAIN3", "not callable")


def test_closing_forgets_and_opening_again_is_a_new_device(registered):
    registered("PLAIN4", Plain)
    first = Device["PLAIN4"]
    Device.close("plain4")
    Device.close("plain4")
    first.close()
    assert first.closed
    assert "PLAIN4" not in Device.opened
    with pytest.raises(RuntimeError, match=r"PLAIN4 is closed: Device\['PLAIN4'\]"):
        first.synchronize()
    second = Device["PLAIN4"]
    assert second is not first
    first.close()
    assert Device["PLAIN4"] is second


def test_closing_takes_the_buffers_and_the_cache_of_that_device_alone(registered):
    class Host(LRUAllocator):
        def _alloc(self, size, options):
            log.append("alloc")
            return bytearray(size)

        def _free(self, opaque, options):
            log.append("free")

    class WithMemory(Plain):
        def __init__(self, name):
            super().__init__(name)
            self.allocator = Host(self)

        def _close(self):
            log.append("close")

    log = []
    registered("WITHMEMORY", WithMemory)
    one, other = (Buffer(name, 64, dtypes.uint8, preallocate=True) for name in ("WITHMEMORY", "WITHMEMORY:1"))
    Buffer("WITHMEMORY", 128, dtypes.uint8, preallocate=True).deallocate()
    WithMemory("WITHMEMORY").close()  # not the one that is open by this name
    assert one.is_allocated()
    log.clear()
    Device.close("WITHMEMORY")
    assert log == ["free", "free", "close"]
    assert not one.is_allocated()
    with pytest.raises(RuntimeError, match="closed"):
        one.ensure_allocated()
    assert other.is_allocated()
    assert Buffer("WITHMEMORY", 64, dtypes.uint8, preallocate=True).is_allocated()


def test_a_lost_device_closes_and_a_standing_one_stays_open(registered):
    class Failing(Plain):
        error = DeviceLost("gone", device="FAILING")
        freed = 0

        def synchronize(self):
            if self.error:
                raise self.error

        def _close(self):
            self.freed += 1

    registered("FAILING", Failing)
    lost = Device["FAILING"]
    lost.close()
    lost.close()
    assert (lost.closed, lost.freed) == (True, 1)
    standing = Device["FAILING"]
    standing.error = SignalTimeout("stands")
    with pytest.raises(SignalTimeout):
        standing.close()
    assert Device["FAILING"] is standing
    standing.error = None


def test_the_attributes_of_a_device_are_plain_and_looked_up_when_used(registered):
    registered("PLAIN5", Plain)
    dev = Device["PLAIN5"]
    with pytest.raises(InvalidProgram, match="runs no programs"):
        dev.program("f", "source")
    dev.runtime = lambda name, lib: (name, lib)
    assert dev.program("f", "source") == ("f", b"source")
    dev.compiler.compile = lambda src: b"other"
    assert dev.program("f", "source") == ("f", b"other")
    dev.renderer = dev.graph = "anything"
    assert dev.info["name"] == "PLAIN5"
    assert "max_group_items" in dev.info["limits"]


# The default device


def test_the_default_is_the_first_that_opens_and_is_exported(fresh, monkeypatch):
    for name in DEFAULT_ORDER[:-1]:
        fresh.register(name, lambda name: (_ for _ in ()).throw(DeviceUnavailable("absent")), replace=True)
    fresh.register("LLVM", Plain, replace=True)
    assert fresh.DEFAULT == "LLVM"
    assert os.environ["LLVM"] == "1"
    assert fresh.default is fresh["LLVM"] is fresh[None]
    assert fresh.canonicalize(None) == "LLVM"
    del fresh.DEFAULT
    assert "LLVM" not in os.environ


def test_a_flag_wins_and_zero_leaves_a_device_out(fresh, monkeypatch):
    for name in DEFAULT_ORDER:
        fresh.register(name, Plain, replace=True)
    monkeypatch.setenv("METAL", "0")
    assert fresh.DEFAULT == "AMD"
    del fresh.DEFAULT
    monkeypatch.setenv("NULL", "1")
    assert fresh.DEFAULT == "NULL"
    del fresh.DEFAULT
    monkeypatch.setenv("CUDA", "1")
    assert fresh.DEFAULT == "CUDA"
    del fresh.DEFAULT
    monkeypatch.setenv("CUDA", "all")
    monkeypatch.setenv("NULL", "0")
    monkeypatch.setenv("DISK", "1")
    assert fresh.DEFAULT == "AMD"


def test_a_registered_device_can_be_chosen_by_its_flag(fresh, monkeypatch):
    fresh.register("PLAIN6", Plain)
    monkeypatch.setenv("PLAIN6", "1")
    assert fresh.DEFAULT == "PLAIN6"


def test_hcq_device_names_the_default_outright(fresh, monkeypatch):
    fresh.register("PLAIN7", Plain)
    monkeypatch.setenv("CLANG", "1")
    monkeypatch.setenv("HCQ_DEVICE", "plain7:1")
    assert fresh.DEFAULT == "PLAIN7:1"
    assert fresh.default.dname == "PLAIN7:1"
    del fresh.DEFAULT
    assert os.environ["HCQ_DEVICE"] == "plain7:1"
    monkeypatch.setenv("HCQ_DEVICE", "nosuch")
    with pytest.raises(UnknownDevice, match="HCQ_DEVICE=nosuch"):
        _ = fresh.DEFAULT


def test_an_assigned_default_is_exported_and_must_be_known(fresh):
    fresh.register("PLAIN8", Plain)
    fresh.DEFAULT = "plain8:0"
    assert fresh.DEFAULT == "PLAIN8"
    assert os.environ["HCQ_DEVICE"] == "PLAIN8"
    fresh.DEFAULT = "plain8:1"
    assert fresh.canonicalize(None) == "PLAIN8:1"
    with pytest.raises(UnknownDevice):
        fresh.DEFAULT = "NOSUCH"
    with pytest.raises(TypeError):
        fresh.DEFAULT = None
    assert fresh.DEFAULT == "PLAIN8:1"


def test_a_gpu_interface_on_the_cpu_is_never_chosen_only_named(fresh):
    class Software(Plain):
        is_cpu_implementation = True

    for name in DEFAULT_ORDER[:-1]:
        fresh.register(name, Software, replace=True)
    fresh.register("LLVM", Plain, replace=True)
    assert fresh.DEFAULT == "LLVM"
    assert fresh.opened.count("GPU") == 0
    assert fresh["GPU"].is_cpu_implementation


def test_nothing_usable_lists_each_device_and_why(fresh, monkeypatch):
    for name in DEFAULT_ORDER:
        fresh.register(name, lambda name: (_ for _ in ()).throw(DeviceUnavailable(f"no {name} here")), replace=True)
    monkeypatch.setenv("CUDA", "0")
    with pytest.raises(DeviceUnavailable) as caught:
        _ = fresh.DEFAULT
    assert "CUDA=0" in str(caught.value)
    for name in DEFAULT_ORDER:
        assert f"no {name} here" in str(caught.value) or name == "CUDA"


def test_a_default_that_breaks_shows_the_bug(fresh):
    fresh.register("METAL", lambda name: 1 // 0, replace=True)
    with pytest.raises(ZeroDivisionError):
        _ = fresh.DEFAULT


# Other packages' drivers


def test_drivers_of_other_packages_are_found_by_entry_point(tmp_path):
    info = tmp_path / "elsewhere-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[hcq.drivers]\nelse = elsewhere:Else\nmetal = elsewhere:Else\n")
    (tmp_path / "elsewhere.py").write_text(
        "import hcq\nclass Else(hcq.Compiled):\n    def __init__(self, name): super().__init__(name, None)\n"
    )
    code = (
        "import sys, hcq\n"
        "assert 'ELSE' in hcq.Device._devices and 'elsewhere' not in sys.modules\n"
        "assert type(hcq.Device['else:2']).__module__ == 'elsewhere'\n"
        "assert hcq.Device.DEFAULT == 'ELSE', hcq.Device.DEFAULT\n"
        "assert hcq.Device._factory('METAL').__module__ != 'elsewhere'\n"
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": path, "ELSE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "METAL (elsewhere:Else) is ignored" in done.stderr


def test_a_driver_in_an_archive_is_found(tmp_path):
    archive = tmp_path / "drivers.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("packed-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: packed\nVersion: 1.0\n")
        made.writestr("packed-1.0.dist-info/entry_points.txt", "[hcq.drivers]\npacked = packed:Packed\n")
    path = os.pathsep.join([str(archive), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", "import hcq; assert 'PACKED' in hcq.Device._devices"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": path}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_naming_one_device_imports_only_its_driver():
    code = (
        "import sys, hcq\n"
        "try: hcq.Device['METAL']\n"
        "except hcq.errors.DeviceUnavailable: pass\n"
        "print([m for m in sys.modules if m.startswith('hcq.drivers.')])\n"
    )
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize(("name", "index"), [("CLANG", 0), ("CLANG:1", 1), ("CLANG:12", 12)])
def test_the_number_of_a_device(name, index):
    assert device_index(name) == index


@pytest.mark.parametrize("name", ["CLANG:", "CLANG:x", "CLANG:-1", "CLANG:00", "CLANG:01", "CLANG:1:2", "CLANG:\u0661"])
def test_a_suffix_that_is_no_number_is_an_unknown_device(name):
    with pytest.raises(UnknownDevice, match="the number of the device"):
        device_index(name)


# Fork


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
class TestFork:
    def test_a_child_starts_empty_and_opens_its_own(self, registered):
        registered("PLAIN9", Plain)
        inherited = Device["PLAIN9"]

        def child():
            assert Device.opened == ()
            mine = Device["PLAIN9"]
            assert mine is not inherited
            mine.synchronize()
            return "fine"

        assert in_child(child) == "fine"
        assert Device["PLAIN9"] is inherited
        inherited.synchronize()

    @pytest.mark.parametrize(
        "touch",
        [
            lambda dev: dev.synchronize(),
            lambda dev: dev.allocator,
            lambda dev: dev.close(),
            lambda dev: dev.program("f", ""),
            lambda dev: dev.info,
            lambda dev: setattr(dev, "runtime", None),
        ],
    )
    def test_any_touch_of_an_inherited_device_names_both_processes(self, registered, touch):
        registered("PLAIN10", Plain)
        dev = Device["PLAIN10"]
        answer = in_child(lambda: touch(dev))
        assert answer.startswith("ForkedDeviceError: PLAIN10 was made in process")
        assert str(os.getpid()) in answer
        assert answer.count("process") >= 2

    def test_an_inherited_device_has_a_repr_and_stays_a_device(self, registered):
        registered("PLAIN11", Plain)
        dev = Device["PLAIN11"]
        assert "inherited through fork" in in_child(lambda: repr(dev))
        assert in_child(lambda: isinstance(dev, Compiled)) == "True"

    def test_a_device_that_survives_a_fork_goes_on_working(self, registered):
        class Survivor(Plain):
            survives_fork = True

        registered("PLAIN12", Survivor)
        dev = Device["PLAIN12"]
        assert in_child(lambda: (dev.synchronize(), dev.dname, dev.close())[1]) == "PLAIN12"
        dev.synchronize()

    def test_a_device_with_a_layout_of_its_own_raises_too(self, registered):
        class Slotted(Plain):
            __slots__ = ("extra",)

        registered("PLAIN13", Slotted)
        dev = Device["PLAIN13"]
        for touch in (dev.synchronize, dev.close, lambda: dev.synchronize(), lambda: dev.extra, lambda: dev.allocator):
            assert in_child(touch).startswith("ForkedDeviceError")

    def test_a_fork_while_another_thread_opens_leaves_the_child_free(self, registered):
        started, go = threading.Event(), threading.Event()

        class Slow(Plain):
            def __init__(self, name):
                started.set()
                go.wait(20)
                super().__init__(name)

        registered("SLOWOPEN", Slow)
        registered("PLAIN14", Plain)
        thread = threading.Thread(target=lambda: Device["SLOWOPEN"])
        thread.start()
        started.wait(20)
        assert in_child(lambda: Device["PLAIN14"].dname) == "PLAIN14"
        go.set()
        thread.join()

    def test_finalizers_of_inherited_devices_do_not_run_in_the_child(self, registered, tmp_path):
        class Finalized(Plain):
            def __del__(self):
                (tmp_path / f"finalized-{os.getpid()}").touch()

        registered("PLAIN15", Finalized)
        Device["PLAIN15"]
        pid = os.getpid()

        def child():
            import gc

            gc.collect()
            return sorted(path.name for path in tmp_path.iterdir())

        assert in_child(child) == "[]"
        Device.close("PLAIN15")
        assert [path.name for path in tmp_path.iterdir()] == [f"finalized-{pid}"]

    def test_a_fork_prints_nothing(self, registered, capfd):
        registered("PLAIN17", Plain)
        Device["PLAIN17"]
        assert in_child(lambda: in_child(lambda: "quiet")) == "quiet"
        assert capfd.readouterr() == ("", "")

    def test_a_grandchild_names_the_maker(self, registered):
        registered("PLAIN16", Plain)
        dev = Device["PLAIN16"]
        answer = in_child(lambda: in_child(lambda: dev.synchronize()))
        assert f"made in process {os.getpid()} " in answer


# What newcomers write


@pytest.mark.parametrize("kind", ["CLANG", "LLVM", "NULL"])
@pytest.mark.parametrize("suffix", ["x", "", "-1", "01", "1:2", "\u00b2"])
def test_counted_devices_open_by_whole_numbers_alone(kind, suffix):
    with pytest.raises(UnknownDevice, match="a whole number without leading zeros, such as"):
        Device[f"{kind}:{suffix}"]
    assert f"{kind}:{suffix}" not in Device.opened


@pytest.mark.parametrize("variable", [{"HCQ_DEVICE": "CUDA"}, {"CUDA": "1"}], ids=["named", "flagged"])
def test_a_default_that_can_not_be_opened_says_which_variable_asked_for_it(variable):
    code = "import hcq\ntry: hcq.empty(8, 'float32')\nexcept hcq.errors.DeviceUnavailable as e: print(e)"
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **variable}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
    [(name, value)] = variable.items()
    assert f"{name}={value} makes CUDA the default device" in done.stdout, done.stderr


def test_statistics_of_an_unknown_device_are_refused():
    with pytest.raises(UnknownDevice, match="unknown device 'FOO'"):
        hcq.memory_stats("FOO")
    assert hcq.memory_stats("METAL") == hcq.MemoryStats()  # known, and never opened
    hcq.memory_stats("HOST")
