"""Writes the golden cases of scikit-learn with the library itself.

    python3.11 tests/goldens/sklearn/generate.py [--envs FOLDER] [--only 1.5.2 ...] [--family linear ...]
    python3.11 tests/goldens/sklearn/generate.py --skops [--envs FOLDER] [--only 1.5.2 ...]
    python3.11 tests/goldens/sklearn/generate.py --explained [--envs FOLDER] [--only 1.5.2 ...]

Makes one virtual environment for each pinned version (outside the repository), then runs itself inside each. Every archive
`<version>.tar.gz` is replaced; with `--family`, only the folders of those families in it. With `--skops`, the models of these
archives are written to `skops/<version>.tar.gz`. With `--explained`, the contributions of their features are written to
`explained/<version>.tar.gz`.
"""

import argparse
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import environments  # noqa: E402
from archive import pack, unpack  # noqa: E402

DATES = ["python-dateutil==2.9.0.post0", "pytz==2024.1", "six==1.16.0", "tzdata==2024.1"]
# The interpreter of each version, and the packages that are installed with it.
ENVIRONMENTS = {
    "0.24.2": ("3.9", ["numpy==1.19.5", "scipy==1.6.3", "joblib==1.0.1", "pandas==1.2.5", "lz4==4.3.3"]),
    "1.1.3": ("3.11", ["numpy==1.23.5", "scipy==1.9.3", "joblib==1.2.0", "pandas==1.5.3", "lz4==4.3.3"]),
    "1.3.2": ("3.11", ["numpy==1.26.4", "scipy==1.11.4", "joblib==1.3.2", "pandas==2.1.4", "lz4==4.3.3"]),
    "1.5.2": ("3.11", ["numpy==2.0.2", "scipy==1.14.1", "joblib==1.4.2", "pandas==2.2.3", "lz4==4.3.3"]),
    "1.9.1": (
        "3.11",
        [
            "numpy==2.4.6",
            "scipy==1.17.1",
            "joblib==1.6.0",
            "pandas==3.0.0",
            "lz4==4.4.4",
            "narwhals==2.28.0",
            "cloudpickle==3.1.2",
        ],
    ),
}
# The libraries of boosted trees whose wrappers are pickled too.
BOOSTED = {
    "0.24.2": ["xgboost==1.3.3", "lightgbm==3.3.5"],
    "1.1.3": ["xgboost==1.7.6", "lightgbm==3.3.5"],
    "1.3.2": ["xgboost==2.0.3", "lightgbm==4.5.0"],
    "1.5.2": ["xgboost-cpu==2.1.4", "lightgbm==4.5.0"],
    "1.9.1": ["xgboost-cpu==3.2.0", "lightgbm==4.7.0"],
}
# The versions whose models are written as skops files, too: the version of skops, and the compressed size up to which models
# are written. A larger one is only written if no other one has its class.
SKOPS = {
    "1.5.2": ("skops==0.10.0", 2000),
    "1.9.1": ("skops==0.16.0", 4000),
}
# What shap is installed with, where it is asked too.
SHAP_NEEDS = [
    "numba==0.68.1",
    "llvmlite==0.50.0",
    "slicer==0.0.8",
    "cloudpickle==3.1.2",
    "tqdm==4.70.1",
    "packaging==26.4",
    "typing_extensions==4.16.0",
]
# Older versions of shap do not know where trees send missing values.
SHAP = {"1.5.2": "shap==0.50.0", "1.9.1": "shap==0.50.0"}


def interpreter(version):
    """Finds a Python of the given minor version."""
    found = shutil.which(f"python{version}")
    found = found or next(iter(sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))), None)
    return str(found or sys.exit(f"python{version} is needed, for the versions of scikit-learn that had wheels for it"))


def environment(envs, version):
    """Returns the Python of the version's environment, and creates the environment if it is missing."""
    minor, beside = ENVIRONMENTS[version]
    pins = [f"scikit-learn=={version}", "threadpoolctl==3.5.0", *beside, *DATES, *BOOSTED[version]]
    # Versions of Python are only looked for if they are needed.
    folder = envs / f"scikit-learn-{version}"
    return environments.environment(folder, pins, lambda: interpreter(minor))


