"""Writes the software bill of materials to a folder, from Cargo.lock and the trees of cargo: packaging/release/sbom runs it."""

import json
import os
import re
import subprocess
import sys
import tomllib
import uuid
from datetime import datetime, timezone
from pathlib import Path

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

TARGETS = ["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl", "x86_64-apple-darwin", "aarch64-apple-darwin"]


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments, "--locked"], check=True, capture_output=True, text=True).stdout


def tree(target):
    """Returns the crates that are linked, and those that each depends on, as `(name, version)`."""
    options = ["--package", "mlserver", "--features", "full", "--target", target, "--edges", "normal,no-proc-macro", "--no-dedupe"]
    parents, edges = [], {}
    for line in cargo("tree", *options, "--prefix", "depth", "--format", "{p}").splitlines():
        depth, name, version = re.match(r"(\d+)(\S+) v(\S+)", line).groups()
        crate = (name, version)
        edges.setdefault(crate, set())
        parents[int(depth) :] = [crate]
        if int(depth):
            edges[parents[int(depth) - 1]].add(crate)
    return edges


def main():
    lock = {(found["name"], found["version"]): found for found in tomllib.loads(Path("Cargo.lock").read_text())["package"]}
    metadata = json.loads(cargo("metadata", "--format-version", "1", "--all-features"))
    licenses = {(found["name"], found["version"]): found["license"] for found in metadata["packages"]}
    edges = {}
    for target in TARGETS:
        for crate, needed in tree(target).items():
            edges.setdefault(crate, set()).update(needed)

    def component(crate, kind=ComponentType.LIBRARY):
        name, version = crate
        checksum = lock[crate].get("checksum")
        license = licenses[crate]
        purl = PackageURL("cargo", None, name, version)
        return Component(
            name=name,
            version=version,
            type=kind,
            purl=purl,
            bom_ref=str(purl),
            licenses=[LicenseFactory().make_from_string(license.replace("/", " OR "))] if license else [],
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=checksum)] if checksum else [],
        )

    root = next(iter(edges))
    components = {crate: component(crate, ComponentType.APPLICATION if crate == root else ComponentType.LIBRARY) for crate in edges}
    bom = Bom(components=[found for crate, found in components.items() if crate != root])
    bom.metadata.component = components[root]
    bom.metadata.timestamp = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), timezone.utc)
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_URL, "".join(sorted(map(str, edges))))
    for crate, needed in edges.items():
        bom.register_dependency(components[crate], [components[each] for each in needed])

    text = JsonV1Dot6(bom).output_as_string(indent=1)
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        sys.exit(f"the bill of materials is invalid: {error}")
    path = Path(sys.argv[1], f"{root[0]}-{root[1]}.cdx.json")
    path.write_text(text + "\n")
    print(f"{path}: {len(components)} crates")


if __name__ == "__main__":
    main()
