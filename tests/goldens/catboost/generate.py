"""Writes the golden cases of CatBoost with the library itself.

    python3.9 tests/goldens/catboost/generate.py [--envs FOLDER] [--only 1.2.10 ...]
    python3.9 tests/goldens/catboost/generate.py --random 1000 [--start 0] [--numbers]

Makes one virtual environment for each pinned version (outside the repository), then runs itself inside each. Every archive
`<version>.tar.gz` is replaced. `--random` writes `random-<start>.tar.gz` instead: random models of the newest version,
which git ignores, and which the tests read if they are there. Version 0.26.1 has no wheels for Python 3.10 and later.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import environments  # noqa: E402
from archive import pack  # noqa: E402

ENVIRONMENTS = {
    "0.26.1": ["numpy==1.23.5", "pandas==1.5.3"],
    "1.0.6": ["numpy==1.23.5", "pandas==1.5.3"],
    "1.2.10": ["numpy==1.26.4", "pandas==2.2.3"],
}
NEWEST = "1.2.10"


def environment(envs, version):
    """Returns the Python of the version's environment, and creates the environment if it is missing."""
    pins = [f"catboost=={version}", *ENVIRONMENTS[version]]
    return environments.environment(envs / f"catboost-{version}", pins, has_dependencies=True)


def inside(args):
    """Writes the cases of a version; runs in its environment."""
    import catboost
    import models

    if catboost.__version__ != args.inside:
        sys.exit(f"{args.inside}: the environment has CatBoost {catboost.__version__}")
    if args.random:
        count = models.write_random(args.out, args.inside, args.start, args.random, not args.numbers)
    else:
        count = models.write_all(args.out, args.inside)
    print(f"{args.inside}: {count} cases", flush=True)


def main():
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--envs", type=Path, default=environments.FOLDER, help="where the environments live")
    parser.add_argument("--out", type=Path, default=HERE, help="where the archives are written")
    parser.add_argument("--only", nargs="+", choices=sorted(ENVIRONMENTS), metavar="VERSION", help="versions to write")
    parser.add_argument("--random", type=int, default=0, metavar="COUNT", help="write so many random models instead")
    parser.add_argument("--start", type=int, default=0, help="the number of the first random model")
    parser.add_argument("--numbers", action="store_true", help="random models have no categories")
    parser.add_argument("--inside", choices=sorted(ENVIRONMENTS), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        inside(args)
        return
    versions = args.only or ([NEWEST] if args.random else ENVIRONMENTS)
    for version in versions:
        python = environment(args.envs.resolve(), version)
        archive = args.out / (f"random-{args.start}.tar.gz" if args.random else f"{version}.tar.gz")
        with tempfile.TemporaryDirectory() as scratch:
            command = [str(python), str(HERE / "generate.py"), "--inside", version, "--out", scratch]
            command += ["--random", str(args.random), "--start", str(args.start)]
            command += ["--numbers"] * args.numbers
            clean = dict(os.environ, PYTHONDONTWRITEBYTECODE="1", PYTHONWARNINGS="ignore")
            subprocess.run(command, check=True, env=clean)
            print(f"{archive.name}: {pack(Path(scratch), archive) // 1024} KiB", flush=True)


if __name__ == "__main__":
    main()
