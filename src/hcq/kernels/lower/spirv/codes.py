"""SPIR-V's numbers: the instructions that kernels are written with, and the words of their operands.

From the SPIR-V specification 1.6 and its extended instructions GLSL.std.450. One table for the writer (module)
and for the printer (text). What does not live here: what is written with them.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Code(NamedTuple):
    """One instruction. `operands` spells them: t type, r result, i id, s string, n number, v constant's bits, and the
    first letters of ENUMS; `*` repeats the last one."""

    number: int
    operands: str


def _codes(text: str) -> dict[str, Code]:
    found = {}
    for line in text.split(";"):
        name, number, *operands = line.split()
        found[f"Op{name}"] = Code(int(number), operands[0] if operands else "")
    return found


CODES: Final = _codes(
    "Undef 1 tr; Name 5 is; Extension 10 s; ExtInstImport 11 rs; ExtInst 12 triGi*; MemoryModel 14 AM;"
    "EntryPoint 15 Xisi*; ExecutionMode 16 iEn*; Capability 17 C; TypeVoid 19 r; TypeBool 20 r; TypeInt 21 rnn;"
    "TypeFloat 22 rn; TypeVector 23 rin; TypeArray 28 rii; TypeStruct 30 ri*; TypePointer 32 rSi;"
    "TypeFunction 33 rii*; ConstantTrue 41 tr; ConstantFalse 42 tr; Constant 43 trv*; SpecConstant 50 trv*;"
    "Function 54 trni; FunctionParameter 55 tr; FunctionEnd 56; FunctionCall 57 trii*; Variable 59 trS;"
    "Load 61 trin*; Store 62 iin*; AccessChain 65 trii*; Decorate 71 iDn*; MemberDecorate 72 inDn*;"
    "CompositeConstruct 80 trii*; CompositeExtract 81 trin*; ConvertFToU 109 tri; ConvertFToS 110 tri;"
    "ConvertSToF 111 tri; ConvertUToF 112 tri; UConvert 113 tri; SConvert 114 tri; FConvert 115 tri;"
    "ConvertUToPtr 120 tri; Bitcast 124 tri; SNegate 126 tri; FNegate 127 tri; IAdd 128 trii; FAdd 129 trii;"
    "ISub 130 trii; FSub 131 trii; IMul 132 trii; FMul 133 trii; UDiv 134 trii; SDiv 135 trii; FDiv 136 trii;"
    "LogicalEqual 164 trii; LogicalNotEqual 165 trii; LogicalOr 166 trii; LogicalAnd 167 trii;"
    "LogicalNot 168 tri; Select 169 triii; IEqual 170 trii; INotEqual 171 trii; UGreaterThan 172 trii;"
    "SGreaterThan 173 trii; UGreaterThanEqual 174 trii; SGreaterThanEqual 175 trii; ULessThan 176 trii;"
    "SLessThan 177 trii; ULessThanEqual 178 trii; SLessThanEqual 179 trii; FOrdEqual 180 trii;"
    "FUnordNotEqual 183 trii; FOrdLessThan 184 trii; FOrdGreaterThan 186 trii; FOrdLessThanEqual 188 trii;"
    "FOrdGreaterThanEqual 190 trii; ShiftRightLogical 194 trii; ShiftRightArithmetic 195 trii;"
    "ShiftLeftLogical 196 trii; BitwiseOr 197 trii; BitwiseXor 198 trii; BitwiseAnd 199 trii; Not 200 tri;"
    "BitCount 205 tri; ControlBarrier 224 iii; AtomicLoad 227 triii; AtomicExchange 229 triiii;"
    "AtomicCompareExchange 230 triiiiii; AtomicIAdd 234 triiii; AtomicSMin 236 triiii; AtomicUMin 237 triiii;"
    "AtomicSMax 238 triiii; AtomicUMax 239 triiii; AtomicAnd 240 triiii; AtomicOr 241 triiii;"
    "AtomicXor 242 triiii; Phi 245 trii*; LoopMerge 246 iin; SelectionMerge 247 in; Label 248 r; Branch 249 i;"
    "BranchConditional 250 iii; Return 253; ReturnValue 254 i; Unreachable 255; ModuleProcessed 330 s;"
    "AtomicFAddEXT 6035 triiii; ExecutionModeId 331 iEi*"
)
"""Instructions by name."""

ENUMS: Final[dict[str, dict[str, int]]] = {
    "G": {
        "RoundEven": 2,
        "Trunc": 3,
        "FAbs": 4,
        "SAbs": 5,
        "Floor": 8,
        "Ceil": 9,
        "Sqrt": 31,
        "UMin": 38,
        "SMin": 39,
        "UMax": 41,
        "SMax": 42,
    }
    | {"Fma": 50, "FindUMsb": 75},
    "A": {"PhysicalStorageBuffer64": 5348},
    "M": {"Vulkan": 3},
    "X": {"GLCompute": 5},
    "E": {"LocalSizeId": 38, "DenormPreserve": 4459, "SignedZeroInfNanPreserve": 4461, "RoundingModeRTE": 4462},
    "C": {
        "Shader": 1,
        "Float64": 10,
        "Int64": 11,
        "Int64Atomics": 12,
        "Int16": 22,
        "Int8": 39,
        "StorageBuffer16BitAccess": 4433,
    }
    | {
        "StorageBuffer8BitAccess": 4448,
        "DenormPreserve": 4464,
        "SignedZeroInfNanPreserve": 4466,
        "RoundingModeRTE": 4467,
    }
    | {
        "VulkanMemoryModel": 5345,
        "VulkanMemoryModelDeviceScope": 5346,
        "PhysicalStorageBufferAddresses": 5347,
        "AtomicFloat32AddEXT": 6033,
        "AtomicFloat64AddEXT": 6034,
    },
    "S": {"Input": 1, "Workgroup": 4, "Function": 7, "PushConstant": 9, "PhysicalStorageBuffer": 5349},
    "D": {"SpecId": 1, "Block": 2, "ArrayStride": 6, "BuiltIn": 11, "Offset": 35, "NoContraction": 42},
}
"""Words that operands are written as, by the letter of their kind."""

BUILTINS: Final = {"WorkgroupId": 26, "LocalInvocationId": 27}
MAGIC: Final = 0x07230203
VERSION: Final = 0x00010500
"""1.5 is the first with all that is used here, and that Vulkan 1.2 and later take."""