def inside(version, out, families):
    """Writes the cases of a version; runs in its environment."""
    import sklearn

    if sklearn.__version__ != version:
        sys.exit(f"{version}: the environment has scikit-learn {sklearn.__version__}")
    from casefile import Writer

    out.mkdir(parents=True, exist_ok=True)
    for family in families:
        writer = Writer(out / family, tuple(int(part) for part in version.split(".")[:2]))
        importlib.import_module(f"families.{family}").write(writer)
        count, size = writer.close()
        print(f"{version} {family}: {count} cases, {size // 1024} KiB", flush=True)


def skops_inside(version, models, out):
    """Writes the models of an unpacked archive as skops files; runs in the environment of the version."""
    import skopsfile

    print(f"{version}: {skopsfile.write(models, out, SKOPS[version][1])} skops files", flush=True)


def explained_inside(version, models, out):
    """Writes the contributions of the models of an unpacked archive; runs in the environment of the version."""
    import explainfile

    print(f"{version}: {explainfile.write(models, out)} models explained", flush=True)


def write_beside(envs, version, what, packages):
    """Writes the archive of a version in the folder `what`, in its environment, to which packages are added."""
    python = environment(envs, version)
    made = python.parent.parent / f"complete-{what}"
    if packages and not made.exists():
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--no-deps", *packages], check=True)
        made.touch()
    clean = dict(os.environ, OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1", PYTHONWARNINGS="ignore")
    with tempfile.TemporaryDirectory() as models, tempfile.TemporaryDirectory() as out:
        unpack(HERE / f"{version}.tar.gz", Path(models))
        command = [
            str(python),
            str(HERE / "generate.py"),
            f"--{what}",
            "--inside",
            version,
            "--models",
            models,
            "--out",
            out,
        ]
        subprocess.run(command, check=True, env=clean)
        archive = HERE / what / f"{version}.tar.gz"
        archive.parent.mkdir(exist_ok=True)
        print(f"{what}/{archive.name}: {pack(Path(out), archive) // 1024} KiB", flush=True)


def main():
    known = sorted(path.stem for path in (HERE / "families").glob("*.py"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--envs", type=Path, default=environments.FOLDER, help="where the environments live")
    parser.add_argument("--only", nargs="+", choices=sorted(ENVIRONMENTS), metavar="VERSION", help="versions to write")
    parser.add_argument("--family", nargs="+", choices=known, metavar="FAMILY", help="families to write")
    parser.add_argument("--skops", action="store_true", help="write the models of the archives as skops files")
    parser.add_argument("--explained", action="store_true", help="write the contributions of the models of the archives")
    parser.add_argument("--inside", choices=sorted(ENVIRONMENTS), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--models", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside and (args.skops or args.explained):
        (skops_inside if args.skops else explained_inside)(args.inside, args.models, args.out)
        return
    if args.inside:
        inside(args.inside, args.out, args.family)
        return
    if args.skops:
        for version in args.only or SKOPS:
            write_beside(args.envs.resolve(), version, "skops", [SKOPS[version][0]])
        return
    if args.explained:
        for version in args.only or ENVIRONMENTS:
            packages = [SHAP[version], *SHAP_NEEDS] if version in SHAP else []
            write_beside(args.envs.resolve(), version, "explained", packages)
        return
    for version in args.only or ENVIRONMENTS:
        python = environment(args.envs.resolve(), version)
        # one thread: sums over rows must not depend on the machine
        clean = dict(os.environ, OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1", PYTHONWARNINGS="ignore")
        archive = HERE / f"{version}.tar.gz"
        with tempfile.TemporaryDirectory() as scratch:
            if args.family:
                unpack(archive, Path(scratch))
            command = [str(python), str(HERE / "generate.py"), "--inside", version, "--out", scratch]
            subprocess.run([*command, "--family", *(args.family or known)], check=True, env=clean)
            print(f"{archive.name}: {pack(Path(scratch), archive) // 1024} KiB", flush=True)


if __name__ == "__main__":
    main()
