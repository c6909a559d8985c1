"""hcq.save: buffers and arrays into a file.

What does not live here: headers (the formats), and how a file takes the place of another (replace).
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from hcq import dtypes
from hcq.formats import gguf_head, index, npy, safetensors
from hcq.formats.blocks import BY_NAME
from hcq.formats.entry import utf8
from hcq.formats.replace import NewFile, replacing
from hcq.runtime.buffer import Buffer

_PIECE = 16 << 20  # bytes that are copied out of a device at once
_INDEX = ".safetensors.index.json"
_MOST_ZIP_NAME = (1 << 16) - 1 - len(".npy")  # bytes of a tensor's


class _Tensor(NamedTuple):
    """What is written: a Buffer, or a NumPy array, C-contiguous and of the machine's byte order."""

    name: str
    dtype: Any
    shape: tuple[int, ...]
    nbytes: int
    holder: Any


def save(
    path: str | os.PathLike[str],
    tensors: Any,
    *,
    metadata: Mapping[str, Any] | None = None,
    types: Mapping[str, str] | None = None,
    shard_bytes: int | None = None,
) -> None:
    """Write tensors to a file, which replaces what has its name: after a crash there is the old file or the new one.

    `tensors` maps names to Buffers, or to what numpy.asarray takes; for .npy it is one of them. The suffix of `path`
    is the format: .safetensors, .gguf, .npz (as zip files have it, uncompressed) or .npy. `metadata` is kept by
    safetensors, texts by name, and by GGUF, whose values are texts, numbers, bools and lists of one of them (NumPy's
    scalars and arrays keep their types). `types` says by name which blocks tensors of bytes (uint8) are in GGUF, such
    as 'Q4_K'; what hcq.load gave knows its own. With `shard_bytes` safetensors are written as several files of at most
    so many bytes of tensors each (a larger tensor has its own), and `path` is their index,
    `NAME.safetensors.index.json`, which is replaced last: the files that a former one names are left as they are.

    Contents are written as they are after all work queued, in pieces where the host can't reach them. Blocks. Raises
    ValueError for unknown suffixes and for tensors' names that the format can't have, TypeError for dtypes that it has
    no name for, RuntimeError for unallocated buffers, all before anything is written; and the operating system's
    errors.
    """
    path = os.path.abspath(os.fsdecode(path))
    if path.endswith(".gguf"):
        _save_gguf(path, tensors, {} if metadata is None else metadata, types, shard_bytes)
        return
    texts = metadata if metadata is not None else {}
    if not isinstance(texts, Mapping) or not all(isinstance(text, str) for pair in texts.items() for text in pair):
        raise TypeError("metadata maps text to text")
    for pair in texts.items():
        for text in pair:
            utf8(text, "metadata's text")
    if types is not None:
        raise ValueError("types of blocks are GGUF's")
    if path.endswith((".npy", ".npz")) and (metadata or shard_bytes is not None):
        raise ValueError("metadata and shards are safetensors', and NumPy's formats have neither")
    if path.endswith(".npy"):
        _save_npy(path, _tensor("", tensors))
        return
    found = _all(tensors)
    if path.endswith(".npz"):
        _save_npz(path, found)
    elif path.endswith(".safetensors") and shard_bytes is None:
        _save_safetensors(path, found, metadata or {})
    elif path.endswith(_INDEX) and shard_bytes is not None:
        _save_shards(path, found, metadata or {}, shard_bytes)
    else:
        wanted = f"a name that ends with {_INDEX}" if shard_bytes is not None else ".safetensors, .gguf, .npz or .npy"
        raise ValueError(f"{path}: the suffix is the format, which must be {wanted}")


def _all(tensors: Any) -> list[_Tensor]:
    if not isinstance(tensors, Mapping):
        raise TypeError(f"tensors must map names to buffers, not be {type(tensors).__name__}; only .npy has one alone")
    return [_tensor(name, tensor) for name, tensor in tensors.items()]


def _tensor(name: Any, given: Any) -> _Tensor:
    if not isinstance(name, str):
        raise TypeError(f"names of tensors are text, not {name!r:.60}")
    utf8(name, "the tensor's name")
    if isinstance(given, Buffer):
        if given.nbytes and not given.is_allocated():
            given._check_usable()  # a closed device says so
            raise RuntimeError(f"tensor {name!r}, on {given.device}, is not allocated: there is nothing to save")
        return _Tensor(name, given.dtype, given.shape, given.nbytes, given)
    import numpy

    array = numpy.asarray(given)
    if array.dtype.hasobject:
        raise TypeError(f"tensor {name!r} is {given!r:.60}, which is neither a buffer nor an array of numbers")
    array = numpy.asarray(array, array.dtype.newbyteorder("="), order="C")
    return _Tensor(name, array.dtype, array.shape, array.nbytes, array)


def _save_npy(path: str, tensor: _Tensor) -> None:
    head = npy.describe(tensor.dtype, tensor.shape)
    with replacing(path) as file:
        file.write(head)
        _write(tensor, file.write)


