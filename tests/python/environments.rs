//! Models with their own Python environment.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::process_models::{ask, process_models, processes};
use crate::support::python::python;
use crate::support::python::with_python;
use crate::support::{Folder, ServerBuilder, repository_path, skipped};

/// An interpreter: its path, and its version as `3.11`, or `3.14t` if it has no global lock.
pub(crate) type Python = (PathBuf, String);

/// The versions that are tested if the machine has them.
const VERSIONS: [&str; 8] = ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.14t"];

/// Returns one interpreter per version on this machine, from PATH, pyenv and uv. Reports each of [`VERSIONS`] that is missing.
pub(crate) fn pythons() -> &'static [Python] {
    static FOUND: OnceLock<Vec<Python>> = OnceLock::new();
    FOUND.get_or_init(|| {
        let variable = |name: &str| std::env::vars_os().find(|(found, _)| found == name).map(|(_, value)| value);
        let home = variable("HOME").map(PathBuf::from).unwrap_or_default();
        let installed = [".pyenv/versions", ".local/share/uv/python"].into_iter();
        let installed = installed.flat_map(|folder| fs::read_dir(home.join(folder)).into_iter().flatten());
        let installed = installed.map(|version| version.unwrap().path().join("bin"));
        let folders: Vec<_> = std::env::split_paths(&variable("PATH").unwrap_or_default()).chain(installed).collect();
        let names: Vec<String> =
            (8..20).flat_map(|minor| [format!("python3.{minor}"), format!("python3.{minor}t")]).collect();
        let names = [names, vec!["python3".to_owned()]].concat();
        let mut found: Vec<Python> = Vec::new();
        for path in folders.iter().flat_map(|folder| names.iter().map(move |name| folder.join(name))) {
            let program = "import sys, sysconfig, venv; t = sysconfig.get_config_var('Py_GIL_DISABLED'); \
                print('%d.%d' % sys.version_info[:2] + ('t' if t else ''), sys.version_info >= (3, 8))";
            let Ok(output) = Command::new(&path).args(["-c", program]).output() else { continue };
            let text = String::from_utf8(output.stdout).unwrap();
            let Some((version, "True")) = text.trim().split_once(' ') else { continue };
            if found.iter().all(|(_, other)| other != version) {
                found.push((path, version.to_owned()));
            }
        }
        for version in VERSIONS.into_iter().filter(|version| found.iter().all(|(_, other)| other != version)) {
            skipped(&format!("models in CPython {version}, which is not installed"));
        }
        found
    })
}

/// Returns an interpreter with another version than the default of the tests.
fn another_python() -> Option<&'static Python> {
    let (default, _) = own_version()?;
    let found = pythons().iter().find(|(_, version)| *version != default);
    if found.is_none() {
        skipped("there is no second version of Python");
    }
    found
}

/// Returns the version of the tests' default interpreter, and its path with wrappers resolved.
fn own_version() -> Option<(String, PathBuf)> {
    let program = "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)";
    let output = Command::new(python()?).args(["-c", program]).output();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    let (version, path) = text.trim().split_once(' ').unwrap();
    Some((version.to_owned(), path.into()))
}

/// Creates a virtual environment with the module `only_there`, which returns `name`, and the script `tool`.
fn make_venv(python: &Path, folder: &Path, name: &str) {
    let made = Command::new(python).args(["-m", "venv", "--without-pip"]).arg(folder).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let library = fs::read_dir(folder.join("lib")).unwrap().next().unwrap().unwrap().path();
    fs::write(library.join("site-packages/only_there.py"), format!("NAME = '{name}'\n")).unwrap();
    let tool = format!("#!{}/bin/python\nimport sys\nprint(sys.prefix)\n", folder.display());
    executable(&folder.join("bin/tool"), &tool);
}

