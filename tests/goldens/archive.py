"""Packs golden cases into an archive, and unpacks them.

    python3 tests/goldens/archive.py pack FOLDER tests/goldens/sklearn/1.9.1.tar.gz
    python3 tests/goldens/archive.py unpack tests/goldens/sklearn/1.9.1.tar.gz FOLDER

The same files give the same bytes: names are sorted, and neither times nor owners are stored.
"""

import argparse
import gzip
import io
import tarfile
from pathlib import Path


def pack(folder, archive):
    """Writes the files below `folder` to `archive`, and returns the archive's size in bytes."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        files = {file.relative_to(folder).as_posix(): file for file in folder.rglob("*") if file.is_file()}
        for name, file in sorted(files.items()):
            content = file.read_bytes()
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            entry.mode = 0o644
            tar.addfile(entry, io.BytesIO(content))
    compressed = io.BytesIO()
    # Unlike `gzip.compress`, the same header from every version of Python.
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=compressed, mtime=0) as stream:
        stream.write(packed.getvalue())
    archive.write_bytes(compressed.getvalue())
    return archive.stat().st_size


def unpack(archive, folder):
    """Writes the files of `archive` below `folder`."""
    with tarfile.open(archive) as tar:
        for entry in tar:
            file = Path(folder, entry.name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(tar.extractfile(entry).read())


def main():
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["pack", "unpack"])
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    options = parser.parse_args()
    (pack if options.action == "pack" else unpack)(options.source, options.target)


if __name__ == "__main__":
    main()
