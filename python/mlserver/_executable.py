"""Where the executable `mlserver` is."""

import os
import shutil
import sys
import sysconfig

from .errors import MLServerError

__all__ = ["find_executable"]


def find_executable() -> str:
    """Returns the path of the executable `mlserver`: `MLSERVER_BIN`, else the script of the wheel, else the one in `PATH`.

    Raises `MLServerError` if there is none.
    """
    chosen = os.environ.get("MLSERVER_BIN")
    if chosen:
        if not os.path.isfile(chosen):
            raise MLServerError(f"`MLSERVER_BIN` names `{chosen}`, which does not exist", 500)
        return os.path.abspath(chosen)
    folders = [os.path.dirname(sys.executable), sysconfig.get_path("scripts")]
    found = shutil.which("mlserver", path=os.pathsep.join(folders)) or shutil.which("mlserver")
    if found is None:
        raise MLServerError(
            f"cannot find the executable `mlserver`: looked in {', '.join(dict.fromkeys(folders))} and in PATH;"
            " install the wheel `mlserver`, or set `MLSERVER_BIN` to the path of the executable",
            500,
        )
    return os.path.abspath(found)