def _save_npz(path: str, tensors: list[_Tensor]) -> None:
    for tensor in tensors:
        if "\0" in tensor.name:  # a zip's names end there
            raise ValueError(f".npz has no name like {tensor.name!r}, with a null character; safetensors has")
        if len(tensor.name.encode()) > _MOST_ZIP_NAME:
            raise ValueError(f"the name {tensor.name!r:.60} is too long: .npz has {_MOST_ZIP_NAME} bytes at most")
    heads = [npy.describe(tensor.dtype, tensor.shape) for tensor in tensors]
    with replacing(path) as file, zipfile.ZipFile(io.FileIO(file.descriptor, "wb", closefd=False), "w") as container:
        for tensor, head in zip(tensors, heads, strict=True):
            with container.open(f"{tensor.name}.npy", "w", force_zip64=True) as stream:
                stream.write(head)
                _write(tensor, stream.write)


def _save_safetensors(path: str, tensors: list[_Tensor], metadata: Mapping[str, str]) -> None:
    # The widest elements first, as others write them: then all lie at multiples of their size.
    ordered = sorted(tensors, key=lambda tensor: (-dtypes.itemsize(tensor.dtype), tensor.name))
    head = safetensors.describe([tensor[:4] for tensor in ordered], metadata)
    with replacing(path) as file:
        file.write(head)
        for tensor in ordered:
            _write(tensor, file.write)


def _save_gguf(
    path: str, tensors: Any, metadata: Mapping[str, Any], types: Mapping[str, str] | None, shard_bytes: int | None
) -> None:
    if shard_bytes is not None:
        raise ValueError("shards are safetensors'; a GGUF file is written whole")
    if not isinstance(metadata, Mapping):
        raise TypeError("metadata maps text to values")
    found = _all(tensors)
    if types is not None:
        _check_types(types, found)
    said = types if types is not None else getattr(tensors, "types", {})
    described = [
        (tensor.name, gguf_head.describe(tensor.name, tensor.dtype, tensor.shape, said.get(tensor.name)))
        for tensor in found
    ]
    head, alignment = gguf_head.head(described, metadata)
    with replacing(path) as file:
        file.write(head)
        for tensor in found:
            _write(tensor, file.write)
            file.write(bytes(-tensor.nbytes % alignment))


def _check_types(types: Any, tensors: list[_Tensor]) -> None:
    if not isinstance(types, Mapping) or not all(isinstance(text, str) for pair in types.items() for text in pair):
        raise TypeError("types maps tensors' names to names of blocks, as in types={'w': 'Q8_0'}")
    known = {tensor.name: tensor for tensor in tensors}
    for name, type_name in types.items():
        if name not in known:
            raise ValueError(f"types speak of a tensor {name!r}, and there is none")
        kind, dtype = BY_NAME.get(type_name), known[name].dtype
        if kind is not None and kind.dtype is None and dtypes.of(dtype) is not dtypes.uint8:
            raise TypeError(f"tensor {name!r} is to be of {type_name}: its blocks come as bytes, uint8, not {dtype!r}")


def _save_shards(path: str, tensors: list[_Tensor], metadata: Mapping[str, str], most: int) -> None:
    if type(most) is not int or most <= 0:
        raise ValueError(f"shard_bytes must be a positive number of bytes, not {most!r:.40}")
    for tensor in tensors:
        safetensors.check(tensor.name, tensor.dtype)  # before the first shard is written
    shards: list[list[_Tensor]] = [[]]
    filled = 0
    for tensor in tensors:
        if shards[-1] and filled + tensor.nbytes > most:
            shards.append([])
            filled = 0
        shards[-1].append(tensor)
        filled += tensor.nbytes
    files: dict[str, str] = {}
    total = sum(tensor.nbytes for tensor in tensors)
    paths = _shard_paths(path, len(shards))
    new: NewFile | None = None
    try:
        for shard, file in zip(shards, paths, strict=True):
            _save_safetensors(file, shard, metadata)
            files.update((tensor.name, os.path.basename(file)) for tensor in shard)
        with replacing(path) as new:
            new.write(index.describe(files, total, dict(metadata)))
    except BaseException:
        if new is None or not new.placed:
            for file in filter(os.path.lexists, paths):  # names that nobody had, and no index has
                os.unlink(file)
        raise


def _shard_paths(path: str, count: int) -> list[str]:
    """Names that no file has, so that a former index stays true until it is replaced."""
    stem = tag = path.removesuffix(_INDEX)
    while True:
        paths = [f"{tag}-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)]
        if not any(map(os.path.lexists, paths)):
            return paths
        tag = f"{stem}-{os.urandom(4).hex()}"


def _write(tensor: _Tensor, write: Callable[[memoryview], object]) -> None:
    """The tensor's bytes, in order; nothing is copied where the host reaches them."""
    for piece in _pieces(tensor):
        write(piece)


def _pieces(tensor: _Tensor) -> Iterator[memoryview]:
    if not tensor.nbytes:
        return
    if not isinstance(tensor.holder, Buffer):
        import numpy

        yield memoryview(tensor.holder.reshape(-1).view(numpy.uint8))
        return
    exporter = tensor.holder._export()
    if exporter is not None:
        yield memoryview(exporter)
        return
    staging = memoryview(bytearray(min(_PIECE, tensor.nbytes)))
    for at in range(0, tensor.nbytes, _PIECE):
        piece = staging[: min(_PIECE, tensor.nbytes - at)]
        tensor.holder.view(len(piece), dtypes.uint8, at).ensure_allocated().copyout(piece)
        yield piece
