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
from typing import NamedTuple, Optional

from ..errors import ScoringError

__all__ = [
    "CLOSURE_BYTES",
    "ShippedModel",
    "folder_bytes",
    "pack",
    "ship_in_closure",
    "shipped",
    "temporary_folder",
    "unpack",
]

#: Models up to this size travel with the tasks, in bytes. Larger ones are files of the engine.
CLOSURE_BYTES = 64 << 20


class ShippedModel(NamedTuple):
    """A model in an archive, which travels with the tasks or as a file of the engine."""

    #: A hash of the archive, which names its folder on a node.
    digest: str
    #: The name of the model's file or folder.
    name: str
    #: The archive, `None` if it is a file of the engine.
    archive: Optional[bytes]
    #: The name of the file of the engine.
    file_name: str


def folder_bytes(path: str) -> int:
    """Returns the size of a file, or of all files of a folder. Raises `OSError` if it does not exist."""
    if not os.path.isdir(path):
        return os.path.getsize(path)
    folders = os.walk(path)
    return sum(os.path.getsize(os.path.join(folder, name)) for folder, _, names in folders for name in names)


def pack(path: str) -> bytes:
    """Returns an archive of a model's file or folder. The same files make the same archive."""

    def anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.uid = info.gid = info.mtime = 0
        info.uname = info.gname = ""
        return info

    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT, dereference=True) as archive:
        archive.add(path, os.path.basename(path), filter=anonymous)
    return buffer.getvalue()


def shipped(path: str, archive: bytes, in_closure: bool) -> ShippedModel:
    """Describes an archive of a model."""
    digest = hashlib.sha256(archive).hexdigest()[:32]
    return ShippedModel(digest, os.path.basename(path), archive if in_closure else None, f"mlserver-{digest}.tar")


def ship_in_closure(location: str) -> Optional[ShippedModel]:
    """Returns a local model as a value, `None` for a URI. Raises `ScoringError` if it does not exist or is too large."""
    if not os.path.isabs(location):
        return None
    try:
        size = folder_bytes(location)
    except OSError as error:
        raise ScoringError(f"cannot read the model `{location}`: {error}") from None
    if size > CLOSURE_BYTES:
        raise ScoringError(
            f"the model `{location}` has {size >> 20} MiB, but {CLOSURE_BYTES >> 20} MiB travel at most: put it into an"
            " object store, or on a disk that all nodes share and name it as `file:///...`"
        )
    return shipped(location, pack(location), in_closure=True)


def unpack(model: ShippedModel, archive: bytes, root: str) -> str:
    """Returns the path of a model below a folder of this node, where its archive is unpacked once.

    Processes that unpack it at the same time do not disturb each other.
    """
    folder = os.path.join(root, f"mlserver-{model.digest}")
    path = os.path.join(folder, model.name)
    if os.path.exists(path):
        return path
    partial = tempfile.mkdtemp(prefix=".mlserver-", dir=root)
    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
            if hasattr(tarfile, "data_filter"):
                opened.extractall(partial, filter="data")
            else:
                opened.extractall(partial)
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
