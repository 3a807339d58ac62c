"""The Python that runs the models, as errors describe it."""

import os
import sys
import sysconfig

__all__ = ["how_to_install", "interpreter"]


def interpreter() -> str:
    """Returns the path and the version of this Python."""
    return f"{sys.executable} (Python {sys.version.split()[0]})"


def how_to_install(package: str) -> str:
    """Returns the command that installs a package in this Python, or the steps to a virtual environment if pip refuses.

    Linux distributions mark the Python that they manage with a file (PEP 668), and pip refuses to install into it.
    """
    in_environment = sys.prefix != sys.base_prefix
    if in_environment or not os.path.isfile(os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")):
        return f"install it there: {sys.executable} -m pip install {package}"
    return (
        "pip cannot install into this Python, because the system manages it; create a virtual environment "
        "(python3 -m venv .venv), activate it (. .venv/bin/activate), "
        f"install the package there (python -m pip install {package}), and start the server again"
    )
