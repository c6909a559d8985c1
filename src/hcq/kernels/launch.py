"""What `@hcq.kernel` makes: a function that is compiled for a device when it is launched there.

    saxpy[groups, items](2.0, x, y, n, stream=s)

What does not live here: compiling (specialise), and how a program is launched (the devices').
"""

from __future__ import annotations

import math
import operator
import sys
import threading
import weakref
from functools import lru_cache
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, overload

from hcq._native import KernelBase
from hcq.errors import LaunchError
from hcq.kernels import arithmetic as exact
from hcq.kernels import types
from hcq.kernels.frontend.parameters import NONE, Parameter, parameters
from hcq.kernels.lower import LANGUAGES
from hcq.kernels.specialise import Specialisation
from hcq.queues.launch import check_sizes
from hcq.runtime import process
from hcq.runtime.later import loaded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hcq.kernels.ir import Function
    from hcq.kernels.specialise import Loaded
    from hcq.queues.launch import Dims

_OPTIONS: Final = ("stream", "wait", "device")
_LARGEST: Final = 2**31


@overload
def kernel(function: Callable[..., Any]) -> Kernel: ...
@overload
def kernel(function: None = None) -> Callable[[Callable[..., Any]], Kernel]: ...
def kernel(function: Callable[..., Any] | None = None) -> Any:
    """Make a kernel of a Python function with typed parameters: it is written in the kernel language (docs/kernels.md).

    Nothing is compiled yet. Raises CompileError where a parameter has no type of a kernel's, TypeError for anything
    that is no plain Python function.
    """
    names = sys._getframe(1).f_locals
    if function is None:
        return lambda given: Kernel(given, names)
    return Kernel(function, names)


class Call(NamedTuple):
    """A launch whose arguments were checked."""

    loaded: Loaded
    arguments: list[Any]
    buffers: list[Any]
    values: list[Any]
    groups: Dims
    items: Dims


