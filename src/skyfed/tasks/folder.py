"""A user's own pictures: a directory of class folders, any picture size, resized once into the cache."""

import hashlib
from pathlib import Path
from stat import S_ISREG

import numpy as np

from skyfed.errors import BadInputError
from skyfed.tasks.cache import Bytes, Pictures, Progress, load_pictures, save_pictures

KINDS = {".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".ppm"}
_MOST_PIXELS = 100_000_000  # of one picture
_TEST_SHARE = 6  # one in six is kept for testing where there is no test folder

Files = list[tuple[Path, int]]


def load_folder(root: Path, side: int, cache: Path, progress: Progress) -> Pictures:
    """Return the pictures below `root`, resized to side × side; read from the cache when nothing changed.

    Either class folders, of which a sixth is kept for testing by a hash of the file's name, or `train/` and `test/`
    with the same class folders in each.
    """
    train, test, names = _listing(root)
    key = hashlib.sha256(str(side).encode())
    for path, label in [*train, *test]:
        try:
            state = path.stat()
        except OSError as error:
            raise BadInputError(f"{path}: {error.strerror or error}") from None
        if not S_ISREG(state.st_mode):
            raise BadInputError(f"{path}: not a file")  # a pipe would never end
        key.update(_bytes(f"{path.relative_to(root)}|{label}|{state.st_size}|{state.st_mtime_ns}\n"))
    target = cache / f"folder-{key.hexdigest()[:24]}.safetensors"
    if target.exists():
        return load_pictures(target)
    total = len(train) + len(test)
    parts = (*_read(train, side, progress, 0, total), *_read(test, side, progress, len(train), total))
    pictures = Pictures(*parts, names)
    save_pictures(target, pictures)
    return pictures


def _listing(root: Path) -> tuple[Files, Files, tuple[str, ...]]:
    where = f'data.name = "folder:{root}"'
    if not root.is_dir():
        raise BadInputError(f"{where}: no such directory")
    split = (root / "train").is_dir() and (root / "test").is_dir()
    tops = [root / "train", root / "test"] if split else [root]
    names = tuple(
        sorted({entry.name for top in tops for entry in top.iterdir() if entry.is_dir() and entry.name[0] != "."})
    )
    odd = [name for name in names if not name.isprintable()]
    if odd:
        raise BadInputError(f"{where}: a class folder is named {odd[0]!r}; allowed: printable names")
    if not 1 <= len(names) <= 255:
        raise BadInputError(
            f"{where}: {len(names)} class folders; allowed: 1 to 255, or train/ and test/ with class folders"
        )
    if split:
        train, test = (_files(top, names) for top in tops)
    else:
        every = [(entry, _is_test(entry[0].relative_to(root))) for entry in _files(root, names)]
        train, test = ([entry for entry, kept in every if kept == tested] for tested in (False, True))
    for part, files in (("training", train), ("test", test)):
        absent = sorted(set(range(len(names))) - {label for _, label in files})
        if absent:
            raise BadInputError(
                f"{where}: class {names[absent[0]]!r} has no {part} picture ({', '.join(sorted(KINDS))})"
            )
    return train, test, names


def read_class_folders(root: Path, names: tuple[str, ...], side: int) -> tuple[Bytes, Bytes]:
    """Read pictures from folders named as the classes, for testing; classes without a folder have none."""
    if not root.is_dir():
        raise BadInputError(f"{root}: no such directory")
    files = _files(root, names)
    if not files:
        raise BadInputError(f"{root}: no pictures in class folders; allowed names: {', '.join(names)}")
    return _read(files, side, lambda *_: None, 0, len(files))


def _files(top: Path, names: tuple[str, ...]) -> Files:
    return [
        (path, label)
        for label, name in enumerate(names)
        for path in (sorted((top / name).rglob("*")) if (top / name).is_dir() else [])
        if path.suffix.lower() in KINDS
    ]


def _is_test(path: Path) -> bool:
    return int.from_bytes(hashlib.sha256(_bytes(path.as_posix())).digest()[:8], "little") % _TEST_SHARE == 0


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")  # names of files need not be Unicode


def _read(files: Files, side: int, progress: Progress, done: int, total: int) -> tuple[Bytes, Bytes]:
    from PIL import Image, UnidentifiedImageError

    images = np.empty((len(files), 3, side, side), np.uint8)
    for k, (path, _) in enumerate(files):
        try:
            with Image.open(path) as picture:
                if picture.width * picture.height > _MOST_PIXELS:
                    raise BadInputError(
                        f"{path}: {picture.width} x {picture.height} pixels; allowed: {_MOST_PIXELS} in all"
                    )
                whole: Image.Image = picture
                if picture.mode.startswith("I"):  # 16 bits a pixel: RGB would clip all but the darkest
                    whole = Image.fromarray((np.asarray(picture).clip(0, 65535) >> 8).astype(np.uint8))
                small = whole.convert("RGB").resize((side, side), Image.Resampling.BILINEAR, reducing_gap=3.0)
        except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            raise BadInputError(f"{path}: not a readable picture ({error})") from None
        images[k] = np.asarray(small).transpose(2, 0, 1)
        progress("pictures", done + k + 1, total)
    return images, np.array([label for _, label in files], np.uint8)
