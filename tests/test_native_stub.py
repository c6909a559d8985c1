"""The stub of the native module names what the module has, no more and no less."""

import ast
from pathlib import Path

import hcq
import hcq.runtime.buffer  # attaches what native classes have from Python
from hcq import _native


def stub_members():
    """The names in the stub: of the module, and of each class as `Class.name`."""
    tree = ast.parse((Path(hcq.__file__).parent / "_native.pyi").read_text())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.ClassDef):
            yield node.name
            for member in node.body:
                if isinstance(member, ast.FunctionDef):
                    yield f"{node.name}.{member.name}"
                elif isinstance(member, ast.AnnAssign):
                    yield f"{node.name}.{member.target.id}"


def native_members():
    for name, value in vars(_native).items():
        yield name
        if isinstance(value, type):
            # What Python code attaches to a native class lives there.
            yield from (f"{name}.{member}" for member, made in vars(value).items() if not hasattr(made, "__code__"))


def shown(names):
    return {name for name in names if not name.rpartition(".")[2].startswith("__")}


def test_the_stub_lists_every_native_name():
    assert shown(native_members()) - shown(stub_members()) == set(), "add these to src/hcq/_native.pyi"


def test_the_stub_lists_nothing_that_is_not_there():
    def exists(name):
        owner, _, member = name.rpartition(".")
        # Before Python 3.12 the buffer protocol has no name in Python.
        return member == "__buffer__" or hasattr(getattr(_native, owner) if owner else _native, member)

    assert [name for name in stub_members() if not exists(name)] == [], "take these out of src/hcq/_native.pyi"