class Kernel(KernelBase):
    """A portable kernel. `kernel[groups, items]` is a launch of that size; call it with the function's arguments.

    Groups and items a group are numbers, or tuples of up to three. Threads may share a kernel.
    """

    def __init__(self, function: Callable[..., Any], names: Mapping[str, Any] | None = None) -> None:
        if not isinstance(function, FunctionType):
            raise TypeError(f"a kernel is a function written with def, not {function!r:.80}")
        self.__kernel_function__ = function
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self.__qualname__ = function.__qualname__
        self.parameters = parameters(function, names or {})
        taken = [each.name for each in self.parameters if each.name in _OPTIONS]
        if taken:
            raise TypeError(f"{self.__name__}: {taken[0]!r} is an option of launches: name the parameter otherwise")
        self._places = {each.name: index for index, each in enumerate(self.parameters)}
        self._lock = threading.RLock()
        self._made: dict[Any, Specialisation] = {}
        _live.add(self)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            f"{self.__name__} is a kernel: {self.__name__}[groups, items](...) launches it, and another kernel calls it"
        )

    def ir(self, **choices: Any) -> Function:
        """The form in the middle. `choices` are the constants, and the types of pointers without one."""
        return self._chosen(choices).ir

    def source(self, target: Any, **choices: Any) -> Any:
        """What is compiled for a device, or in a language by its name ("llvm", "c", "opencl", ..., "ir"): a str; bytes
        of "spirv".

        `choices` as for `ir`. Raises CompileError, ValueError for a language nobody writes.
        """
        made = self._chosen(choices)
        if target in LANGUAGES:
            return made.source(target)
        device = _device(target)
        language = getattr(device, "kernel_language", None)
        if language is None:
            raise ValueError(f"{device.dname} runs no portable kernels")
        return made.source(language, device)

    def prepare(self, *args: Any, groups: Any, items: Any, device: Any = None, **kwargs: Any) -> Any:
        """A callable that launches with these arguments, checked once; it takes wait= and stream=, and owns them."""
        return self[groups, items].prepare(*args, device=device, **kwargs)

    def _chosen(self, choices: dict[str, Any]) -> Specialisation:
        given: dict[str, types.Scalar] = {}
        constants: dict[str, Any] = {}
        for each in self.parameters:
            if each.kind == "constant":
                value = choices.pop(each.name, each.default)
                if value is NONE:
                    raise TypeError(f"{self.__name__}: the constant {each.name} needs a value: {each.name}=...")
                constants[each.name] = value
            elif each.kind == "pointer" and each.type is None:
                if each.name not in choices:
                    raise TypeError(f"{self.__name__}: {each.name} takes its type from a buffer: {each.name}=hcq.f32")
                given[each.name] = types.of_dtype(choices.pop(each.name))
        if choices:
            raise TypeError(f"{self.__name__} has no constant or untyped pointer {next(iter(choices))}")
        return self._specialise(given, constants)

    def _specialise(self, given: Mapping[str, types.Scalar], constants: Mapping[str, Any]) -> Specialisation:
        key = (tuple(given.values()), tuple(map(_constant_key, constants.values())))
        try:
            found = self._made.get(key)
        except TypeError:
            raise LaunchError(f"{self.__name__}: constants must be numbers, types, text or tuples of them") from None
        if found is None:
            with self._lock:
                found = self._made.get(key)
                if found is None:
                    found = Specialisation(self.__kernel_function__, self.parameters, given, constants)
                    self._made[key] = found
        return found

    def _bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        """One value for each parameter."""
        count = len(self.parameters)
        if len(args) > count:
            raise LaunchError(f"{self.__name__} takes {count} arguments, and {len(args)} are given")
        values = [*args, *([NONE] * (count - len(args)))]
        for name, value in kwargs.items():
            at = self._places.get(name)
            if at is None:
                raise LaunchError(f"{self.__name__} has no parameter {name}: expected {', '.join(self._places)}")
            if values[at] is not NONE:
                raise LaunchError(f"{self.__name__}: {name} is given twice")
            values[at] = value
        for at, each in enumerate(self.parameters):
            if values[at] is NONE:
                if each.default is NONE:
                    raise LaunchError(f"{self.__name__} needs a value for {each.name}")
                values[at] = each.default
        return values

    # What native/python/kernel_launch.cpp calls

    def _sizes(self, key: Any) -> tuple[Dims, Dims]:
        """The sizes of `kernel[key]`. Raises LaunchError for what is none."""
        if not isinstance(key, tuple) or len(key) != 2:
            raise LaunchError(f"{self.__name__}[groups, items] takes two sizes, not {key!r}")
        return _dims("groups", key[0]), _dims("items", key[1])

    def _launch(self, groups: Dims, items: Dims, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A launch that no entry fits: of new types or sizes, of arrays, by names, or watched."""
        options = {name: kwargs.pop(name, None) for name in _OPTIONS}
        call = self._check(groups, items, args, kwargs, options["device"])
        program = call.loaded.program
        if not kwargs and options["device"] is None and len(args) == len(self.parameters):
            self._keep(call)
        return program(
            *call.buffers,
            global_size=call.groups,
            local_size=call.items,
            vals=call.values,
            wait=bool(options["wait"]),
            stream=options["stream"],
        )

    def _prepare(self, groups: Dims, items: Dims, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        device = kwargs.pop("device", None)
        call = self._check(groups, items, args, kwargs, device)
        return call.loaded.program.prepare(
            *call.buffers, global_size=call.groups, local_size=call.items, vals=call.values
        )

    def _check(self, groups: Dims, items: Dims, args: Sequence[Any], kwargs: Mapping[str, Any], device: Any) -> Call:
        values = self._bind(args, kwargs)
        given: dict[str, types.Scalar] = {}
        constants: dict[str, Any] = {}
        buffers: list[Any] = []
        numbers: list[Any] = []
        home: Any = None
        for each, value in zip(self.parameters, values, strict=True):
            if each.kind == "constant":
                constants[each.name] = _plain(value)
            elif each.kind == "scalar":
                assert each.type is not None
                numbers.append(_number(self, each, each.type, value))
            else:
                element = _element(self, each, value)
                if each.type is None:
                    given[each.name] = element
                elif element is not each.type:
                    raise LaunchError(
                        f"{self.__name__}: {each.name} is a buffer of {each.type}, and one of {element} is given"
                    )
                buffers.append(value)
                if home is None and hasattr(value, "is_allocated"):
                    home = value.device
        opened = _device(device if device is not None else home)
        groups, items = check_sizes(groups, items, opened.limits)
        for axis, count, size in zip("xyz", groups, items, strict=True):
            if count * size >= _LARGEST:
                raise LaunchError(
                    f"{self.__name__}: {count} groups of {size} are {count * size} work-items in {axis}: "
                    "ids are 32-bit numbers, so the limit is 2^31 - 1"
                )
        specialisation = self._specialise(given, constants)
        loaded = specialisation.loaded(opened)
        specialisation.bounds.check(groups, items, [each.size for each in buffers], numbers)
        adapted = [
            # A whole number of a class of its own is one that a graph gave a name: it is told by its class.
            number if isinstance(number, int) and type(number) not in (int, bool) else adapt(number)
            for adapt, number in zip(loaded.adapt, numbers, strict=True)
        ]
        return Call(loaded, values, buffers, adapted, groups, items)

    def _keep(self, call: Call) -> None:
        """Lets the next launches of these types be made natively, where they can be."""
        device = call.loaded.device
        if any(not hasattr(each, "is_allocated") or each.device != device.dname for each in call.buffers):
            return
        bounds = call.loaded.specialisation.bounds
        params = []
        number = 0
        for each, value in zip(self.parameters, call.arguments, strict=True):
            if each.kind == "pointer":
                params.append(("buffer", value.dtype, False))
            elif each.kind == "constant":
                params.append(("constant", value, False))
            else:
                params.append((str(each.type), None, number in bounds.relevant))
                number += 1
        self._remember(call.loaded.program, device.dname, tuple(params), bounds.check)

    def __repr__(self) -> str:
        return f"<kernel {self.__name__}({', '.join(self._places)})>"


# Every kernel of the process, so that a forked child can take the locks that other threads of the parent held.
_live: weakref.WeakSet[Kernel] = weakref.WeakSet()


def _unlock() -> None:
    for kernel in list(_live):
        kernel._lock = threading.RLock()
        for made in list(kernel._made.values()):
            made.lock = threading.RLock()


process.at_fork_in_child(_unlock)


def _device(name: Any) -> Any:
    """An opened device, by its name or itself; None is the default one."""
    from hcq.runtime.registry import Device

    return name if hasattr(name, "dname") else Device[name if name is not None else Device.DEFAULT]


def _dims(what: str, given: Any) -> Dims:
    """A size as (x, y, z)."""
    try:
        counts = [operator.index(each) for each in (given if isinstance(given, (tuple, list)) else (given,))]
    except TypeError:
        raise LaunchError(f"{what} are a whole number or up to three of them, not {given!r}") from None
    if any(not 0 <= each < _LARGEST for each in counts):
        raise LaunchError(f"{what} {given!r}: sizes are not negative, and less than 2^31")
    if not 1 <= len(counts) <= 3:
        raise LaunchError(f"{what} have one to three dimensions, and {given!r} has {len(counts)}")
    x, y, z = (*counts, 1, 1)[:3]
    return x, y, z


def _element(kernel: Kernel, parameter: Parameter, value: Any) -> types.Scalar:
    """What the elements of a buffer are."""
    dtype = getattr(value, "dtype", None)
    if dtype is None or not hasattr(value, "size") or not getattr(value, "nbytes", 0):
        raise LaunchError(
            f"{kernel.__name__}: {parameter.name} must be a buffer or a NumPy array with elements, not {value!r:.60}"
        )
    try:
        return _scalar(dtype)
    except TypeError as error:
        raise LaunchError(f"{kernel.__name__}: {parameter.name}: {error}") from None


_scalar = lru_cache(maxsize=256)(types.of_dtype)


def _plain(value: Any) -> Any:
    """A constant as a Python number where it is a NumPy scalar of an integer or bool kind."""
    numpy = loaded("numpy")
    if numpy is not None and isinstance(value, numpy.generic) and value.dtype.kind in "iub":
        return value.item()
    return value


def _constant_key(value: Any) -> Any:
    """What tells specialisations apart: 1, 1.0 and True are three, and so are 0.0 and -0.0."""
    if isinstance(value, tuple):
        return tuple(map(_constant_key, value))
    return type(value), repr(value) if isinstance(value, float) else value


def _number(kernel: Kernel, parameter: Parameter, type_: types.Scalar, value: Any) -> bool | int | float:
    """An argument as a Python number that its type holds; a float may be rounded."""
    given = value
    numpy = loaded("numpy")
    if numpy is not None and isinstance(value, numpy.generic):
        value = float(value) if value.dtype.kind == "V" else value.item()
    if isinstance(value, float) and type_.is_float:
        if math.isfinite(value) and math.isinf(exact.rounder(type_)(value)):
            raise LaunchError(f"{kernel.__name__}: {parameter.name} is {type_}, and {given!r} is too large for it")
        return value
    if not isinstance(value, (bool, int)):
        try:
            value = operator.index(value)
        except TypeError:
            raise LaunchError(
                f"{kernel.__name__}: {parameter.name} is {type_}, and {given!r:.60} ({type(given).__name__}) is given"
            ) from None
    if type_.is_float:
        try:
            whole = float(value) == value and exact.rounder(type_)(float(value)) == value
        except OverflowError:
            whole = False
        if not whole:
            raise LaunchError(
                f"{kernel.__name__}: {parameter.name} is {type_}, which has no {given!r}: a float is rounded"
            )
        return float(value)
    low, high = type_.range
    if not low <= value <= high:
        raise LaunchError(f"{kernel.__name__}: {parameter.name} is {type_}, which holds {low} to {high}, not {given!r}")
    return bool(value) if type_.kind == "b" else value
