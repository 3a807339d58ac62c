"""Models of the driver's disk on the nodes of a cluster."""

import atexit
import contextlib
import hashlib
import importlib.util
import io
import os
import re
import shutil
import stat
import subprocess
import tarfile
import tempfile
import zipfile
from functools import lru_cache
from typing import BinaryIO, NamedTuple, Optional, Tuple

from .._executable import SHIPPED_MODULE, find_executable
from ..errors import ScoringError
from ..version import __version__

__all__ = [
    "CLOSURE_BYTES",
    "ShippedModel",
    "as_file",
    "as_local_value",
    "as_value",
    "make_executable",
    "model_bytes",
    "named_executable",
    "package_archive",
    "shipped_model",
    "snapshot",
    "temporary_folder",
    "unpack",
    "write_executable",
]

#: Models up to this size travel with the tasks, in bytes. Larger ones are files of the engine.
CLOSURE_BYTES = 64 << 20


#: Stores that `mlserver pull` reads. MLflow's names stay with the nodes, because MLflow itself may have to resolve them.
_STORE = re.compile(r"(s3|s3a|gs|gcs|az|azure|abfs|abfss|hf|https?)://")


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


def as_local_value(location: str) -> Optional[ShippedModel]:
    """Returns a local model as a value, `None` for a URI. Raises `ScoringError` if it does not exist."""
    if not os.path.isabs(location):
        return None
    try:
        return as_value(location)
    except OSError as error:
        raise ScoringError(f"cannot read the model `{location}`: {error}") from None


def snapshot(location: "str | os.PathLike[str]", executable: Optional["str | os.PathLike[str]"]) -> str:
    """Returns the path of a copy of a model in a store, so that all tasks use the same one. Other locations stay as they are.

    Raises `ScoringError` if the store cannot be read.
    """
    location = os.fspath(location)
    if not _STORE.match(location):
        return location
    folder = tempfile.mkdtemp(prefix="model-", dir=temporary_folder())
    command = [os.fspath(executable or find_executable()), "pull", "--quiet", location, folder]
    run = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if run.returncode:
        raise ScoringError(run.stderr.decode("utf-8", "replace").strip() or f"cannot fetch the model `{location}`")
    files = [os.path.join(folder, name) for name in os.listdir(folder) if not name.startswith(".")]
    # A file alone is a model without settings.
    return files[0] if len(files) == 1 and os.path.isfile(files[0]) else folder


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


def package_archive(folder: str) -> str:
    """Writes this package to an archive in a folder, unless it is there, and returns the archive's path."""
    archive = os.path.join(folder, f"mlserver-{__version__}.zip")
    if os.path.exists(archive):
        return archive
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if os.path.isfile(os.path.dirname(root)):
        return os.path.dirname(root)  # it has been imported from an archive
    partial = f"{archive}.{os.getpid()}.partial"
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as file:
        for parent, folders, names in os.walk(root):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            for name in sorted(names):
                path = os.path.join(parent, name)
                file.write(path, os.path.relpath(path, os.path.dirname(root)))
    os.rename(partial, archive)
    return archive


def named_executable(executable: str, folder: str) -> str:
    """Returns the path of an executable under a name that no other version has, in a folder of this process."""
    digest = hashlib.sha256()
    with open(executable, "rb") as file:
        for part in iter(lambda: file.read(1 << 20), b""):
            digest.update(part)
    path = os.path.join(folder, f"mlserver-{digest.hexdigest()[:16]}")
    with contextlib.suppress(FileExistsError):
        os.symlink(executable, path)
    return path


def write_executable(name: str, content: bytes, root: str) -> str:
    """Writes an executable to a folder of this node, unless it is there, and returns its path."""
    path = os.path.join(root, name)
    if not os.path.exists(path):
        handle, partial = tempfile.mkstemp(prefix=".mlserver-", dir=root)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(partial, 0o700)
        os.rename(partial, path)
    return path


def shipped_model(name: str) -> str:
    """Returns the path of a local model that `mlserver infer --engine ray` has sent with the job."""
    found = importlib.util.find_spec(SHIPPED_MODULE)
    if found is None or not found.origin:
        raise ScoringError(f"the model `{name}` has not come with the job: name it by a URI")
    return os.path.join(os.path.dirname(found.origin), "model", name)


def make_executable(path: str) -> None:
    """Lets this user run a file that an engine has brought, unless that is allowed already."""
    if not os.access(path, os.X_OK):
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)


@lru_cache(maxsize=None)
def temporary_folder() -> str:
    """Returns a folder that only this user can write to, and which is removed when this process exits.

    A forked process gets another one.
    """
    folder = tempfile.mkdtemp(prefix="mlserver-")
    atexit.register(_remove_folder, folder, os.getpid())
    return folder


def _remove_folder(folder: str, owner: int) -> None:
    """Removes a temporary folder of the process `owner`. A forked process runs the exit handlers of its parent, too."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=temporary_folder.cache_clear)
