"""The registry: one object a name, names as they are written, defaults, factories, closing."""

import itertools
import threading
import time

import pytest

import hcq
from hcq import Compiled, Device
from hcq.errors import DeviceUnavailable, UnknownDevice
from hcq.testing.marks import needs, promise
from hcq.testing.suite.tools import I32, eventually, filled, printed, python, read, together

_numbers = itertools.count(1)


class Plain(Compiled):
    """The least that is a device: a name and host memory."""

    def __init__(self, device: str) -> None:
        super().__init__(device, hcq.MallocAllocator)


@pytest.fixture
def name():
    """A device name that nobody uses."""
    return f"SUITE{next(_numbers)}X"


# -- opening ----------------------------------------------------------------------------------------------------------


@promise("registry.once")
def test_a_name_is_one_object(dev, driver):
    assert Device[driver.device] is dev
    assert Device[driver.device.lower()] is dev
    assert Device[dev.dname] is dev
    assert isinstance(dev, Compiled)


@promise("registry.canonical_zero")
def test_colon_zero_is_the_device_itself(driver):
    kind = driver.device.partition(":")[0]
    assert Device.canonicalize(f"{kind}:0") == kind
    assert Device[f"{kind.lower()}:0"] is Device[kind]


@promise("registry.threads")
def test_threads_that_name_a_device_get_one(fresh, driver):
    Device.close(driver.device)
    opened = together(*[lambda: Device[driver.device]] * 8)
    assert len({id(device) for device in opened}) == 1
    assert opened[0] is not fresh


@pytest.mark.core
@promise("registry.threads", "registry.once")
def test_a_factory_is_called_once_by_many_threads(driver, name):
    calls = []

    def slow(device):
        calls.append(device)
        time.sleep(0.05)
        return Plain(device)

    Device.register(name, slow)
    assert len({id(device) for device in together(*[lambda: Device[name]] * 6)}) == 1
    assert calls == [name]


@pytest.mark.core
@promise("registry.canonical_upper", "registry.canonical_zero")
@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("null", "NULL"),
        ("Null:1", "NULL:1"),
        ("gpu:0", "GPU"),
        ("gpu:00", "GPU:00"),
        ("x:0:0", "X:0"),
        ("a:bC", "A:bC"),
    ],
)
def test_names_are_made_canonical(driver, given, canonical):
    assert Device.canonicalize(given) == canonical


@pytest.mark.core
@promise("registry.canonical_disk")
@pytest.mark.parametrize("rest", ["/tmp/a:0", "/tmp/B", "shm:x", ":0", ""])
def test_disk_keeps_all_after_its_first_colon(driver, rest):
    assert Device.canonicalize(f"disk:{rest}") == f"DISK:{rest}"


@pytest.mark.core
@promise("registry.canonical_none")
def test_none_is_the_default_each_time(driver):
    before = Device.DEFAULT
    try:
        for default in ("NULL", "NULL:1", "NULL"):
            Device.DEFAULT = default
            assert Device.canonicalize(None) == default
    finally:
        Device.DEFAULT = before


@pytest.mark.core
@promise("registry.cpu_alias")
def test_cpu_is_an_alias(driver):
    target = Device.canonicalize("cpu")
    assert target in ("CLANG", "LLVM")
    assert Device.canonicalize("CPU:1") == f"{target}:1"
    assert Device["CPU"] is Device[target]
    assert printed("import hcq; print(hcq.Device.canonicalize('CPU'))", env={"PATH": "/nonexistent"}) in (
        "LLVM",
        "CLANG",
    )


# -- the default ------------------------------------------------------------------------------------------------------

CLEAN = dict.fromkeys(("METAL", "AMD", "NV", "CUDA", "GPU", "VULKAN", "CLANG", "LLVM", "NULL", "CPU", "HCQ_DEVICE"), "")
DEFAULT = "import hcq; print(hcq.Device.DEFAULT)"


@pytest.mark.core
@promise("registry.default_flag")
def test_a_flag_makes_the_default_and_zero_leaves_out(driver):
    assert printed(DEFAULT, env={**CLEAN, "NULL": "1"}) == "NULL"
    assert printed(DEFAULT, env={**CLEAN, "LLVM": "1"}) == "LLVM"
    chosen = printed(DEFAULT, env=CLEAN)
    assert printed(DEFAULT, env={**CLEAN, chosen: "0"}) != chosen


@pytest.mark.core
@promise("registry.default_order")
def test_the_default_is_the_first_that_opens(driver):
    order = ["METAL", "AMD", "NV", "CUDA", "GPU", "VULKAN", "CLANG", "LLVM"]
    code = f"""
import hcq
def opens(name):
    try: return not hcq.Device[name].is_cpu_implementation
    except hcq.errors.DeviceUnavailable: return False
chosen = hcq.Device.DEFAULT
print(chosen, next(name for name in {order} if opens(name)))"""
    chosen, first = printed(code, env=CLEAN).split()
    assert chosen == first


