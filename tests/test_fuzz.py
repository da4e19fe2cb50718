"""Damaged inputs for every decoder, a few thousand each; `make fuzz` feeds a million under limits."""

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from skyfed.types import Update
from skyfed.wire import Expected, decode, encode
from wire_cases import expected, model, mutate, upload, uploads

FLOWER = {"replies", "objects", "orders", "handshakes"}  # decoders of messages that Flower carries
FUZZ = Path(mutate.__file__)


def fed(key: str, inputs: int, place: Path) -> mutate.Tally:
    if key in FLOWER:
        pytest.importorskip("flwr")
    return mutate.feed(key, range(inputs), 0, place)


@pytest.mark.parametrize(
    ("key", "inputs", "accepted", "reasons"),
    [
        ("uploads", 20_000, 3000, 30), ("vectors", 5000, 500, 30), ("downlinks", 5000, 1000, 20),
        ("changes", 2000, 300, 20),
        ("replies", 5000, 800, 5), ("objects", 3000, 200, 4), ("orders", 2000, 300, 15), ("handshakes", 2000, 200, 12),
    ],
)  # fmt: skip
def test_damaged_inputs_are_refused_or_mean_what_they_say_and_nothing_else(key, inputs, accepted, reasons, tmp_path):
    tally = fed(key, inputs, tmp_path)
    assert tally.inputs == inputs
    assert tally.accepted > accepted
    assert inputs - tally.accepted > accepted
    assert len(tally.reasons) > reasons  # the damage reaches most checks


def test_every_decoder_is_tried():
    assert sum(row.share for row in mutate.DECODERS.values()) == 1000
    assert sum(mutate.shares(1234, list(mutate.DECODERS)).values()) == 1234


def test_an_input_follows_from_its_number_alone():
    decoder, other = mutate.decoder_of("uploads"), mutate.decoder_of("uploads")
    numbers = [k + len(decoder.valid) for k in range(50)]
    made = [mutate.input_of(decoder, "uploads", 5, k)[0] for k in numbers]
    assert [mutate.input_of(other, "uploads", 5, k)[0] for k in reversed(numbers)] == made[::-1]
    assert [mutate.input_of(decoder, "uploads", 6, k)[0] for k in numbers] != made


def test_the_fuzzer_notices_broken_promises(tmp_path, monkeypatch, capsys):
    reference = model(20)
    data = encode(upload(reference, "qsgd"), reference)
    assert uploads.check(data, expected(reference)) is None
    assert uploads.check(data[:-8] + bytes(8), expected(reference)) == "checksum differs"

    def broken(data: bytes, awaited: Expected) -> Update:
        raise IndexError("out of range")

    monkeypatch.setattr(uploads, "decode", broken)
    words = ["--inputs", "5", "--seed", "1", "--out", str(tmp_path), "--only", "uploads", "--processes", "0"]
    assert mutate.main(words) == 1
    assert "a foreign exception: IndexError" in capsys.readouterr().err
    (written,) = tmp_path.iterdir()
    assert written.read_bytes() == uploads.corpus()[0].data
    monkeypatch.setattr(
        uploads, "decode", lambda data, awaited: decode(encode(upload(reference, "raw"), reference), awaited)
    )
    with pytest.raises(uploads.Violation, match="other bytes"):
        uploads.check(data, expected(reference))


def test_a_run_under_limits_ends_with_a_table(tmp_path):
    keys = [key for key in mutate.DECODERS if key not in FLOWER or importlib.util.find_spec("flwr")]
    words = ["--inputs", "300", "--out", str(tmp_path), "--processes", "2", "--cpu", "1000", "--only", *keys]
    done = subprocess.run([sys.executable, FUZZ, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "300 inputs" in done.stderr
    rows = [line for line in done.stdout.splitlines() if line.startswith("| ")]
    assert [row.split(" | ")[0][2:] for row in rows[1:-1]] == [mutate.DECODERS[key].title for key in keys]
    assert rows[-1].startswith("| all | 300 |")
    assert "0 foreign exceptions, 0 wrong accepts" in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize(
    ("act", "words"),
    [
        ("bytearray(70_000_000)", "bytes of memory"),
        ("np.empty(2**30, np.uint8)", "MemoryError"),
        ("os.kill(os.getpid(), signal.SIGKILL)", f"exit code -{signal.SIGKILL.value}"),
        ("time.sleep(0)", ""),
    ],
)
def test_what_an_input_costs_has_limits(act, words, tmp_path):
    """Those of memory alone: CPU seconds depend on the machine."""
    code = f"""
import os, signal, sys, time
import numpy as np
sys.path.insert(0, {str(FUZZ.parent)!r})
import mutate, uploads
real = uploads.check
def check(data, expected):
    if data == uploads.corpus()[3].data and os.environ.get("ACT") == "1":
        {act}
    return real(data, expected)
uploads.check = check
if __name__ == "__main__":
    sys.exit(mutate.main(["--inputs", "20", "--only", "uploads", "--out", {str(tmp_path)!r}, "--processes", "1",
                          "--cpu", "1000"]))
"""
    script = tmp_path / "limits.py"
    script.write_text(code)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env={**os.environ, "ACT": "1"})
    assert done.returncode == bool(words), done.stderr
    assert words in done.stderr
    assert (tmp_path / "violation-uploads-0-3.bin").exists() == bool(words)
