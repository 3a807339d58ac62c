"""The archives of a release, and the script that installs them from a server of files."""

import hashlib
import http.server
import os
import platform
import re
import subprocess
import tarfile
import threading

import pytest
import yaml
from conftest import BINARY, ROOT

ARCHIVE = ROOT / "release/archive"
INSTALL = ROOT / "release/install.sh"
TARGET = f"{platform.machine()}-unknown-linux-musl"


def run(*command, **variables):
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "NO_PROXY": "*", **variables}
    return subprocess.run([str(part) for part in command], env=environment, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def executable(tmp_path_factory):
    """The executable under test without debugging symbols, which would take half a minute to pack."""
    executable = tmp_path_factory.mktemp("executable") / "mlserver"
    assert run("strip", "-o", executable, BINARY).returncode == 0
    return executable


@pytest.fixture(scope="module")
def release(tmp_path_factory, executable):
    """A folder with the archive of the executable, as a release has it."""
    folder = tmp_path_factory.mktemp("release")
    packed = run("bash", ARCHIVE, executable, TARGET, folder)
    assert packed.returncode == 0, packed.stderr
    (archive,) = folder.glob("*.tar.gz")
    (folder / "VERSION").write_text(version_of(archive))
    return folder


def version_of(archive):
    return archive.name.removeprefix("mlserver-").removesuffix(f"-{TARGET}.tar.gz")


@pytest.fixture
def files():
    """Serves a folder, and returns its address."""
    servers = []

    def serve(folder):
        def handler(*arguments):
            return QuietHandler(*arguments, directory=folder)

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def test_archive_has_everything_and_is_reproducible(release, executable, tmp_path):
    (archive,) = release.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        names = {name.split("/", 1)[-1] for name in packed.getnames()}
        owners = {(member.uid, member.gid) for member in packed.getmembers()}
    expected = {"mlserver", "LICENSE", "README.md", "CHANGELOG.md", "completions/mlserver.bash", "man/mlserver-start.1"}
    assert expected <= names
    assert owners == {(0, 0)}
    checksum, name = archive.with_name(archive.name + ".sha256").read_text().split()
    assert name == archive.name
    assert checksum == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert run("bash", ARCHIVE, executable, TARGET, tmp_path).returncode == 0
    assert (tmp_path / archive.name).read_bytes() == archive.read_bytes()


def test_install_puts_executable_pages_and_completions_into_place(release, files, tmp_path):
    address = files(release)
    for _ in range(2):  # The second one replaces the first one.
        installed = run("sh", INSTALL, "--to", tmp_path, MLSERVER_DOWNLOAD_URL=address)
        assert installed.returncode == 0, installed.stderr
    version = run(tmp_path / "bin/mlserver", "--version").stdout.strip()
    assert installed.stdout.splitlines() == [
        f"installed {version} as {tmp_path}/bin/mlserver",
        f"add {tmp_path}/bin to PATH to run it as mlserver",
    ]
    for path in ["man/man1/mlserver-infer.1", "bash-completion/completions/mlserver", "zsh/site-functions/_mlserver"]:
        assert (tmp_path / "share" / path).is_file(), path


def test_install_of_a_version(release, files, tmp_path):
    (archive,) = release.glob("*.tar.gz")
    version = f"v{version_of(archive)}"
    installed = run("sh", INSTALL, "--version", version, "--to", tmp_path, MLSERVER_DOWNLOAD_URL=files(release))
    assert installed.returncode == 0, installed.stderr
    missing = run("sh", INSTALL, "--version", "0.0.1", "--to", tmp_path / "other", MLSERVER_DOWNLOAD_URL=files(release))
    assert missing.returncode == 1
    assert "install.sh: cannot download " in missing.stderr
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("damage", ["archive", "checksum", "version"])
def test_install_of_damaged_downloads_changes_nothing(release, files, tmp_path, damage):
    folder = tmp_path / "release"
    folder.mkdir()
    for file in release.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (archive,) = folder.glob("*.tar.gz")
    if damage == "archive":
        archive.write_bytes(archive.read_bytes()[:-100])
    elif damage == "checksum":
        archive.with_name(archive.name + ".sha256").write_text(f"{'0' * 64}  {archive.name}\n")
    else:
        (folder / "VERSION").write_text("../../etc; true\n")
    installed = run("sh", INSTALL, "--to", tmp_path / "to", MLSERVER_DOWNLOAD_URL=files(folder))
    assert installed.returncode == 1, installed.stdout
    expected = "invalid version" if damage == "version" else "the checksum of "
    assert f"install.sh: {expected}" in installed.stderr
    assert not (tmp_path / "to").exists()


def test_install_needs_an_address_and_valid_arguments(tmp_path):
    assert "set MLSERVER_DOWNLOAD_URL" in run("sh", INSTALL, "--to", tmp_path / "to").stderr
    refused = run("sh", INSTALL, "--prefix", tmp_path)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "unknown argument `--prefix`" in refused.stderr
    assert run("sh", INSTALL, "--help").stdout == "usage: sh install.sh [--version VERSION] [--to FOLDER]\n"


def test_files_for_the_repository_host_are_valid():
    manifest = (ROOT / "Cargo.toml").read_text()
    version = re.search(r'^version = "(.*)"$', manifest, re.MULTILINE)[1]
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == version
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    commands = [step["run"].split()[-1] for step in workflow["jobs"]["test"]["steps"] if "run" in step]
    assert commands == [".ci/run"]
    for template in ["bug", "feature"]:
        form = yaml.safe_load((ROOT / f".github/ISSUE_TEMPLATE/{template}.yml").read_text())
        assert {"name", "description", "body"} <= form.keys()