@pytest.mark.core
@promise("registry.default_assign", "registry.default_opened")
def test_the_default_can_be_assigned(driver):
    before = Device.DEFAULT
    try:
        Device.DEFAULT = "null:1"
        assert Device.DEFAULT == "NULL:1"
        assert Device.default is Device["NULL:1"]
        assert hcq.Buffer(None, 1, I32).device == "NULL:1"
    finally:
        Device.DEFAULT = before


@pytest.mark.core
@promise("registry.default_export", "registry.default_device_variable")
def test_child_processes_choose_alike(driver):
    child = (
        "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'import hcq; print(hcq.Device.DEFAULT)'], "
    )
    child += "capture_output=True, text=True).stdout.strip())"
    assert printed(f"import hcq; hcq.Device.DEFAULT = 'null:1'; {child}", env=CLEAN) == "NULL:1"
    chosen = "import hcq, os; name = hcq.Device.DEFAULT; print(name, os.environ.get(name))"
    assert printed(chosen, env=CLEAN).split()[1] == "1"
    assert printed(DEFAULT, env={**CLEAN, "HCQ_DEVICE": "null:2", "LLVM": "1"}) == "NULL:2"


@pytest.mark.core
@promise("registry.default_none_usable")
def test_nothing_usable_lists_each_device_and_why(driver):
    off = dict.fromkeys(("METAL", "AMD", "NV", "CUDA", "GPU", "VULKAN", "CLANG", "LLVM"), "0")
    done = python(DEFAULT, env={**CLEAN, **off})
    assert done.returncode == 1
    assert all(name in done.stderr for name in off)


# -- factories --------------------------------------------------------------------------------------------------------


@pytest.mark.core
@promise("registry.known_names")
def test_the_known_names_are_upper_case(driver):
    names = list(Device._devices)
    assert {"CLANG", "LLVM", "GPU", "CUDA", "METAL", "AMD", "NV", "DISK", "NPY", "VULKAN", "PYTHON", "NULL"} <= set(
        names
    )
    assert names == [name.upper() for name in names]


@pytest.mark.core
@promise("registry.lazy")
def test_naming_a_device_imports_that_driver_only(driver):
    code = """
import sys, hcq
drivers = lambda: sorted({m.split(".")[2] for m in sys.modules if m.startswith("hcq.drivers.")})
print(drivers()); hcq.Device["NULL"]; print(drivers())"""
    assert printed(code).splitlines() == ["[]", "['null']"]


@pytest.mark.core
@promise("registry.register", "registry.register_instances", "registry.register_subclass")
def test_a_factory_is_called_with_the_canonical_name(driver, name):
    Device.register(name.lower(), Plain)
    assert name in Device._devices
    first, second = Device[name.lower()], Device[f"{name.lower()}:1"]
    assert (first.dname, second.dname) == (name, f"{name}:1")
    assert first is not second

    class Other(Plain):
        pass

    Device.register(f"{name}Y", Other)
    assert type(Device[f"{name}Y"]) is Other


@pytest.mark.core
@promise("registry.register_taken", "registry.register_open", "registry.register_replace")
def test_a_taken_or_open_name_is_refused(driver, name):
    class Other(Plain):
        pass

    with pytest.raises(ValueError, match="PYTHON"):
        Device.register("python", Plain)
    Device.register(name, Plain)
    with pytest.raises(ValueError, match=name):
        Device.register(name, Other)
    opened = Device[name]
    with pytest.raises(ValueError, match=name):
        Device.register(name, Other, replace=True)
    opened.close()
    Device.register(name, Other, replace=True)
    assert type(Device[name]) is Other
    code = "import hcq; C = type('C', (hcq.Compiled,), {}); "
    code += "hcq.Device.register('METAL', lambda n: C(n, hcq.MallocAllocator), replace=True); "
    code += "print(hcq.Device['metal:1'].dname)"
    assert printed(code) == "METAL:1"


@pytest.mark.core
@promise("registry.entry_points")
def test_entry_points_bring_drivers(driver, tmp_path):
    info = tmp_path / "other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[hcq.drivers]\nothers = other_driver:Opened\nnull = other_driver:Opened\n")
    (tmp_path / "other_driver.py").write_text(
        "import hcq\nclass Opened(hcq.Compiled):\n"
        "  def __init__(self, name): super().__init__(name, hcq.MallocAllocator)\n"
    )
    code = f"""
import sys; sys.path.insert(0, {str(tmp_path)!r})
import hcq
assert "OTHERS" in hcq.Device._devices and "other_driver" not in sys.modules
print(type(hcq.Device["others:1"]).__module__, type(hcq.Device["NULL"]).__module__ != "other_driver")"""
    done = python(code)
    assert done.stdout.split() == ["other_driver", "True"], done.stderr


@pytest.mark.core
@promise("registry.unknown", "errors.no_assert")
def test_an_unknown_name_lists_the_known_and_the_nearest(driver):
    with pytest.raises(UnknownDevice) as refused:
        Device["CLAMG"]
    assert isinstance(refused.value, KeyError)
    assert "CLANG" in str(refused.value) and "NULL" in str(refused.value)
    with pytest.raises(UnknownDevice):
        hcq.Buffer("NOSUCHTHING", 1, I32).allocate()