fn executable(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Packs a folder with the command of `docs/guides/environments.md`.
fn pack(folder: &Path, archive: &Path) {
    let documentation = fs::read_to_string(repository_path("docs/guides/environments.md")).unwrap();
    let command = documentation.lines().find(|line| line.starts_with("tar --create")).unwrap();
    let place = |name: &str| match name {
        "environment.tar.gz" => archive.as_os_str().to_owned(),
        "my-venv" => folder.as_os_str().to_owned(),
        other => other.into(),
    };
    let packed = Command::new("tar").args(command.split(' ').skip(1).map(place)).output().unwrap();
    assert!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
}

/// Packs a virtual environment and deletes it.
fn packed_venv(python: &Path, name: &str, archive: &Path) {
    let folder = tempfile::tempdir().unwrap();
    make_venv(python, &folder.path().join("venv"), name);
    pack(&folder.path().join("venv"), archive);
}

fn tarball(path: &str) -> Value {
    json!({"parameters": {"environment_tarball": path}})
}

fn in_path(path: &Path) -> Value {
    json!({"parameters": {"environment_path": path}})
}

/// Runs a server that fails to start, and returns its log.
#[track_caller]
fn failure(starting: ServerBuilder) -> String {
    let ended = starting.run();
    assert_eq!(ended.code, Some(1), "{}", ended.stdout);
    ended.stdout
}

#[test]
fn environment_model_runs_in_its_own_python() {
    let (Some((own, _)), Some((python, version))) = (own_version(), another_python()) else { return };
    let there = tempfile::tempdir().unwrap();
    make_venv(python, &there.path().join("venv"), "folder");
    let models = [
        ("default", json!({})),
        ("folder", in_path(&there.path().join("venv"))),
        ("packed", tarball("./environment.tar.gz")),
    ];
    let folder = process_models(&models);
    packed_venv(python, "packed", &folder.path("packed/environment.tar.gz"));
    // Variables for the server's own interpreter are not passed on.
    let folder = folder.file("packages/only_there.py", "NAME = 'server'\n");
    let packages = folder.path("packages");
    let Some(starting) = with_python(folder) else { return };
    let server = starting.env("PYTHONPATH", packages.to_str().unwrap()).env("PYTHONUSERBASE", "/nowhere").start();
    for (model, name, version) in
        [("default", "server", &own), ("folder", "folder", version), ("packed", "packed", version)]
    {
        let answer = ask(&server, model, 0);
        assert_eq!((&answer["python"], &answer["only_there"]), (&json!(version), &json!(name)), "{answer}");
        assert_eq!(answer["sdk"], env!("CARGO_PKG_VERSION"));
        if model != "default" {
            assert_eq!(answer["user_site"], false);
            assert_eq!(answer["tool"], answer["prefix"], "its scripts run in the environment");
            assert!(!answer["path"].to_string().contains(packages.to_str().unwrap()), "{answer}");
        }
    }
    let pools = ["default", "folder", "packed"].map(|model| processes(&server, model));
    assert!(pools[0].is_disjoint(&pools[1]) && pools[1].is_disjoint(&pools[2]) && pools[2].is_disjoint(&pools[0]));
    let default = ask(&server, "default", 0);
    assert!(default["path"].to_string().contains(packages.to_str().unwrap()), "{default}");
}

#[test]
fn environment_every_supported_python_runs_models() {
    let there = tempfile::tempdir().unwrap();
    let models: Vec<(&str, Value)> = pythons()
        .iter()
        .map(|(python, version)| {
            let folder = there.path().join(version);
            make_venv(python, &folder, version);
            (version.as_str(), in_path(&folder))
        })
        .collect();
    let Some(starting) = with_python(process_models(&models)) else { return };
    let server = starting.start();
    for (version, _) in &models {
        let answer = ask(&server, version, 0);
        assert_eq!(
            (&answer["python"], &answer["only_there"]),
            (&json!(version.trim_end_matches('t')), &json!(version)),
            "{answer}"
        );
    }
}

#[test]
fn environment_archive_is_unpacked_once_by_content() {
    let Some(python) = python() else { return };
    let models = ["a", "b", "c"].map(|model| (model, tarball("../environment.tar.gz")));
    let other = ("other", tarball("../renamed.tgz"));
    let folder = process_models(&[models.as_slice(), &[other]].concat());
    packed_venv(&python, "packed", &folder.path("environment.tar.gz"));
    fs::copy(folder.path("environment.tar.gz"), folder.path("renamed.tgz")).unwrap();
    let server = with_python(folder).unwrap().start();
    let process = ask(&server, "a", 0)["pid"].clone();
    for model in ["b", "c", "other"] {
        assert_eq!(ask(&server, model, 0)["pid"], process, "environments that are the same share a pool");
    }
    assert_eq!(server.log().matches("Unpacked `").count(), 1, "{}", server.log());
    let unpacked: Vec<_> =
        fs::read_dir(server.folder.path(".envs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let environment = unpacked.iter().find(|path| path.is_dir()).unwrap().clone();
    assert_eq!(unpacked.len(), 2, "the environment and the lock: {unpacked:?}");
    // The next server uses it, and replaces an unfinished one.
    let again = |message: &str, expected: usize| {
        let folder = process_models(&[("a", tarball("environment.tar.gz"))]);
        fs::copy(server.folder.path("environment.tar.gz"), folder.path("a/environment.tar.gz")).unwrap();
        let dir = server.folder.path(".envs");
        let server = with_python(folder).unwrap().env("MLSERVER_ENVIRONMENTS_DIR", dir.to_str().unwrap()).start();
        assert_eq!(ask(&server, "a", 0)["only_there"], "packed");
        assert_eq!(server.log().matches("Unpacked `").count(), expected, "{message}: {}", server.log());
    };
    again("as it is", 0);
    fs::remove_file(environment.join(".mlserver-unpacked")).unwrap();
    fs::remove_file(environment.join("bin/python3")).unwrap();
    again("unfinished", 1);
    // What others could have changed is not used: its interpreter runs as the server's user.
    fs::set_permissions(&environment, fs::Permissions::from_mode(0o777)).unwrap();
    again("others can write to it", 1);
    again("it is safe again", 0);
    if std::os::unix::fs::chown(&environment, Some(12_345), None).is_ok() {
        again("it belongs to somebody else", 1);
        again("it is safe again", 0);
    }
}

#[test]
fn environment_changed_archive_is_unpacked_again() {
    let Some(python) = python() else { return };
    let folder = process_models(&[("a", tarball("environment.tar.gz"))]);
    packed_venv(&python, "first", &folder.path("a/environment.tar.gz"));
    let server = with_python(folder).unwrap().start();
    assert_eq!(ask(&server, "a", 0)["only_there"], "first");
    packed_venv(&python, "second", &server.folder.path("a/environment.tar.gz"));
    assert_eq!(server.post("/v2/repository/models/a/load", "").status, 200);
    assert_eq!(ask(&server, "a", 0)["only_there"], "second");
}

#[test]
fn environment_archive_may_have_a_top_folder() {
    let Some(python) = python() else { return };
    let folder = process_models(&[("a", tarball("environment.tar.gz"))]);
    let above = tempfile::tempdir().unwrap();
    make_venv(&python, &above.path().join("my-venv"), "nested");
    pack(above.path(), &folder.path("a/environment.tar.gz"));
    drop(above);
    let server = with_python(folder).unwrap().start();
    let answer = ask(&server, "a", 0);
    assert_eq!((&answer["only_there"], &answer["tool"]), (&json!("nested"), &answer["prefix"]));
}

#[test]
fn environment_conda_unpack_is_run() {
    let Some(python) = python() else { return };
    let environment = tempfile::tempdir().unwrap();
    let path = |name: &str| environment.path().join(name);
    fs::create_dir_all(path("bin")).unwrap();
    fs::create_dir_all(path("conda-meta")).unwrap();
    executable(&path("bin/python"), &format!("#!/bin/sh\nFROM_CONDA=1 exec {} \"$@\"\n", python.display()));
    let unpack = "#!/usr/bin/env python\nimport os\n\
        prefix = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))\n\
        path = os.path.join(prefix, 'bin', 'tool')\n\
        text = open(path).read().replace('/placeholder', prefix)\n\
        open(path, 'w').write(text)\n\
        assert os.environ['FROM_CONDA']\n";
    executable(&path("bin/conda-unpack"), unpack);
    executable(&path("bin/tool"), "#!/bin/sh\necho /placeholder $CONDA_PREFIX\n");
    let folder = process_models(&[("a", tarball("environment.tar.gz"))]);
    pack(environment.path(), &folder.path("a/environment.tar.gz"));
    let server = with_python(folder).unwrap().start();
    let unpacked = fs::read_dir(server.folder.path(".envs")).unwrap().map(|entry| entry.unwrap().path());
    let unpacked = unpacked.into_iter().find(|path| path.is_dir()).unwrap();
    let expected = format!("{0} {0}", unpacked.display());
    assert_eq!(ask(&server, "a", 0)["tool"], expected);

    executable(&path("bin/conda-unpack"), "import sys\nsys.exit('no placeholder in lib/x.so')\n");
    let folder = process_models(&[("a", tarball("environment.tar.gz"))]);
    pack(environment.path(), &folder.path("a/environment.tar.gz"));
    let log = failure(with_python(folder).unwrap());
    assert!(
        log.contains("its `bin/conda-unpack` failed: it exited with exit status: 1; its last line was: no placeholder"),
        "{log}"
    );
}

/// A virtual environment that was created with an interpreter in `home`.
fn foreign_venv(python: &Path, version: &str, home: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    make_venv(python, folder.path(), "moved");
    fs::write(folder.path().join("pyvenv.cfg"), format!("home = {home}\nversion = {version}.1\n")).unwrap();
    let bin = folder.path().join("bin");
    for entry in fs::read_dir(&bin).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.file_name().unwrap().to_str().unwrap().starts_with("python") {
            fs::remove_file(entry).unwrap();
        }
    }
    symlink(format!("{home}/python{version}"), bin.join("python")).unwrap();
    symlink("python", bin.join("python3")).unwrap();
    folder
}

#[test]
fn environment_moved_venv_finds_a_matching_interpreter() {
    let (Some((own, python)), Some((other, version))) = (own_version(), another_python()) else { return };
    let folder = process_models(&[("own", tarball("e.tar.gz")), ("other", tarball("e.tar.gz"))]);
    pack(foreign_venv(&python, &own, "/opt/gone/bin").path(), &folder.path("own/e.tar.gz"));
    pack(foreign_venv(other, version, "/opt/gone/bin").path(), &folder.path("other/e.tar.gz"));
    let path = [&python, other].map(|path| path.parent().unwrap().to_str().unwrap()).join(":");
    let server = with_python(folder).unwrap().env("PATH", &path).start();
    for (model, version) in [("own", &own), ("other", version)] {
        let answer = ask(&server, model, 0);
        assert_eq!((&answer["python"], &answer["only_there"]), (&json!(version), &json!("moved")), "{answer}");
        assert_eq!(answer["tool"], answer["prefix"]);
    }
}

#[test]
fn environment_moved_venv_without_interpreter_is_an_error() {
    let Some(python) = python() else { return };
    let folder = process_models(&[("a", tarball("e.tar.gz"))]);
    pack(foreign_venv(&python, "3.99", "/opt/gone/bin").path(), &folder.path("a/e.tar.gz"));
    let log = failure(with_python(folder).unwrap());
    let expected = "e.tar.gz`: it was created with Python 3.99 in `/opt/gone/bin`, which this machine does not have; \
        looked at `/opt/gone/bin/python3.99`, `/opt/gone/bin/python3`, ";
    assert!(log.contains(expected), "{log}");
}

#[test]
fn environment_problem_fails_the_load_with_the_reason() {
    let Some((own, python)) = own_version() else { return };
    let there = tempfile::tempdir().unwrap();
    let place = |name: &str| {
        fs::create_dir_all(there.path().join(name).join("bin")).unwrap();
        there.path().join(name)
    };
    fs::write(there.path().join("file"), "").unwrap();
    executable(&place("old").join("bin/python"), "#!/bin/sh\necho mlserver-interpreter 3.6 /usr/bin/python3.6\n");
    symlink("/opt/gone/bin/python3.9", place("dangling").join("bin/python")).unwrap();
    make_venv(&python, &place("upgraded"), "x");
    fs::write(place("upgraded").join("pyvenv.cfg"), "home = /usr/bin\nversion_info = 3.99.0.final.0\n").unwrap();
    let cases = [
        ("absent", "cannot use `environment_path` ", "No such file or directory"),
        ("file", "is a file; use `environment_tarball` for packed environments", ""),
        ("empty", "contains no interpreter (`bin/python`, `bin/python3`) and no packages", ""),
        ("old", "is Python 3.6: models need Python 3.8 or newer", ""),
        ("dangling", "bin/python` links to `/opt/gone/bin/python3.9`, which does not exist", ""),
        ("upgraded", "was created for Python 3.99, but its `bin/python` is Python ", &own),
    ];
    place("empty");
    for (name, expected, further) in cases {
        let folder = process_models(&[("a", in_path(&there.path().join(name)))]);
        let log = failure(with_python(folder).unwrap());
        let line = log.lines().find(|line| line.contains("ERROR")).unwrap();
        assert!(line.contains(expected) && line.contains(further) && line.contains(name), "{name}: {log}");
    }
    let log = failure(with_python(process_models(&[("a", tarball("absent.tar.gz"))])).unwrap());
    assert!(log.contains("a/absent.tar.gz`: it cannot be read: No such file or directory"), "{log}");
    let hostile = process_models(&[("a", tarball("hostile.zip"))]);
    let mut builder = tar::Builder::new(File::create(hostile.path("a/hostile.zip")).unwrap());
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_size(0);
    header.set_mode(0o777);
    builder.append_link(&mut header, "lib/y", "/etc").unwrap();
    builder.into_inner().unwrap();
    let log = failure(with_python(hostile).unwrap());
    assert!(log.contains("its entry `lib/y` links to `/etc`, which leads out of the folder"), "{log}");
}

#[test]
fn environment_container_archive_is_the_default() {
    let (Some((_, default)), Some((python, version))) = (own_version(), another_python()) else { return };
    let starting = |folder: Folder| {
        // Without the setting, which would take precedence.
        ServerBuilder::new(folder).env("PATH", default.parent().unwrap().to_str().unwrap())
    };
    let folder = process_models(&[("a", json!({}))]);
    packed_venv(python, "container", &folder.path("environment.tar.gz"));
    let archive = folder.path("environment.tar.gz");
    let archive = archive.to_str().unwrap();
    let server = starting(folder).env("MLSERVER_ENV_TARBALL", archive).start();
    let answer = ask(&server, "a", 0);
    assert_eq!((&answer["python"], &answer["only_there"]), (&json!(version), &json!("container")));
    // Images set the variable whether or not there is an archive.
    let server = starting(process_models(&[("a", json!({}))])).env("MLSERVER_ENV_TARBALL", "/no/e.tar.gz").start();
    server.wait_for_log("`/no/e.tar.gz` (`MLSERVER_ENV_TARBALL`) does not exist");
    assert_eq!(ask(&server, "a", 0)["only_there"], Value::Null);
}

#[test]
fn environment_may_be_a_folder_of_packages() {
    let Some((own, _)) = own_version() else { return };
    let packages = Folder::new()
        .file("only_there.py", "NAME = 'packages'\n")
        .file("only_there-1.0.dist-info/WHEEL", "Tag: py3-none-any\n");
    let models = [("a", in_path(packages.root())), ("b", json!({}))];
    let server = with_python(process_models(&models)).unwrap().start();
    assert_eq!(ask(&server, "a", 0)["only_there"], "packages");
    assert_eq!(ask(&server, "b", 0)["only_there"], Value::Null);
    drop(server);
    let packages = packages.file("numpy-1.0.dist-info/WHEEL", "Tag: cp399-cp399-linux_x86_64\n");
    let log = failure(with_python(process_models(&[("a", in_path(packages.root()))])).unwrap());
    let expected =
        format!("was built for another version of Python: expected cp399-cp399-linux_x86_64, found Python {own} (");
    assert!(log.contains(&format!("numpy 1.0 in {}", packages.root().display())) && log.contains(&expected), "{log}");
}
