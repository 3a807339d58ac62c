"""Makes the virtual environments that golden cases are written in, outside the repository."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

#: Where the environments live, unless `--envs` moves them.
FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mlserver-goldens"


def environment(folder, pins, interpreter=lambda: sys.executable, has_dependencies=False):
    """Returns the Python of an environment with these packages, which is made if it is missing, with the Python of `interpreter()`.

    Without `has_dependencies`, only the packages themselves are installed: XGBoost would bring in GPU libraries, and old wheels
    require versions that no longer exist.
    """
    python = folder / "bin" / "python"
    made = folder / "complete"
    if not made.exists():
        print(f"{folder.name}: making its environment", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([interpreter(), "-m", "venv", str(folder)], check=True)
        alone = [] if has_dependencies else ["--no-deps"]
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *alone, *pins], check=True)
        made.touch()
    return python