@pytest.mark.core
@promise("registry.unavailable")
def test_unavailable_says_why_and_is_tried_anew(driver, name):
    tries = []

    def factory(device):
        tries.append(device)
        if len(tries) < 3:
            raise DeviceUnavailable(reason="no card", hint="plug one in")
        return Plain(device)

    Device.register(name, factory)
    for _ in range(2):
        with pytest.raises(DeviceUnavailable) as refused:
            Device[name]
        assert (refused.value.reason, refused.value.hint) == ("no card", "plug one in")
    assert Device[name].dname == name
    assert len(tries) == 3


@pytest.mark.core
@promise("registry.bug_shows")
def test_another_exception_shows_as_itself(driver, name):
    def factory(device):
        raise ZeroDivisionError("a bug")

    Device.register(name, factory)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError, match="a bug"):
            Device[name]


@pytest.mark.core
@promise("registry.not_built")
@pytest.mark.parametrize("kind", ["METAL", "AMD", "NV"])
def test_devices_to_come_are_known_and_unavailable(driver, kind):
    with pytest.raises(DeviceUnavailable) as refused:
        Device[kind]
    assert refused.value.reason and "not built yet" in str(refused.value)


# -- closing ----------------------------------------------------------------------------------------------------------


@promise("registry.close", "registry.close_repeat")
def test_a_closed_device_opens_anew(fresh, driver):
    fresh.close()
    fresh.close()
    Device.close(driver.device)
    Device.close(driver.device.lower())
    again = Device[driver.device]
    assert again is not fresh
    assert read(filled(again, [1, 2, 3])).tolist() == [1, 2, 3]


@promise("registry.close_buffers", "buffer.closed")
def test_buffers_of_a_closed_device_raise(fresh, driver):
    buf = filled(fresh, [1, 2, 3])
    fresh.close()
    for touch in (lambda: read(buf), lambda: buf.copyin(bytearray(12)), buf.as_buffer):
        with pytest.raises(RuntimeError):
            touch()
    Device[driver.device]  # the one that is open now is another device
    with pytest.raises(RuntimeError):
        read(buf)


@promise("registry.close")
@needs("queues", "compiles")
def test_a_closed_device_takes_no_work(fresh, fresh_kernels):
    program, queue = fresh_kernels.nothing, fresh.hw_compute_queue_t().signal(fresh.signal_t(), 1)
    fresh.close()
    for use in (program, lambda: queue.submit(fresh), lambda: program(wait=True)):
        with pytest.raises(RuntimeError):
            use()


@promise("registry.close_waits")
@needs("computes")
def test_close_waits_for_queued_work(fresh, fresh_kernels, driver):
    memory = bytearray(4)
    out = filled(fresh, [0])
    fresh_kernels.spin(out._buf, vals=(50_000_000,))
    if "zero_copy" not in driver.lacks:
        memory = out.as_buffer(allow_zero_copy=True)
        fresh.close()
        assert int.from_bytes(memory[:4], "little") == 50_000_000
    else:
        fresh.close()


@promise("registry.close_waits")
@needs("queues", "async")
def test_close_of_a_device_waits_for_its_queues(fresh):
    reached, gate = fresh.signal_t(), fresh.signal_t()
    fresh.hw_compute_queue_t().wait(gate, 1).signal(reached, 1).submit(fresh)
    done = []
    closer = threading.Thread(target=lambda: (fresh.close(), done.append(reached.value)))
    closer.start()
    time.sleep(0.05)
    assert done == []
    gate.value = 1
    closer.join(30)
    assert done == [1]


@promise("registry.replace_attributes")
@needs("compiles")
def test_replaced_attributes_are_used(fresh, fresh_kernels):
    seen = []
    runtime, allocator = fresh.runtime, fresh.allocator
    fresh.runtime = lambda name, lib, *rest: (seen.append(name), runtime(name, lib, *rest))[1]
    fresh.program("nothing", fresh_kernels.source("nothing"))
    assert seen == ["nothing"]

    class Counting(hcq.LRUAllocator):
        def _alloc(self, size, options):
            seen.append(size)
            return allocator._alloc(size, options)

        def _free(self, opaque, options):
            allocator._free(opaque, options)

        def copyin(self, dest, src):
            allocator.copyin(dest, src)

        def copyout(self, dest, src):
            allocator.copyout(dest, src)

    fresh.allocator = Counting(fresh)
    buf = hcq.Buffer(fresh.dname, 12_345, I32).allocate()
    assert seen[1:] == [12_345 * 4]
    assert buf.allocator is fresh.allocator
    del buf
    fresh.allocator.free_cache()
    fresh.renderer = fresh.graph = marker = object()
    assert fresh.renderer is marker and fresh.graph is marker
    fresh.runtime, fresh.allocator, fresh.renderer, fresh.graph = runtime, allocator, None, None


@promise("registry.close")
@needs("peers")
def test_closing_one_device_leaves_the_others(fresh, peer):
    buf = filled(peer, [5])
    fresh.close()
    assert read(buf).tolist() == [5]
    assert eventually(lambda: Device[peer.dname] is peer)
