"""Breakages of the registry: names, opening, defaults, factories, closing."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import hcq
from hcq import Compiled
from hcq.drivers import BUILTIN
from hcq.drivers.null.device import NullDevice
from hcq.errors import DeviceUnavailable
from hcq.runtime import registry
from hcq.testing.breakages import breaks, changed, together
from hcq.testing.mutants.devices import Context

Registry = type(hcq.Device)


def _opened_as(make: Any) -> Context:
    return changed(Registry, "__getitem__", make)


@breaks("registry.once", "test_a_name_is_one_object", "test_threads_that_name_a_device_get_one")
def each_look_opens_anew() -> Context:
    return _opened_as(
        lambda getitem: lambda self, name: self._factory(self.canonicalize(name))(self.canonicalize(name))
    )


@breaks("registry.threads", "test_a_factory_is_called_once_by_many_threads")
def opening_takes_no_lock() -> Context:
    def getitem(self: Any, name: Any) -> Any:
        name = self.canonicalize(name)
        if name not in self._opened:
            self._opened[name] = self._factory(name)(name)
            time.sleep(0.01)
        return self._opened[name]

    return patch.object(Registry, "__getitem__", getitem)


@breaks("registry.canonical_upper", "test_names_are_made_canonical[null]", "test_a_closed_device_opens_anew")
def names_stay_as_written() -> Context:
    return changed(Registry, "canonicalize", lambda before: lambda self, name: name)


@breaks("registry.canonical_zero", "test_names_are_made_canonical[gpu:0-GPU]")
def colon_zero_stays() -> Context:
    def make(before: Any) -> Any:
        def broken(self: Any, name: Any) -> Any:
            made = before(self, name)
            return made + ":0" if name and name.endswith(":0") and not made.endswith(":0") else made

        return broken

    return changed(Registry, "canonicalize", make)


@breaks("registry.canonical_disk", "test_disk_keeps_all_after_its_first_colon[/tmp/a:0]")
def paths_lose_their_zero() -> Context:
    return changed(Registry, "canonicalize", lambda before: lambda self, name: before(self, name).removesuffix(":0"))


@breaks("registry.canonical_none", "test_none_is_the_default_each_time")
def the_default_is_cached() -> Context:
    kept: list[str] = []

    def make(before: Any) -> Any:
        def broken(self: Any, name: Any) -> Any:
            if name is not None:
                return before(self, name)
            if not kept:
                kept.append(before(self, None))
            return kept[0]

        return broken

    return changed(Registry, "canonicalize", make)


@breaks("registry.cpu_alias", "test_cpu_is_an_alias")
def cpu_is_no_alias() -> Context:
    return changed(
        Registry, "canonicalize", lambda before: lambda self, name: name.upper() if name else before(self, None)
    )


@breaks("registry.default_flag", "test_a_flag_makes_the_default_and_zero_leaves_out")
def flags_are_ignored() -> Context:
    return patch.object(registry, "_flag", lambda head: "")


@breaks("registry.default_order", "test_the_default_is_the_first_that_opens")
def the_order_is_turned_round() -> Context:
    return changed(registry, "DEFAULT_ORDER", lambda order: order[::-1])


@breaks("registry.default_assign", "test_the_default_can_be_assigned", "test_none_is_the_default_each_time")
def assigning_the_default_does_nothing() -> Context:
    before: Any = Registry.DEFAULT
    return patch.object(Registry, "DEFAULT", property(before.fget, lambda self, name: None, before.fdel))


@breaks("registry.default_export", "test_child_processes_choose_alike")
def the_default_is_not_exported() -> Context:
    return patch.object(Registry, "_export", lambda self, variable, value: None)


@breaks("registry.default_none_usable", "test_nothing_usable_lists_each_device_and_why")
def nothing_usable_says_nothing() -> Context:
    def refuse(self: Any) -> str:
        raise DeviceUnavailable("no device")

    return patch.object(Registry, "_first_that_opens", refuse)


@breaks("registry.known_names", "test_the_known_names_are_upper_case")
def known_names_are_lower_case() -> Context:
    before: Any = Registry._devices
    return patch.object(Registry, "_devices", property(lambda self: [name.lower() for name in before.fget(self)]))


@breaks("registry.register", "test_a_factory_is_called_with_the_canonical_name")
def factories_get_the_kind() -> Context:
    def make(register: Any) -> Any:
        return lambda self, name, factory, replace=False: register(
            self, name, lambda given: factory(given.partition(":")[0]), replace
        )

    return changed(Registry, "register", make)


@breaks("registry.register_taken", "test_a_taken_or_open_name_is_refused")
def registering_always_replaces() -> Context:
    @contextmanager
    def lasting() -> Any:
        before = set(hcq.Device._registered)
        with changed(
            Registry,
            "register",
            lambda register: lambda self, name, factory, replace=False: register(self, name, factory, True),
        ):
            yield
        for name in set(hcq.Device._registered) - before:  # built-in devices are themselves again for later tests
            if name in BUILTIN:
                hcq.Device.unregister(name)

    return lasting()


@breaks("registry.entry_points", "test_entry_points_bring_drivers")
def entry_points_are_not_looked_for() -> Context:
    return patch.object(Registry, "_found", lambda self: {})


@breaks("registry.unknown", "test_an_unknown_name_lists_the_known_and_the_nearest")
def an_unknown_name_is_a_plain_key_error() -> Context:
    def make(getitem: Any) -> Any:
        def broken(self: Any, name: Any) -> Any:
            try:
                return getitem(self, name)
            except KeyError:
                raise KeyError(name) from None

        return broken

    return _opened_as(make)


@breaks("registry.unavailable", "test_unavailable_says_why_and_is_tried_anew")
def a_failed_opening_is_remembered() -> Context:
    failed: dict[str, Any] = {}

    def make(getitem: Any) -> Any:
        def broken(self: Any, name: Any) -> Any:
            if name in failed:
                raise failed[name]
            try:
                return getitem(self, name)
            except DeviceUnavailable as error:
                failed[name] = error
                raise

        return broken

    return _opened_as(make)


@breaks("registry.bug_shows", "test_another_exception_shows_as_itself")
def every_failure_is_unavailable() -> Context:
    def make(getitem: Any) -> Any:
        def broken(self: Any, name: Any) -> Any:
            try:
                return getitem(self, name)
            except ArithmeticError as error:
                raise DeviceUnavailable(str(error)) from error

        return broken

    return _opened_as(make)


@breaks("registry.not_built", "test_devices_to_come_are_known_and_unavailable")
def devices_to_come_are_unknown() -> Context:
    def make(getitem: Any) -> Any:
        def broken(self: Any, name: Any) -> Any:
            if name in ("METAL", "AMD", "NV"):
                raise KeyError(name)
            return getitem(self, name)

        return broken

    return _opened_as(make)


@breaks(
    "registry.close",
    "test_a_closed_device_opens_anew",
    "test_buffers_of_a_closed_device_raise",
    "test_a_closed_device_takes_no_work",
    "test_close_of_a_device_waits_for_its_queues",
)
def close_does_nothing() -> Context:
    return together(
        patch.object(NullDevice, "close", lambda self: None), patch.object(Registry, "close", lambda self, name: None)
    )


@breaks("registry.close_waits", "test_close_of_a_device_waits_for_its_queues")
def close_only_forgets() -> Context:
    forgotten: list[Any] = []

    @contextmanager
    def lasting() -> Any:
        with patch.object(NullDevice, "close", lambda self: (forgotten.append(self), hcq.Device.forget(self))[1]):
            yield
        for device in forgotten:  # a queue that stands for ever would hold back what later tests free
            device._lose("the suite", "a breakage ends", 0)

    return lasting()


@breaks("registry.close", "test_closing_one_device_leaves_the_others")
def close_closes_all() -> Context:
    def make(close: Any) -> Any:
        def broken(self: Any) -> None:
            for name in hcq.Device.opened:
                if name.startswith("NULL"):
                    close(hcq.Device[name])

        return broken

    return changed(Compiled, "close", make)


@breaks("registry.replace_attributes", "test_replaced_attributes_are_used")
def program_keeps_the_first_runtime() -> Context:
    from hcq.drivers.null.program import NullProgram

    def program(self: Any, name: str, source: Any) -> Any:
        return NullProgram(self, name, self.compiler.compile_cached(source))

    return patch.object(NullDevice, "program", program)


@contextmanager
def _without(*variables: str) -> Any:
    """The environment lacks these: whatever reads them finds nothing."""
    with patch.dict(os.environ):
        for name in variables:
            os.environ.pop(name, None)
        yield


@breaks("compiler.disable", "test_the_variables_switch_the_cache")
def variables_of_the_cache_are_ignored() -> Context:
    return _without("ASSERT_COMPILE", "DISABLE_COMPILER_CACHE")


@breaks("allocator.lru_off", "test_lru_zero_switches_the_cache_off")
def lru_zero_is_ignored() -> Context:
    return _without("LRU")


@breaks("allocator.limit_variable", "test_the_variable_sets_the_limit")
def the_limits_variable_is_ignored() -> Context:
    return _without("HCQ_MEMORY_LIMIT")


@breaks(
    "queue.limit",
    "test_past_the_limit_the_submitter_waits_and_gives_up",
    "test_a_launch_that_gives_up_loses_no_timeline_value",
)
def the_queue_limit_is_ignored() -> Context:
    return _without("HCQ_QUEUE_LIMIT")


@breaks("timeline.wait_timeout", "test_a_queue_that_stands_is_no_failure")
def a_queue_that_stands_loses_the_device() -> Context:
    from hcq.errors import SignalTimeout

    def make(synchronize: Any) -> Any:
        def broken(self: Any) -> None:
            try:
                synchronize(self)
            except SignalTimeout:
                self._lose("wait", "stood for too long", 0)
                raise

        return broken

    return changed(NullDevice, "synchronize", make)


@breaks("registry.lazy", "test_naming_a_device_imports_that_driver_only")
def every_driver_is_imported() -> Context:
    import hcq.drivers.cpu  # noqa: F401

    return nullcontext()


@breaks("names.light", "test_importing_hcq_is_light")
def importing_hcq_imports_numpy() -> Context:
    import numpy  # noqa: F401

    return nullcontext()
