"""Pictures on disk: one safetensors file per data set, written whole, its content hash checked when it is read."""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

from skyfed.errors import BadInputError, StorageError
from skyfed.files import drop_dead_parts, from_home, replacing, storage_errors
from skyfed.tasks.task import Samples, Task

Bytes = NDArray[np.uint8]
Progress = Callable[[str, int, int], None]  # what, how much so far, how much in all (0: not known)
_PARTS = ("train_images", "train_labels", "test_images", "test_labels")


@dataclass(frozen=True)
class Pictures:
    """A data set: images (N, 3, side, side) bytes, labels (N,) bytes, and the names of the classes."""

    train_images: Bytes
    train_labels: Bytes
    test_images: Bytes
    test_labels: Bytes
    names: tuple[str, ...]

    @property
    def classes(self) -> int:
        """C."""
        return len(self.names)

    def task(self) -> Task:
        """Return these pictures as a task: one label per picture, which is also the place where it occurs."""
        train = Samples(self.train_images, self.train_labels, self.train_labels)
        test = Samples(self.test_images, self.test_labels, self.test_labels)
        return Task(train, test, self.names, self.classes, digest=self.content_hash)

    def content_hash(self) -> str:
        """SHA-256 of all images and labels."""
        digest = hashlib.sha256("\n".join(self.names).encode("utf-8", "surrogateescape"))
        for part in _PARTS:
            array = np.ascontiguousarray(getattr(self, part))
            digest.update(f"{part}{array.shape}".encode())
            digest.update(array.data)
        return digest.hexdigest()


def data_folder(configured: str | None = None) -> Path:
    """Where data lies: `data.dir`, else SKYFED_DATA, else the user's cache folder."""
    chosen = configured or os.environ.get("SKYFED_DATA")
    if chosen:
        return from_home(chosen)
    return from_home(os.environ.get("XDG_CACHE_HOME", "~/.cache"), "data.dir, SKYFED_DATA") / "skyfed"


def save_pictures(path: Path, pictures: Pictures) -> None:
    """Write the cache file so that it is there whole or not at all."""
    metadata = {"sha256": pictures.content_hash(), "names": "\n".join(pictures.names)}
    with storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    drop_dead_parts(path.parent)
    try:
        with replacing(path) as part:
            save_file({name: getattr(pictures, name) for name in _PARTS}, part, metadata)
    except SafetensorError as error:  # how the library words a full disk
        raise StorageError(f"{path}: {error}") from None


def load_pictures(path: Path) -> Pictures:
    """Read a cache file; its content must have the hash it was written with."""
    again = "remove it and fetch it again"
    try:
        with safe_open(path, "numpy") as file:
            metadata = file.metadata() or {}
        arrays = load_file(path)
        pictures = Pictures(**{part: arrays[part] for part in _PARTS}, names=tuple(metadata["names"].split("\n")))
    except (SafetensorError, KeyError, OSError) as error:
        raise BadInputError(f"{path}: not a data cache ({error}); {again}") from None
    for part in ("train", "test"):
        images, labels = arrays[f"{part}_images"], arrays[f"{part}_labels"]
        if images.dtype != np.uint8 or labels.dtype != np.uint8 or images.ndim != 4 or len(images) != len(labels):
            raise BadInputError(f"{path}: {part} pictures and labels do not fit together; {again}")
        if images.shape[1] != 3 or (len(labels) and int(labels.max()) >= pictures.classes):
            raise BadInputError(f"{path}: {part} pictures or labels are out of range; {again}")
    if pictures.content_hash() != metadata.get("sha256"):
        raise BadInputError(f"{path}: damaged (its content hash differs); {again}")
    return pictures
