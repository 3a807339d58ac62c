"""Writes the golden cases of tree ensembles with the libraries themselves.

    python3.11 tests/goldens/trees/generate.py [--envs FOLDER] [--only xgboost-3.2.0 ...]
    python3.11 tests/goldens/trees/generate.py --only xgboost-3.2.0 --random 1000 [--start 0]

Makes one virtual environment for each pinned library version (outside the repository), then runs itself inside each.
Every archive `<library>-<version>.tar.gz` is replaced. `--random` writes `random-<library>-<version>-<start>.tar.gz` instead,
which git ignores and the test of golden cases reads: delete it afterwards.
"""

import argparse
import importlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import environments  # noqa: E402
from archive import pack  # noqa: E402

OLD = ["numpy==1.23.5", "scipy==1.10.1", "scikit-learn==1.2.2", "joblib==1.2.0", "threadpoolctl==3.5.0"]
MIDDLE = ["numpy==1.26.4", "scipy==1.13.1", "scikit-learn==1.5.2", "joblib==1.4.2", "threadpoolctl==3.5.0"]
NEW = [
    "numpy==2.4.4",
    "scipy==1.17.1",
    "scikit-learn==1.8.0",
    "joblib==1.5.2",
    "threadpoolctl==3.6.0",
    "narwhals==2.28.0",
]
ENVIRONMENTS = {
    "xgboost-0.90": OLD,
    "xgboost-1.0.2": OLD,
    "xgboost-1.3.3": OLD,
    "xgboost-1.7.6": OLD,
    "xgboost-2.0.3": MIDDLE,
    "xgboost-2.1.4": MIDDLE,
    "xgboost-3.2.0": NEW,
    "lightgbm-2.3.1": OLD,
    "lightgbm-3.3.5": OLD,
    "lightgbm-4.5.0": MIDDLE,
    "lightgbm-4.7.0": NEW,
}


def environment(envs, name):
    """Returns the Python of the version's environment, and creates the environment if it is missing."""
    return environments.environment(envs / name, [name.replace("-", "==", 1), *ENVIRONMENTS[name]])


def inside(name, out, start, random):
    """Writes the cases of a version, or so many random models; runs in its environment."""
    library, version = name.split("-", 1)
    found = importlib.import_module(library).__version__
    if found != version:
        sys.exit(f"{name}: the environment has {library} {found}")
    cases = importlib.import_module(f"{library}_cases")
    if random:
        count = importlib.import_module("random_models").write_random(library, cases, out, version, start, random)
    else:
        count = cases.write_all(out, version)
    size = sum(file.stat().st_size for file in out.iterdir())
    print(f"{name}: {count} cases, {size // 1024} KiB", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--envs", type=Path, default=environments.FOLDER, help="where the environments live")
    parser.add_argument("--out", type=Path, default=HERE, help="where the archives are written")
    parser.add_argument("--only", nargs="+", choices=sorted(ENVIRONMENTS), metavar="NAME", help="versions to write")
    parser.add_argument("--inside", choices=sorted(ENVIRONMENTS), help=argparse.SUPPRESS)
    parser.add_argument("--random", type=int, default=0, metavar="COUNT", help="write so many random models instead")
    parser.add_argument("--start", type=int, default=0, help="the number of the first random model")
    args = parser.parse_args()
    if args.inside:
        inside(args.inside, args.out, args.start, args.random)
        return
    for name in args.only or ENVIRONMENTS:
        python = environment(args.envs.resolve(), name)
        # one thread: sums over rows must not depend on the machine
        clean = dict(os.environ, OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1", PYTHONWARNINGS="ignore")
        archive = args.out / (f"random-{name}-{args.start}.tar.gz" if args.random else f"{name}.tar.gz")
        with tempfile.TemporaryDirectory() as scratch:
            command = [str(python), str(HERE / "generate.py"), "--inside", name, "--out", scratch]
            command += ["--random", str(args.random), "--start", str(args.start)]
            subprocess.run(command, check=True, env=clean)
            print(f"{archive.name}: {pack(Path(scratch), archive) // 1024} KiB", flush=True)


if __name__ == "__main__":
    main()
