"""What the mangled name of a CUDA C kernel says of its parameters (Itanium C++ ABI, 5.1 External Names).

What does not live here: what PTX itself says (ptx), and how names are asked for (nvrtc).
"""

from __future__ import annotations

from typing import NamedTuple

_BUILTIN = {
    "b": "boolean",
    "a": "i8",
    "c": "i8",
    "h": "u8",
    "s": "i16",
    "t": "u16",
    "i": "i32",
    "j": "u32",
    "l": "i64",
    "m": "u64",
    "x": "i64",
    "y": "u64",
    "f": "f32",
    "d": "f64",
    "w": "i32",
    "v": "void",
}
_TWO = {"Dh": "f16", "Di": "u32", "Ds": "u16", "Du": "u8", "DF16_": "f16", "DF16b": "bf16"}
_CLASSES = {"__half": "f16", "__nv_bfloat16": "bf16", "__nv_fp8_e4m3": "f8e4m3fn", "__nv_fp8_e5m2": "f8e5m2"}


class Type(NamedTuple):
    """`kind`: a key of VALUE_TYPES, "ptr" or "const" (a pointer that is only read through), "" for others."""

    kind: str
    constant: bool = False


class Name(NamedTuple):
    """The plain name of a function, and its parameters' kinds."""

    plain: str
    kinds: tuple[str, ...]


def read(symbol: str) -> Name | None:
    """What a mangled symbol says; None where it is none, or of a form that is not read here."""
    if not symbol.startswith("_Z"):
        return None
    try:
        return _Reader(symbol[2:]).function()
    except (IndexError, ValueError):
        return None


def read_signature(symbol: str) -> tuple[str, ...] | None:
    """The parameters of F in a symbol of `template <typename F> ... hcq_signature_of()`; None where it says nothing."""
    reader = _Reader(symbol[2:])
    try:
        reader.template()
        reader.expect("F")
        reader.skip("Y")
        reader.type()  # what it returns
        return reader.types_until("E")
    except (IndexError, ValueError):
        return None


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._seen: list[Type] = []  # what S_, S0_ ... stand for

    def function(self) -> Name:
        """A function's encoding, without template arguments of its own."""
        if self._peek() == "N":
            plain = self._nested(function=True)
        else:
            plain = self.source_name()
        if self._peek() == "I":
            raise ValueError("a template's parameters may name its arguments")
        kinds = self.types_until("")
        return Name(plain, () if kinds == ("void",) else kinds)

    def types_until(self, end: str) -> tuple[str, ...]:
        """Types up to `end`, or the end of the text."""
        kinds = []
        while self._at < len(self._text) and (not end or self._peek() != end):
            kinds.append(self.type().kind)
        return () if kinds == ["void"] else tuple(kinds)

    def type(self) -> Type:
        """One type."""
        code = self._take()
        if code in _BUILTIN:
            return Type(_BUILTIN[code])
        if code in "PRO":
            inner = self.type()
            return self._remember(Type("const" if inner.constant else "ptr"))
        if code in "KVr":
            inner = self.type()
            return self._remember(Type(inner.kind, inner.constant or code == "K"))
        if code == "D":
            for word, kind in _TWO.items():
                if self._text.startswith(word, self._at - 1):
                    self._at += len(word) - 1
                    return Type(kind)
            raise ValueError("a type that is not read here")
        if code == "S":
            return self._substitution()
        if code == "A":
            while self._take() != "_":
                pass
            return self._remember(Type("", self.type().constant))
        if code == "F":
            self.skip("Y")
            while self._peek() != "E":
                self.type()
            self._take()
            return self._remember(Type(""))
        self._at -= 1
        if code == "N":
            self._nested()
            return self._seen[-1]
        return self._templated(self._remember(Type(_CLASSES.get(self.source_name(), ""))))

    def source_name(self) -> str:
        """A name with its length before it."""
        start = self._at
        while self._peek().isdigit():
            self._at += 1
        length = int(self._text[start : self._at])
        name = self._text[self._at : self._at + length]
        if len(name) < length:
            raise ValueError("a name is cut off")
        self._at += length
        return name

    def template(self) -> None:
        """Past the name of a template, which counts as seen, and the beginning of its arguments."""
        self.source_name()
        self._remember(Type(""))
        self.expect("I")

    def expect(self, code: str) -> None:
        """The next letter, which has to be that."""
        if self._take() != code:
            raise ValueError(f"expected {code}")

    def skip(self, code: str) -> None:
        """Past a letter, if it is there."""
        if self._peek() == code:
            self._at += 1

    def _templated(self, known: Type) -> Type:
        if self._peek() != "I":
            return known
        self._take()
        while self._peek() != "E":
            if self._peek() == "L":  # a value: a type and its digits
                while self._take() != "E":
                    pass
            else:
                self.type()
        self._take()
        return self._remember(Type(""))

    def _nested(self, function: bool = False) -> str:
        """A name within others. Each prefix of it counts as seen; the whole does where it is a type's."""
        self._take()
        name = ""
        while self._peek() != "E":
            if self._peek() == "S":
                self._take()
                self._substitution()
            elif self._peek() == "I":
                self._templated(Type(""))
            else:
                name = self.source_name()
                if not function or self._peek() != "E":
                    self._remember(Type(""))
        self._take()
        return name

    def _substitution(self) -> Type:
        code = self._take()
        if code in "tasiod":  # of std: a name follows St
            return self._remember(Type("")) if code == "t" and self.source_name() else Type("")
        number = 0
        if code != "_":
            digits = code
            while (more := self._take()) != "_":
                digits += more
            number = int(digits, 36) + 1
        return self._seen[number]

    def _remember(self, known: Type) -> Type:
        self._seen.append(known)
        return known

    def _peek(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else ""

    def _take(self) -> str:
        code = self._text[self._at]
        self._at += 1
        return code
