"""Where the executable `mlserver` is."""

import importlib.util
import os
import shutil
import stat
import sys
import sysconfig

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
        path = os.path.join(os.path.dirname(shipped.origin), "mlserver")
        # Some versions of Ray unpack files without their permissions.
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
        return path
    folders = [os.path.dirname(sys.executable), sysconfig.get_path("scripts")]
    found = shutil.which("mlserver", path=os.pathsep.join(folders)) or shutil.which("mlserver")
    if found is None:
        raise MLServerError(
            f"cannot find the executable `mlserver`: looked in {', '.join(dict.fromkeys(folders))} and in PATH;"
            " install the wheel `mlserver`, or set `MLSERVER_BIN` to the path of the executable",
            500,
        )
    return os.path.abspath(found)
