"""NamedTuple for modules that every program imports: what typing's does, made in a tenth of its time.

typing.NamedTuple writes each class's constructor as source text and compiles it, and each of its annotations: 0.1 to
0.4 ms a class, 2 ms of a first launch on LLVM. For type checkers it is typing's. What does not live here: public types
whose signature people look at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

try:
    from _collections import _tuplegetter as _item  # type: ignore[import-not-found]
except ImportError:  # another Python than CPython
    from operator import itemgetter

    def _item(place: int, doc: str | None) -> property:
        return property(itemgetter(place), doc=doc)


class _Fields(type):
    """Turns annotations into fields."""

    def __new__(mcs, name: str, bases: tuple[type, ...], names: dict[str, Any]) -> _Fields:
        fields = tuple(names.get("__annotations__", ()))
        names["__slots__"] = ()
        if fields and bases != (tuple,):
            names["_field_defaults"] = {field: names[field] for field in fields if field in names}
            names["_fields"] = names["__match_args__"] = fields
            names.update({field: _item(place, None) for place, field in enumerate(fields)})
        return super().__new__(mcs, name, bases, names)


class _NamedTuple(tuple, metaclass=_Fields):  # type: ignore[type-arg]
    """A tuple whose items have the names of the annotations of its class."""

    _fields: tuple[str, ...] = ()
    _field_defaults: ClassVar[dict[str, Any]] = {}

    def __new__(cls, *given: Any, **named: Any) -> Any:
        fields = cls._fields
        if named or len(given) != len(fields):
            defaults = cls._field_defaults
            rest = fields[len(given) :]
            missing = [field for field in rest if field not in named and field not in defaults]
            unknown = [field for field in named if field not in rest]
            if missing or unknown or len(given) > len(fields):
                raise TypeError(f"{cls.__name__} takes {', '.join(fields)}; got {len(given)} and {', '.join(named)}")
            given = (*given, *(named[field] if field in named else defaults[field] for field in rest))
        return tuple.__new__(cls, given)

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        shown = ", ".join(f"{field}={item!r}" for field, item in zip(self._fields, self, strict=True))
        return f"{type(self).__name__}({shown})"

    def _asdict(self) -> dict[str, Any]:
        """The items by their names."""
        return dict(zip(self._fields, self, strict=True))

    def _replace(self, **named: Any) -> Any:
        """A copy with other items under some names."""
        return type(self)(**{**self._asdict(), **named})


if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    NamedTuple = _NamedTuple
