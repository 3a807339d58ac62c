"""Where the executable `mlserver` is."""

import gzip
import importlib.util
import os
import shutil
import sys
import sysconfig
import tempfile

from .errors import MLServerError

__all__ = ["SHIPPED_MODULE", "find_executable"]

#: The module with which `mlserver infer --engine ray` sends the executable to the nodes.
SHIPPED_MODULE = "mlserver_shipped"


def find_executable() -> str:
    """Returns the path of the executable `mlserver`.

    It is `MLSERVER_BIN`, else the one that has come with a job, else the script of the wheel, else the one in `PATH`.

    Raises `MLServerError` if there is none.
    """
    chosen = os.environ.get("MLSERVER_BIN")
    if chosen:
        if not os.path.isfile(chosen):
            raise MLServerError(f"`MLSERVER_BIN` names `{chosen}`, which does not exist", 500)
        return os.path.abspath(chosen)
    shipped = importlib.util.find_spec(SHIPPED_MODULE)
    if shipped is not None and shipped.origin:
        return _unpacked(os.path.dirname(shipped.origin))
    folders = [os.path.dirname(sys.executable), sysconfig.get_path("scripts")]
    found = shutil.which("mlserver", path=os.pathsep.join(folders)) or shutil.which("mlserver")
    if found is None:
        raise MLServerError(
            f"cannot find the executable `mlserver`: looked in {', '.join(dict.fromkeys(folders))} and in PATH;"
            " install the wheel `mlserver`, or set `MLSERVER_BIN` to the path of the executable",
            500,
        )
    return os.path.abspath(found)


def _unpacked(folder: str) -> str:
    """Returns the path of an executable that has come with a job, which is unpacked once on each node."""
    path = os.path.join(folder, "mlserver")
    if not os.path.exists(path):
        handle, partial = tempfile.mkstemp(prefix=".mlserver-", dir=folder)
        with gzip.open(f"{path}.gz") as source, os.fdopen(handle, "wb") as target:
            shutil.copyfileobj(source, target)
        os.chmod(partial, 0o700)
        os.rename(partial, path)
    return path
