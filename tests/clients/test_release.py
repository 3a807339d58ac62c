"""The archives of a release, and the script that installs them from a server of files."""

import hashlib
import http.server
import os
import platform
import re
import shutil
import ssl
import subprocess
import tarfile
import threading

import pytest
import yaml
from conftest import BINARY, ROOT

ARCHIVE = ROOT / "packaging/release/archive"
INSTALL = ROOT / "packaging/release/install.sh"
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
    """Serves a folder, or redirects to another address, and returns the address."""
    servers = []

    def serve(folder=None, redirect=None, certificate=None):
        def handler(*arguments):
            return QuietHandler(*arguments, directory=folder, redirect=redirect)

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_address[1]}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def __init__(self, *arguments, redirect, **options):
        self.redirect = redirect
        super().__init__(*arguments, **options)

    def do_GET(self):
        if self.redirect is None:
            super().do_GET()
        else:
            self.send_response(302)
            self.send_header("location", self.redirect + self.path)
            self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate of 127.0.0.1 with its key."""
    path = tmp_path_factory.mktemp("certificate") / "server.pem"
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names, "-keyout", path, "-out", path)
    assert made.returncode == 0, made.stderr
    return path


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


@pytest.mark.parametrize(("machine", "target"), [("arm64", "aarch64-apple-darwin"), ("x86_64", "x86_64-apple-darwin")])
def test_install_on_macos_takes_its_archive_and_its_tools(release, files, tmp_path, machine, target):
    (archive,) = release.glob("*.tar.gz")
    folder, unpacked = tmp_path / "release", tmp_path / "unpacked"
    folder.mkdir()
    name = f"mlserver-{version_of(archive)}-{target}"
    unpacked.mkdir()
    assert run("tar", "-xzf", archive, "-C", unpacked).returncode == 0
    (unpacked / archive.name.removesuffix(".tar.gz")).rename(unpacked / name)
    assert run("tar", "-czf", folder / f"{name}.tar.gz", "-C", unpacked, name).returncode == 0
    checksum = hashlib.sha256((folder / f"{name}.tar.gz").read_bytes()).hexdigest()
    (folder / f"{name}.tar.gz.sha256").write_text(f"{checksum}  {name}.tar.gz\n")
    (folder / "VERSION").write_text(version_of(archive))
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in "cat curl gzip head id install mkdir mktemp mv rm sh tar tr".split():
        (tools / tool).symlink_to(shutil.which(tool))
    scripts = {
        "uname": f'[ "$1" = -s ] && echo Darwin || echo {machine}',
        "shasum": f'[ "$*" = "-a 256" ] && exec {shutil.which("sha256sum")}',
    }
    for tool, script in scripts.items():
        (tools / tool).write_text(f"#!/bin/sh\n{script}\n")
        (tools / tool).chmod(0o755)
    installed = run("sh", INSTALL, "--to", tmp_path / "to", PATH=str(tools), MLSERVER_DOWNLOAD_URL=files(folder))
    assert installed.returncode == 0, installed.stderr
    assert run(tmp_path / "to/bin/mlserver", "--version").returncode == 0
    (folder / f"{name}.tar.gz.sha256").write_text(f"{'0' * 64}  {name}.tar.gz\n")
    refused = run("sh", INSTALL, "--to", tmp_path / "other", PATH=str(tools), MLSERVER_DOWNLOAD_URL=files(folder))
    assert (refused.returncode, (tmp_path / "other").exists()) == (1, False)
    assert "the checksum of " in refused.stderr


def test_install_rejects_other_systems(tmp_path):
    uname = tmp_path / "uname"
    uname.write_text("#!/bin/sh\necho Plan9\n")
    uname.chmod(0o755)
    refused = run("sh", INSTALL, PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "no executable for Plan9; build it with cargo" in refused.stderr


@pytest.mark.parametrize("client", ["curl", "wget"])
def test_install_follows_redirects_from_https_only_to_https(release, files, certificate, tmp_path, client):
    if shutil.which(client) is None:
        pytest.skip(f"there is no {client}")
    tools = tmp_path / "tools"
    tools.mkdir()
    needed = "cat cut grep gzip head id install mkdir mktemp mv rm sh sha256sum tar tr uname".split()
    for tool in [client, *needed]:
        (tools / tool).symlink_to(shutil.which(tool))
    (tmp_path / "wgetrc").write_text(f"ca_certificate = {certificate}\n")
    trust = {"PATH": str(tools), "CURL_CA_BUNDLE": str(certificate), "WGETRC": str(tmp_path / "wgetrc")}

    def install(address, to):
        return run("sh", INSTALL, "--to", tmp_path / to, MLSERVER_DOWNLOAD_URL=address, **trust)

    plain, encrypted = files(release), files(release, certificate=certificate)
    for name, address in [
        ("https", files(redirect=encrypted, certificate=certificate)),
        ("plain", files(redirect=plain)),
        ("upgraded", files(redirect=encrypted)),
    ]:
        installed = install(address, name)
        assert installed.returncode == 0, installed.stderr
    downgraded = files(redirect=plain, certificate=certificate)
    for name, address in [("no", downgraded), ("nor", files(redirect=downgraded, certificate=certificate))]:
        refused = install(address, name)
        assert refused.returncode == 1
        assert f"install.sh: cannot download {address}/VERSION" in refused.stderr
        assert not (tmp_path / name).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root installs for other users")
def test_install_of_root_is_for_all_users(release, files, tmp_path):
    to = tmp_path / "to"
    page = to / "share/man/man1/mlserver.1"
    address = files(release)
    for _ in range(2):
        command = 'umask 077 && sh "$0" --to "$1"'
        installed = run("sh", "-c", command, INSTALL, to, MLSERVER_DOWNLOAD_URL=address)
        assert installed.returncode == 0, installed.stderr
        for path in [to, *to.rglob("*")]:
            expected = 0o755 if path.is_dir() or path.parent.name == "bin" else 0o644
            assert path.stat().st_mode & 0o7777 == expected, path
        page.chmod(0o600)  # As an earlier version of the script has left it.


@pytest.mark.parametrize("damage", ["archive", "checksum", "other file", "version"])
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
    elif damage == "other file":
        checksum = hashlib.sha256((folder / "VERSION").read_bytes()).hexdigest()
        archive.with_name(archive.name + ".sha256").write_text(f"{checksum}  VERSION\n")
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


SCRIPTS = sorted(path.name for path in (ROOT / "packaging/release").iterdir() if path.read_bytes().startswith(b"#!/usr/bin/env bash"))


@pytest.mark.parametrize("script", SCRIPTS)
def test_script_rejects_wrong_arguments(script, tmp_path):
    for arguments in [["no-such-target", "/no/such/folder", "x", "y"], *([[]] if script != "tools" else [])]:
        refused = run("bash", ROOT / "packaging/release" / script, *(arguments if script != "images" else []))
        assert (refused.returncode, refused.stdout) == (2, ""), refused.stderr
        assert "usage: " in refused.stderr


@pytest.fixture
def repository(tmp_path):
    """A clone with a tagged version, and the folder of its release."""
    clone, folder = tmp_path / "clone", tmp_path / "dist"
    (clone / "packaging/release").mkdir(parents=True)
    for path in ["packaging/release/publish", "packaging/release/install.sh"]:
        (clone / path).write_bytes((ROOT / path).read_bytes())
    (clone / "Cargo.toml").write_text('[package]\nversion = "9.8.7"\n')
    (clone / "CHANGELOG.md").write_text("# Changelog\n\n## 9.8.7 (2030-01-02)\n- new\n\n## 9.8.6\n- old\n")
    git(clone, "init", "--quiet")
    git(clone, "add", ".")
    git(clone, "commit", "--quiet", "--message", "release")
    git(clone, "tag", "v9.8.7")
    folder.mkdir()
    names = ["mlserver-9.8.7.cdx.json", "mlserver-9.8.7.tgz", "mlserver_9.8.7-1_amd64.deb", "mlserver_9.8.7-1_arm64.deb"]
    for machine in ["x86_64", "aarch64"]:
        archive = f"mlserver-9.8.7-{machine}-unknown-linux-musl.tar.gz"
        tags = f"manylinux2014_{machine}.manylinux_2_17_{machine}.musllinux_1_1_{machine}"
        names += [archive, f"{archive}.sha256", f"mlserver-9.8.7-py3-none-{tags}.whl"]
    for rust, apple in [("x86_64", "x86_64"), ("aarch64", "arm64")]:
        archive = f"mlserver-9.8.7-{rust}-apple-darwin.tar.gz"
        names += [archive, f"{archive}.sha256", f"mlserver-9.8.7-py3-none-macosx_11_0_{apple}.whl"]
    for name in names:
        (folder / name).write_text(name)
    return clone, folder


def git(folder, *arguments):
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "tag.gpgsign=false", "-c", "commit.gpgsign=false"]
    ran = run("git", "-C", folder, *identity, *arguments)
    assert ran.returncode == 0, ran.stderr


def publish(clone, folder, tag="v9.8.7", address="https://example.com/releases/"):
    return run("bash", clone / "packaging/release/publish", tag, address, folder)


def test_publish_completes_the_folder(repository):
    clone, folder = repository
    published = publish(clone, folder)
    assert (published.returncode, published.stdout) == (0, "- new\n\n"), published.stderr
    assert (folder / "VERSION").read_text() == "9.8.7\n"
    assert "\n  releases=https://example.com/releases\n" in (folder / "install.sh").read_text()
    assert run("sh", folder / "install.sh", "--help").returncode == 0
    sums = dict(reversed(line.split()) for line in (folder / "SHA256SUMS").read_text().splitlines())
    assert sums.keys() == {path.name for path in folder.iterdir()} - {"SHA256SUMS"}
    for name, checksum in sums.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == checksum, name


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda clone, _: (clone / "new").write_text(""), "the tree has changes"),
        (lambda clone, _: git(clone, "tag", "--delete", "v9.8.7"), "the commit does not have the tag v9.8.7"),
        (lambda _, folder: (folder / "mlserver_9.8.7-1_arm64.deb").unlink(), "has no mlserver_9.8.7-1_arm64.deb"),
    ],
    ids=["changes", "tag", "file"],
)
def test_publish_rejects_an_incomplete_release(repository, change, message):
    clone, folder = repository
    change(clone, folder)
    refused = publish(clone, folder)
    assert refused.returncode == 1
    assert message in refused.stderr
    assert not (folder / "SHA256SUMS").exists()


def test_publish_rejects_other_versions_and_addresses(repository):
    clone, folder = repository
    assert "the tag is v1.0.0, and Cargo.toml has version 9.8.7" in publish(clone, folder, tag="v1.0.0").stderr
    for address in ["http://example.com", "https://", "https://example.com/'; true", "https://example.com/a|b"]:
        assert publish(clone, folder, address=address).returncode == 2, address
    (clone / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n")
    git(clone, "commit", "--quiet", "--all", "--message", "changes")
    git(clone, "tag", "--force", "v9.8.7")
    assert "CHANGELOG.md has no section 9.8.7" in publish(clone, folder).stderr


def text(path):
    return (ROOT / path).read_text()


def test_versions_agree():
    version = re.search(r'^version = "(.*)"$', text("Cargo.toml"), re.MULTILINE)[1]
    chart = yaml.safe_load(text("packaging/deploy/helm/mlserver/Chart.yaml"))
    found = {
        "CITATION.cff": yaml.safe_load(text("CITATION.cff"))["version"],
        "Chart.yaml": chart["version"],
        "Chart.yaml, appVersion": chart["appVersion"],
        "all.Dockerfile": re.search(r"^ARG SERVER=mlserver:(.*)-slim$", text("packaging/docker/all.Dockerfile"), re.MULTILINE)[1],
        "Cargo.toml, mlserver-evaluators": re.search(r'^mlserver-evaluators = { version = "=(.*?)"', text("Cargo.toml"), re.MULTILINE)[1],
        "Cargo.lock": re.search(r'name = "mlserver"\nversion = "(.*)"', text("Cargo.lock"))[1],
    }
    assert found == dict.fromkeys(found, version)
    # The first section is the next release, or this one.
    sections = re.findall(r"^## (\S+)", text("CHANGELOG.md"), re.MULTILINE)
    assert sections[0] in ["Unreleased", version]
    assert sections[0] == version or f"The version is {version}," in text("CHANGELOG.md")


@pytest.mark.parametrize("name", ["ci", "release"])
def test_workflow_calls_scripts_that_exist_with_few_permissions(name):
    workflow = yaml.safe_load(text(f".github/workflows/{name}.yml"))
    assert workflow["permissions"] == {"contents": "read"}
    called = set()
    for job in workflow["jobs"].values():
        assert "timeout-minutes" in job
        for step in job["steps"]:
            if "uses" in step:
                assert re.fullmatch(r"[\w-]+/[\w-]+@v\d+", step["uses"]), step
                continue
            command = step["run"].removeprefix("sudo --preserve-env=PATH,HOME ").split()
            if command[0] in ["gh", "pipx", "cargo"]:
                assert " ".join(command[:2]) in ["gh release", "pipx run", "cargo publish", "cargo test"]
                continue
            assert os.access(ROOT / command[0], os.X_OK), command
            called.add(command[0])
    released = {f"packaging/release/{script}" for script in SCRIPTS if script not in ["archive", "tools"]}
    expected = {"ci": {".ci/run"}, "release": released}
    assert called == expected[name]


def test_files_for_the_repository_host_are_valid():
    for template in ["bug", "feature"]:
        form = yaml.safe_load(text(f".github/ISSUE_TEMPLATE/{template}.yml"))
        assert {"name", "description", "body"} <= form.keys()
