"""hcq demo: its pictures are right to the pixel on every device it runs on, and its check would notice if not."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from hcq.cli.app import app
from hcq.demo import photo, plan, reference

SIGMA = 2.0
HERE = os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))  # for children that run elsewhere


@pytest.fixture(scope="module")
def planes():
    return photo.read(photo.shipped())


@pytest.fixture(scope="module")
def expected(planes):
    return reference.pictures(planes, SIGMA)


def demo(*arguments, cwd):
    command = [sys.executable, "-m", "hcq.cli", "demo", *map(str, arguments)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=280, cwd=cwd, env={**os.environ, "PYTHONPATH": HERE}
    )
    return done.returncode, done.stdout, done.stderr


def read(path):
    try:
        return path.read_text().strip()
    except OSError:  # a thread that has ended
        return ""


@given(st.floats(0.5, 10))
def test_blur_weights_are_symmetric_whole_and_sum_to_256(sigma):
    weights = plan.gaussian_weights(sigma)
    assert sum(weights) == 256 and weights == weights[::-1] and min(weights) >= 0
    radius = len(weights) // 2
    exact = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    assert np.abs(weights - 256 * exact / exact.sum()).max() < 2


@pytest.mark.parametrize("sigma", [0.5, 1, 2, 5, 10])
def test_the_blur_stays_within_the_stated_tolerance_of_scipys_gaussian(planes, sigma):
    small = planes[:, :100, :150]
    rows = reference.compare(reference.pictures(small, sigma), small, reference.pictures(small, sigma), sigma)
    gaussian = rows[-1]
    assert gaussian.against == "SciPy gaussian_filter" and gaussian.wrong == 0
    assert 0.5 < gaussian.largest <= reference.gaussian_tolerance(sigma)


@pytest.mark.parametrize("name", reference.RESULTS)
def test_the_check_notices_one_wrong_value(planes, expected, name):
    damaged = {key: value.copy() for key, value in expected.items()}
    damaged[name].flat[17] ^= 1
    wrong = {row.name: row.wrong for row in reference.compare(damaged, planes, expected, SIGMA)[:-1]}
    assert wrong == {key: int(key == name) for key in reference.RESULTS}


def test_equalising_spreads_the_brightness_over_the_whole_range(planes, expected):
    bright = reference.luma(planes)
    table = np.arange(256) + expected["shift"]
    assert table[bright.min()] == 0 and table[bright.max()] == 255
    assert (np.diff(table[int(bright.min()) : int(bright.max()) + 1]) >= 0).all()


def test_a_picture_of_one_grey_is_equalised_to_itself():
    assert not reference.equalising_shift(np.bincount([7] * 100, minlength=256)).any()


def test_enlarging_lays_the_photograph_out_mirrored(planes):
    large = photo.enlarged(planes, 5_000_000)
    _, height, width = planes.shape
    assert large.shape[1] * large.shape[2] >= 5_000_000
    assert np.array_equal(large[:, :height, :width], planes)
    assert np.array_equal(large[:, :height, width : 2 * width], planes[:, :, ::-1])
    assert np.array_equal(large[:, height : 2 * height, :width], planes[:, ::-1])


def test_a_photograph_on_its_side_is_turned_as_its_camera_says(tmp_path):
    image = Image.fromarray(np.zeros((40, 60, 3), np.uint8))
    exif = image.getexif()
    exif[0x0112] = 6
    image.save(tmp_path / "turned.jpg", exif=exif)
    assert photo.read(tmp_path / "turned.jpg").shape == (3, 60, 40)


@pytest.mark.parametrize("device", ["CLANG", "LLVM"])
def test_every_pixel_is_right_and_the_picture_is_written(device, tmp_path):
    output = tmp_path / "out.png"
    code, out, err = demo("--device", device, "--megapixels", 1, "--json", "-o", output, cwd=tmp_path)
    assert code == 0, err
    report = json.loads(out)
    assert report["right"] and all(row["wrong"] == 0 for row in report["differences"][device])
    assert {row["name"] for row in report["differences"][device]} == set(reference.RESULTS)
    assert all(row["seconds"] > 0 for row in report["outcomes"][0]["timings"])
    with Image.open(output) as image:
        assert image.size[0] > 1200 and len(image.getcolors(1 << 24)) > 10_000


def test_a_photograph_of_odd_size_is_right_to_the_last_column(tmp_path, planes):
    photograph = tmp_path / "odd.png"
    Image.fromarray(np.ascontiguousarray(planes[:, :33, :593].transpose(1, 2, 0))).save(photograph)
    code, out, err = demo(photograph, "--megapixels", 0, "--sigma", 5, "--json", cwd=tmp_path)
    assert code == 0, err
    assert json.loads(out)["right"] and (tmp_path / "hcq-demo.png").exists()


def test_people_get_a_table_for_each_device(tmp_path):
    code, out, err = demo("--device", "CLANG", "--megapixels", 1, cwd=tmp_path)
    assert code == 0, err
    for word in (
        "CLANG",
        "blur",
        "GB/s",
        "of copy speed",
        "launch, queued",
        "SciPy correlate1d",
        "hcq-demo.png",
    ):
        assert word in out


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (["missing.jpg"], "missing.jpg", 2),
        (["text.png"], "no picture", 2),
        (["small.png"], "32 each way", 2),
        (["--device", "CLANK"], "'CLANG'", 2),
        (["--device", "METAL"], "not built yet", 1),
        (["--device", "NPY"], "NPY runs no portable kernels", 2),
        (["-o", "nowhere/out.png"], "nowhere", 2),
        (["--sigma", "99"], "sigma", 2),
    ],
)
def test_mistakes_are_said_in_a_line_with_an_exit_code(arguments, said, code, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.png").write_text("this is no picture")
    Image.new("RGB", (8, 8)).save(tmp_path / "small.png")
    with pytest.raises(SystemExit) as left:
        app(["demo", *arguments], prog_name="hcq")
    printed = capsys.readouterr()
    assert left.value.code == code and said in printed.err and not printed.out


def test_without_the_extra_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr("hcq.cli.demo.NEEDED", {"no_such_module": "scipy"})
    with pytest.raises(SystemExit) as left:
        app(["demo"], prog_name="hcq")
    assert left.value.code == 2 and "needs scipy: pip install 'hcq[demo]'" in capsys.readouterr().err


def test_control_c_ends_it_in_words(tmp_path):
    command = [sys.executable, "-m", "hcq.cli", "demo", "--megapixels", "12"]
    running = subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": HERE},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    # Until the device works. Not while modules are imported: there Python itself may lose a KeyboardInterrupt.
    threads, deadline = Path(f"/proc/{running.pid}/task"), time.monotonic() + 120
    while time.monotonic() < deadline and not any(read(thread / "comm") == "hcq" for thread in threads.iterdir()):
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    try:
        _, err = running.communicate(timeout=120)
    finally:
        running.kill()
    assert running.returncode == 130 and err == "hcq: interrupted\n"
