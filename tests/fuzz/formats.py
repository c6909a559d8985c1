"""Coverage-guided fuzzing of the headers of files of tensors, by atheris: `python tests/fuzz/formats.py [SECONDS]`.

Whatever the bytes are, hcq.formats.open gives an archive whose tensors lie within the file, or raises FormatError. What
was found ends the run with the bytes in a file crash-*, in the current folder.
"""

import math
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["hcq.formats"]):
    from hcq import formats
    from hcq.formats import archive, blocks, entry, gguf, index, npy, safetensors, selection, source  # noqa: F401

from hcq.errors import FormatError

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "formats"), str(HERE.parent)]
from test_formats_fuzz import good_files  # noqa: E402

FOLDER = Path(tempfile.mkdtemp(prefix="hcq-fuzz-"))
FILE = FOLDER / "file"


def one(data):
    FILE.write_bytes(data)
    try:
        found = formats.open(FILE)
    except (FormatError, FileNotFoundError, IsADirectoryError):  # an index may name any file
        return
    for each in found.values():
        if type(each) is formats.Entry:  # the others are not stored as they are
            assert 0 <= each.offset <= each.end <= each.source.size, each
            assert math.prod(each.buffer_shape) * each.dtype.itemsize == each.nbytes, each


def main():
    seconds = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    seeds = FOLDER / "seeds"
    seeds.mkdir()
    (FOLDER / "good").mkdir()
    for number, data in enumerate(good_files(FOLDER / "good")):
        (seeds / str(number)).write_bytes(data)
    atheris.Setup([sys.argv[0], f"-max_total_time={seconds}", "-max_len=4096", "-verbosity=0", str(seeds)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
