"""The pure operations of ir.OPS in LLVM IR, exact to the last bit, for scalars and vectors alike.

f16 and bf16 are held in a float and rounded after every operation. bf16 is rounded by integer instructions, since the
processors' own conversions flush small numbers to zero; f16 comes from a double through a float rounded to odd, which
is as good as rounding once. What does not live here: memory, ids (writer), control flow (flow).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hcq.kernels import ir, types
from hcq.kernels.lower.llvm.text import MEMORY, VALUES, Emitter, lanes_of, number, repeated, shaped, suffix

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hcq.kernels.ir import Op
    from hcq.kernels.types import Type

_PLAIN: Final = {"add": "add", "sub": "sub", "mul": "mul", "and": "and", "or": "or", "xor": "xor"}
_REAL: Final = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "rem": "frem"}
_INTRINSICS: Final = {
    "sqrt": "sqrt",
    "floor": "floor",
    "ceil": "ceil",
    "trunc": "trunc",
    "round": "roundeven",
    "abs": "fabs",
    "copysign": "copysign",
    "fma": "fma",
    "min": "minimum",
    "max": "maximum",
}
_ROUNDED: Final = frozenset({"add", "sub", "mul", "div", "sqrt", "fma"})
_ORDERED: Final = {"eq": "oeq", "ne": "une", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}


class Arithmetic:
    """Writes pure operations through an emitter. `values` maps operands to what they are called."""

    def __init__(self, emitter: Emitter) -> None:
        self.e = emitter

    def write(self, op: Op, operands: Sequence[str]) -> str:
        """The operation on the operands' names; the name of its result."""
        if op.code == "cast":
            return self.cast(operands[0], op.operands[0].type, op.result.type)
        if op.code in ir.COMPARISONS:
            return self.compare(op.code, op.operands[0].type, *operands)
        special: Callable[..., str] | None = getattr(self, f"on_{op.code}", None)
        if special is not None:
            return special(op, *operands)
        type_ = op.result.type
        element = types.element_of(type_)
        if element.is_float:
            return self.real(op.code, type_, operands)
        return self.whole(op.code, type_, operands, _constant(op))

    # Helpers

    def same(self, text: str, type_: Type, name: str | None = None) -> str:
        """A constant in the shape of `type_`; of LLVM type `name`, else of the type's own."""
        return repeated(text, name or VALUES[types.element_of(type_)], lanes_of(type_))

    def spelled(self, type_: Type) -> str:
        return shaped(VALUES[types.element_of(type_)], type_)

    def choose(self, condition: str, a: str, b: str, type_: Type, name: str | None = None) -> str:
        spelled = shaped(name, type_) if name else self.spelled(type_)
        return self.e.emit(f"select {shaped('i1', type_)} {condition}, {spelled} {a}, {spelled} {b}")

    # Floats

    def real(self, code: str, type_: Type, operands: Sequence[str]) -> str:
        spelled = self.spelled(type_)
        if code == "neg":
            return self.e.emit(f"fneg {spelled} {operands[0]}")
        if code in _REAL:
            result = self.e.emit(f"{_REAL[code]} {spelled} {', '.join(operands)}")
        else:  # the sign of zero is left open for min and max, which saves two instructions
            flags = "nsz " if code in ("min", "max") else ""
            result = self.e.intrinsic(_INTRINSICS[code], spelled, *operands, flags=flags)
        return self.rounded(result, type_) if code in _ROUNDED else result

    def rounded(self, value: str, type_: Type) -> str:
        """A float as what f16 or bf16 makes of it; others as they are."""
        element = types.element_of(type_)
        if element not in (types.f16, types.bf16):
            return value
        return self.from_memory(self.to_memory(value, type_), type_)

    def to_memory(self, value: str, type_: Type) -> str:
        """A value as it is in memory."""
        element = types.element_of(type_)
        real, bits = shaped("float", type_), shaped("i32", type_)
        if element is types.bool_:
            return self.e.emit(f"zext {shaped('i1', type_)} {value} to {shaped('i8', type_)}")
        if element is types.f16:
            return self.e.emit(f"fptrunc {real} {value} to {shaped('half', type_)}")
        if element is not types.bf16:
            return value
        raw = self.e.emit(f"bitcast {real} {value} to {bits}")
        high = self.e.emit(f"lshr {bits} {raw}, {self.same('16', type_, 'i32')}")
        last = self.e.emit(f"and {bits} {high}, {self.same('1', type_, 'i32')}")
        half = self.e.emit(f"add {bits} {last}, {self.same('32767', type_, 'i32')}")
        carried = self.e.emit(f"add {bits} {raw}, {half}")
        nearest = self.e.emit(f"lshr {bits} {carried}, {self.same('16', type_, 'i32')}")
        quiet = self.e.emit(f"or {bits} {high}, {self.same('64', type_, 'i32')}")
        nan = self.e.emit(f"fcmp uno {real} {value}, {value}")
        chosen = self.choose(nan, quiet, nearest, type_, "i32")
        return self.e.emit(f"trunc {bits} {chosen} to {shaped('i16', type_)}")

    def from_memory(self, value: str, type_: Type) -> str:
        """A value from what is in memory."""
        element = types.element_of(type_)
        if element is types.bool_:
            return self.e.emit(f"icmp ne {shaped('i8', type_)} {value}, {self.same('0', type_, 'i8')}")
        if element is types.f16:
            return self.e.emit(f"fpext {shaped('half', type_)} {value} to {shaped('float', type_)}")
        if element is not types.bf16:
            return value
        bits = shaped("i32", type_)
        wide = self.e.emit(f"zext {shaped('i16', type_)} {value} to {bits}")
        raw = self.e.emit(f"shl {bits} {wide}, {self.same('16', type_, 'i32')}")
        return self.e.emit(f"bitcast {bits} {raw} to {shaped('float', type_)}")

    # Integers

    def whole(self, code: str, type_: Type, operands: Sequence[str], constant: int | None) -> str:
        element, spelled = types.element_of(type_), self.spelled(type_)
        signed = element.kind == "i"
        if code in _PLAIN:
            return self.e.emit(f"{_PLAIN[code]} {spelled} {', '.join(operands)}")
        if code in ("min", "max"):
            if element.kind == "b":
                return self.e.emit(f"{'and' if code == 'min' else 'or'} {spelled} {', '.join(operands)}")
            return self.e.intrinsic(f"{'s' if signed else 'u'}{code}", spelled, *operands)
        if code in ("floordiv", "mod"):
            return self.divided(code, type_, operands[0], operands[1], constant)
        if code in ("shl", "shr"):
            return self.shifted(code, type_, operands[0], operands[1], constant)
        (a,) = operands
        if code == "neg":
            return self.e.emit(f"sub {spelled} {self.same('0', type_)}, {a}")
        if code == "not":
            ones = "true" if element.kind == "b" else "-1"
            return self.e.emit(f"xor {spelled} {a}, {self.same(ones, type_)}")
        if code == "abs":
            return self.counted("abs", spelled, a) if signed else a
        if code == "clz":
            return self.counted("ctlz", spelled, a)
        return self.e.intrinsic("ctpop", spelled, a)

    def counted(self, name: str, spelled: str, a: str) -> str:
        """abs and ctlz: `false` says that the least value, or zero, is defined."""
        return self.e.call(f"llvm.{name}.{suffix(spelled)}", spelled, (spelled, a), ("i1", "false"))

    def divided(self, code: str, type_: Type, a: str, b: str, constant: int | None) -> str:
        element, spelled = types.element_of(type_), self.spelled(type_)
        zero, one = self.same("0", type_), self.same("1", type_)
        if constant is not None and constant > 0 and constant & (constant - 1) == 0:
            if code == "mod":
                return self.e.emit(f"and {spelled} {a}, {self.same(str(constant - 1), type_)}")
            shift = self.same(str(constant.bit_length() - 1), type_)
            return self.e.emit(f"{'ashr' if element.kind == 'i' else 'lshr'} {spelled} {a}, {shift}")
        by_zero = None
        if constant is None or constant == 0:
            by_zero = self.e.emit(f"icmp eq {spelled} {b}, {zero}")
            b = self.choose(by_zero, one, b, type_)
        if element.kind == "u":
            result = self.e.emit(f"{'udiv' if code == 'floordiv' else 'urem'} {spelled} {a}, {b}")
        else:
            result = self.floored(code, type_, a, b, constant)
        return result if by_zero is None else self.choose(by_zero, zero, result, type_)

    def floored(self, code: str, type_: Type, a: str, b: str, constant: int | None) -> str:
        """Signed division by b, which is not 0."""
        spelled, zero = self.spelled(type_), self.same("0", type_)
        by_minus = None
        divisor = b
        if constant is None or constant == -1:
            by_minus = self.e.emit(f"icmp eq {spelled} {b}, {self.same('-1', type_)}")
            divisor = self.choose(by_minus, self.same("1", type_), b, type_)
        left = self.e.emit(f"srem {spelled} {a}, {divisor}")
        signs = self.e.emit(f"xor {spelled} {left}, {divisor}")
        differ = self.e.emit(f"icmp slt {spelled} {signs}, {zero}")
        inexact = self.e.emit(f"icmp ne {spelled} {left}, {zero}")
        down = self.e.emit(f"and {shaped('i1', type_)} {differ}, {inexact}")
        if code == "mod":
            more = self.choose(down, divisor, zero, type_)
            result, instead = self.e.emit(f"add {spelled} {left}, {more}"), zero
        else:
            toward_zero = self.e.emit(f"sdiv {spelled} {a}, {divisor}")
            less = self.e.emit(f"sext {shaped('i1', type_)} {down} to {spelled}")
            result = self.e.emit(f"add {spelled} {toward_zero}, {less}")
            instead = self.e.emit(f"sub {spelled} {zero}, {a}") if by_minus is not None else zero
        return result if by_minus is None else self.choose(by_minus, instead, result, type_)

    def shifted(self, code: str, type_: Type, a: str, b: str, constant: int | None) -> str:
        element, spelled = types.element_of(type_), self.spelled(type_)
        width = self.same(str(element.bits), type_)
        name = "shl" if code == "shl" else "ashr" if element.kind == "i" else "lshr"
        if constant is not None and 0 <= constant < element.bits:
            return self.e.emit(f"{name} {spelled} {a}, {b}")
        if name == "ashr":
            count = self.e.intrinsic("umin", spelled, b, self.same(str(element.bits - 1), type_))
            return self.e.emit(f"ashr {spelled} {a}, {count}")
        inside = self.e.emit(f"icmp ult {spelled} {b}, {width}")
        return self.choose(inside, self.e.emit(f"{name} {spelled} {a}, {b}"), self.same("0", type_), type_)

    def compare(self, code: str, type_: Type, a: str, b: str) -> str:
        element, spelled = types.element_of(type_), self.spelled(type_)
        if element.is_float:
            return self.e.emit(f"fcmp {_ORDERED[code]} {spelled} {a}, {b}")
        sign = "" if code in ("eq", "ne") else "s" if element.kind == "i" else "u"
        return self.e.emit(f"icmp {sign}{code} {spelled} {a}, {b}")

    # Conversions

    def cast(self, value: str, source: Type, target: Type) -> str:
        """`value` of one type converted to another of the same shape."""
        if source is target:
            return value
        old, new = types.element_of(source), types.element_of(target)
        before, after = self.spelled(source), self.spelled(target)
        if new is types.bool_:
            if old.is_float:
                return self.e.emit(f"fcmp une {before} {value}, {self.same(number(0.0), source)}")
            return self.e.emit(f"icmp ne {before} {value}, {self.same('0', source)}")
        if old.is_float and new.is_float:
            return self.between_floats(value, source, target)
        if old.is_float:
            return self.saturated(value, source, target)
        if new.is_float:
            return self.to_float(value, source, target)
        if new.bits == old.bits and old is not types.bool_:
            return value
        if old is types.bool_ or new.bits > old.bits:
            return self.e.emit(f"{'sext' if old.kind == 'i' else 'zext'} {before} {value} to {after}")
        return self.e.emit(f"trunc {before} {value} to {after}")

    def saturated(self, value: str, source: Type, target: Type) -> str:
        """A float as an integer, toward zero and held to the range, NaN as 0. LLVM's own intrinsic for this becomes no
        vector on x86: it goes lane by lane."""
        old, new = types.element_of(source), types.element_of(target)
        before, after, digits = self.spelled(source), self.spelled(target), 53 if old is types.f64 else 24
        low, high = new.range
        most = high - (high >> digits)  # the largest that the float has: the upper digits
        least = self.same(number(float(low)), source)
        inside = self.e.emit(f"fcmp oge {before} {value}, {least}")
        held = self.choose(inside, value, least, source)
        top = self.same(number(float(most)), source)
        below = self.e.emit(f"fcmp olt {before} {held}, {top}")
        held = self.choose(below, held, top, source)
        result = self.e.emit(f"fpto{'s' if new.kind == 'i' else 'u'}i {before} {held} to {after}")
        if most != high:
            past = self.e.emit(f"fcmp ogt {before} {value}, {top}")
            result = self.choose(past, self.same(str(high), target), result, target)
        unknown = self.e.emit(f"fcmp uno {before} {value}, {value}")
        return self.choose(unknown, self.same("0", target), result, target)

    def to_float(self, value: str, source: Type, target: Type) -> str:
        """From an integer or bool. f32 rounds once; what f16 makes of an integer past 2^24 is infinite either way."""
        old, new = types.element_of(source), types.element_of(target)
        convert = "sitofp" if old.kind == "i" else "uitofp"
        before = self.spelled(source)
        if new is types.bf16 and old.bits > 16:
            value = self.kept_odd(value, source) if old.bits == 64 else value
            exact = self.e.emit(f"{convert} {before} {value} to {shaped('double', source)}")
            return self.rounded(self.odd(exact, source), target)
        return self.rounded(self.e.emit(f"{convert} {before} {value} to {self.spelled(target)}"), target)

    def kept_odd(self, value: str, type_: Type) -> str:
        """A 64-bit integer with 53 digits, rounded to odd."""
        spelled = self.spelled(type_)
        size = value
        if types.element_of(type_).kind == "i":
            size = self.counted("abs", spelled, value)
        large = self.e.emit(f"icmp ugt {spelled} {size}, {self.same(str(1 << 53), type_)}")
        low = self.e.emit(f"and {spelled} {value}, {self.same('2047', type_)}")
        inexact = self.e.emit(f"icmp ne {spelled} {low}, {self.same('0', type_)}")
        sticky = self.choose(inexact, self.same("2048", type_), self.same("0", type_), type_)
        high = self.e.emit(f"and {spelled} {value}, {self.same('-2048', type_)}")
        return self.choose(large, self.e.emit(f"or {spelled} {high}, {sticky}"), value, type_)

    def odd(self, value: str, like: Type) -> str:
        """A double as a float, rounded to odd: rounding that to fewer digits is as good as rounding the double."""
        wide, real, bits = shaped("double", like), shaped("float", like), shaped("i32", like)
        near = self.e.emit(f"fptrunc {wide} {value} to {real}")
        back = self.e.emit(f"fpext {real} {near} to {wide}")
        inexact = self.e.emit(f"fcmp one {wide} {back}, {value}")
        size = self.e.intrinsic("fabs", wide, value)
        reached = self.e.intrinsic("fabs", wide, back)
        past = self.e.emit(f"fcmp ogt {wide} {reached}, {size}")
        raw = self.e.emit(f"bitcast {real} {near} to {bits}")
        less = self.e.emit(f"sext {shaped('i1', like)} {past} to {bits}")
        toward_zero = self.e.emit(f"add {bits} {raw}, {less}")
        last = self.e.emit(f"zext {shaped('i1', like)} {inexact} to {bits}")
        made = self.e.emit(f"or {bits} {toward_zero}, {last}")
        return self.e.emit(f"bitcast {bits} {made} to {real}")

    def between_floats(self, value: str, source: Type, target: Type) -> str:
        before, after = self.spelled(source), self.spelled(target)
        if before == after:
            return self.rounded(value, target)
        if after == shaped("double", target):
            return self.e.emit(f"fpext {before} {value} to {after}")
        if types.element_of(target) is types.f32:
            return self.e.emit(f"fptrunc {before} {value} to {after}")
        return self.rounded(self.odd(value, source), target)

    def on_bitcast(self, op: Op, value: str) -> str:
        source, target = op.operands[0].type, op.result.type
        old, new = types.element_of(source), types.element_of(target)
        raw, before = self.to_memory(value, source), shaped(MEMORY[old], source)
        after = shaped(MEMORY[new], target)
        if before != after:
            if after == "half":  # by a bitcast, a comparison's bit becomes what LLVM 22 has no code for on AVX-512
                return self.e.call("llvm.convert.from.fp16.f32", "float", ("i16", raw))
            raw = self.e.emit(f"bitcast {before} {raw} to {after}")
        return self.from_memory(raw, target)

    # Vectors, and choosing

    def on_select(self, op: Op, condition: str, a: str, b: str) -> str:
        spelled = self.spelled(op.result.type)
        kind = shaped("i1", op.operands[0].type)
        return self.e.emit(f"select {kind} {condition}, {spelled} {a}, {spelled} {b}")

    def on_splat(self, op: Op, value: str) -> str:
        return self.on_pack(op, *[value] * lanes_of(op.result.type))

    def on_pack(self, op: Op, *values: str) -> str:
        spelled, one = self.spelled(op.result.type), self.spelled(op.operands[0].type)
        if not any(each.startswith("%") for each in values):
            return "<" + ", ".join(f"{one} {each}" for each in values) + ">"
        made = "poison"
        for lane, value in enumerate(values):
            made = self.e.emit(f"insertelement {spelled} {made}, {one} {value}, i32 {lane}")
        return made

    def on_extract(self, op: Op, vector: str) -> str:
        return self.e.emit(f"extractelement {self.spelled(op.operands[0].type)} {vector}, i32 {op.attributes['lane']}")


def _constant(op: Op) -> int | None:
    """The second operand where it is a constant."""
    if len(op.operands) < 2:
        return None
    maker = op.operands[1].op
    if maker is not None and maker.code == "splat":
        maker = maker.operands[0].op
    return int(maker.attributes["value"]) if maker is not None and maker.code == "const" else None
