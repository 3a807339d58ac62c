"""Models of the driver's disk on the nodes of a cluster."""

import atexit
import contextlib
import hashlib
import io
import os
import shutil
import tarfile
import tempfile
from functools import lru_cache
from typing import BinaryIO, NamedTuple, Optional, Tuple

from ..errors import ScoringError

__all__ = [
    "CLOSURE_BYTES",
    "ShippedModel",
    "as_file",
    "as_value",
    "model_bytes",
    "ship_in_closure",
    "temporary_folder",
    "unpack",
]

#: Models up to this size travel with the tasks, in bytes. Larger ones are files of the engine.
CLOSURE_BYTES = 64 << 20


class ShippedModel(NamedTuple):
    """A model in an archive, which travels with the tasks or as a file of the engine."""

    #: A hash of the archive, which names its folder on a node.
    digest: str
    #: The path of the model's file or folder in the archive.
    name: str
    #: The archive, `None` if it is a file of the engine.
    archive: Optional[bytes]
    #: The name of the file of the engine.
    file_name: str


def model_bytes(location: str) -> int:
    """Returns the size of the files of a model. Raises `OSError` if it does not exist."""
    root = _root(location)
    if not os.path.isdir(root):
        return os.path.getsize(root)
    return sum(os.path.getsize(os.path.join(folder, name)) for folder, _, names in os.walk(root) for name in names)


def write_archive(location: str, file: BinaryIO) -> str:
    """Writes all that belongs to a model, and returns a hash of its files. The same files have the same hash."""

    def anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        info.mtime = 0
        return info

    root = _root(location)
    hashed = _HashedFile(file)
    with tarfile.open(fileobj=hashed, mode="w|", format=tarfile.PAX_FORMAT, dereference=True) as archive:  # type: ignore[call-overload]
        archive.add(root, os.path.basename(root), filter=anonymous)
    return hashed.digest.hexdigest()[:32]


class _HashedFile:
    """A file that is only written to."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        return self._file.write(data)


def _root(location: str) -> str:
    """Returns the file or folder that a model consists of: MLflow's file names others in its folder."""
    return os.path.dirname(location) if os.path.basename(location) == "MLmodel" else location


def _name(location: str) -> str:
    """Returns the place of a model below the folder that its archive is unpacked to."""
    root = _root(location)
    base = os.path.basename(root)
    return base if root == location else os.path.join(base, os.path.basename(location))


def as_value(location: str) -> ShippedModel:
    """Returns a model as a value that travels with tasks. Raises `OSError` if it does not exist."""
    buffer = io.BytesIO()
    digest = write_archive(location, buffer)
    return ShippedModel(digest, _name(location), buffer.getvalue(), "")


def as_file(location: str, folder: str) -> Tuple[ShippedModel, str]:
    """Writes a model to a file of a folder. Returns what travels with tasks, and the path of the file."""
    partial = os.path.join(folder, "partial.tar")
    with open(partial, "wb") as file:
        digest = write_archive(location, file)
    model = ShippedModel(digest, _name(location), None, f"mlserver-{digest}.tar")
    path = os.path.join(folder, model.file_name)
    os.rename(partial, path)
    return model, path


def ship_in_closure(location: str) -> Optional[ShippedModel]:
    """Returns a local model as a value, `None` for a URI. Raises `ScoringError` if it does not exist or is too large."""
    if not os.path.isabs(location):
        return None
    try:
        size = model_bytes(location)
    except OSError as error:
        raise ScoringError(f"cannot read the model `{location}`: {error}") from None
    if size > CLOSURE_BYTES:
        raise ScoringError(
            f"the model `{location}` has {size >> 20} MiB, but {CLOSURE_BYTES >> 20} MiB travel at most: put it into an"
            " object store, or on a disk that all nodes share and name it as `file:///...`"
        )
    return as_value(location)


def unpack(model: ShippedModel, root: str, file: Optional[str] = None) -> str:
    """Returns the path of a model below a folder of this node, where its archive is unpacked once.

    `file` is the path of the archive if it is not part of the value. Processes that unpack it at the same time do not disturb
    each other.
    """
    folder = os.path.join(root, f"mlserver-{model.digest}")
    path = os.path.join(folder, model.name)
    if os.path.exists(path):
        return path
    partial = tempfile.mkdtemp(prefix=".mlserver-", dir=root)
    try:
        with tarfile.open(file, fileobj=None if model.archive is None else io.BytesIO(model.archive)) as archive:
            if hasattr(tarfile, "data_filter"):
                archive.extractall(partial, filter="data")
            else:
                archive.extractall(partial)
        with contextlib.suppress(OSError):  # another process was faster
            os.rename(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return path


@lru_cache(maxsize=None)
def temporary_folder() -> str:
    """Returns a folder that only this user can write to, and which is removed when this process exits."""
    folder = tempfile.mkdtemp(prefix="mlserver-")
    atexit.register(shutil.rmtree, folder, True)
    return folder
