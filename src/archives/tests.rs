//! Tests of unpacking valid, hostile and damaged archives.

use std::fs::{self, File};
use std::io::{Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use proptest::prelude::*;
use tar::{Builder, EntryType, Header};
use tempfile::TempDir;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::packing::{FILE, LINK, PackedEntry, header, tar};
use super::{ArchiveLimits, Refusal, TreeWriter, UnpackError, UnpackedTree, read};
use crate::fixtures::gzip;

const LIMITS: ArchiveLimits = ArchiveLimits { entries: 100, bytes: 1 << 20 };

fn bzip2(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    let mut writer = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::with_preset(1)).unwrap();
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap()
}

fn unpack(bytes: &[u8], limits: ArchiveLimits) -> (TempDir, Result<UnpackedTree, UnpackError>) {
    let folder = tempfile::tempdir().unwrap();
    let mut file: File = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file.rewind().unwrap();
    let root = folder.path().join("root");
    fs::create_dir(&root).unwrap();
    let is_interpreter =
        |root: &Path, path: &Path, _: &Path| path == Path::new("bin/python3") && root.join("pyvenv.cfg").is_file();
    let mut tree = TreeWriter::leaving_out(&root, is_interpreter);
    let outcome = read(file, limits, &mut |entry| tree.write(entry)).and_then(|()| tree.finish());
    // No archive writes outside of its folder.
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    (folder, outcome)
}

#[track_caller]
fn refusal(bytes: &[u8], limits: ArchiveLimits) -> (String, Refusal) {
    match unpack(bytes, limits).1.unwrap_err() {
        UnpackError::Refused { entry, reason } => (entry.to_string_lossy().into_owned(), reason),
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn unpack_refuses_hostile_entries() {
    let outside = |target: &str| Refusal::LinkOutside { target: target.into() };
    let hard = |target: &str| Refusal::HardLink { target: target.into() };
    let cases: &[(&[PackedEntry<'_>], &str, Refusal)] = &[
        (&[(FILE, "/etc/x", 0o644, "")], "/etc/x", Refusal::Absolute),
        (&[(FILE, "../x", 0o644, "")], "../x", Refusal::Outside),
        (&[(FILE, "a/../../x", 0o644, "")], "a/../../x", Refusal::Outside),
        (&[(EntryType::Directory, "../d", 0o755, "")], "../d", Refusal::Outside),
        (&[(LINK, "l", 0o777, "/etc/passwd")], "l", outside("/etc/passwd")),
        (&[(LINK, "l", 0o777, "..")], "l", outside("..")),
        (&[(LINK, "a/l", 0o777, "../../x")], "a/l", outside("../../x")),
        // The target looks harmless, but `d` is one level higher than its path suggests.
        (&[(LINK, "a/b/d", 0o777, "."), (LINK, "l", 0o777, "a/b/d/../../..")], "l", outside("a/b/d/../../..")),
        (&[(LINK, "l", 0o777, "m"), (LINK, "m", 0o777, "l")], "l", Refusal::LinkLoop),
        (&[(LINK, "bin/python3", 0o777, "/usr/bin/python3")], "bin/python3", outside("/usr/bin/python3")),
        (
            &[(FILE, "pyvenv.cfg", 0o644, "home = /bin"), (LINK, "bin/python", 0o777, "/bin/sh")],
            "bin/python",
            outside("/bin/sh"),
        ),
        (
            &[(FILE, "pyvenv.cfg", 0o644, "home = /bin"), (LINK, "lib/python", 0o777, "/bin/python3")],
            "lib/python",
            outside("/bin/python3"),
        ),
        (&[(EntryType::Link, "h", 0o644, "/etc/passwd")], "h", hard("/etc/passwd")),
        (&[(EntryType::Link, "h", 0o644, "../../etc/passwd")], "h", hard("../../etc/passwd")),
        (&[(LINK, "l", 0o777, "x"), (EntryType::Link, "h", 0o644, "l")], "h", hard("l")),
        (&[(EntryType::Block, "dev/sda", 0o644, "")], "dev/sda", Refusal::Kind("a device")),
        (&[(EntryType::Char, "dev/mem", 0o644, "")], "dev/mem", Refusal::Kind("a device")),
        (&[(EntryType::Fifo, "p", 0o644, "")], "p", Refusal::Kind("a pipe")),
        (&[(EntryType::GNUSparse, "s", 0o644, "")], "s", Refusal::Kind("a sparse file")),
        (&[(FILE, "su", 0o4755, "")], "su", Refusal::SetId),
        (&[(FILE, "sg", 0o2755, "")], "sg", Refusal::SetId),
        (&[(FILE, "a/b", 0o644, ""), (FILE, "a", 0o644, "")], "a", Refusal::Taken),
        (&[(FILE, "a", 0o644, ""), (FILE, "a/b", 0o644, "")], "a/b", Refusal::Taken),
        (&[(LINK, "a", 0o777, "x"), (FILE, "a/b", 0o644, "")], "a", Refusal::Taken),
        (&[(LINK, "a", 0o777, "x"), (FILE, "a", 0o644, "")], "a", Refusal::Taken),
        (&[(LINK, "a", 0o777, "x"), (LINK, "a", 0o777, "y")], "a", Refusal::Taken),
    ];
    for (entries, entry, reason) in cases {
        let bytes = tar(entries);
        for bytes in [gzip(&bytes), bzip2(&bytes), xz(&bytes), bytes] {
            let (refused, why) = refusal(&bytes, LIMITS);
            assert_eq!((refused.as_str(), &why), (*entry, reason), "{entries:?}");
        }
    }
}

#[test]
fn unpack_stops_decompression_bombs_at_limits() {
    let large = "x".repeat(1000);
    let names: Vec<String> = (0..200).map(|number| format!("f{number}")).collect();
    let entries = |count: usize| -> Vec<PackedEntry<'_>> {
        names[..count].iter().map(|name| (FILE, name.as_str(), 0o644, large.as_str())).collect()
    };
    assert!(unpack(&tar(&entries(100)), LIMITS).1.is_ok());
    assert_eq!(refusal(&tar(&entries(101)), LIMITS), ("f100".to_owned(), Refusal::TooMany { limit: 100 }));
    let few = ArchiveLimits { bytes: 10_000, ..LIMITS };
    let (entry, reason) = refusal(&gzip(&tar(&entries(100))), few);
    assert_eq!(reason, Refusal::TooLarge { limit: 10_000 });
    assert!(["f5", "f6"].contains(&entry.as_str()), "{entry}");
    // A name that is longer than any header that is kept.
    let mut name = Header::new_gnu();
    name.set_entry_type(EntryType::GNULongName);
    name.set_size(1 << 19);
    name.set_cksum();
    let mut builder = Builder::new(Vec::new());
    builder.append(&name, vec![b'n'; 1 << 19].as_slice()).unwrap();
    assert!(matches!(refusal(&builder.into_inner().unwrap(), LIMITS).1, Refusal::LongName { .. }));
    assert_eq!(ArchiveLimits::of(1 << 20).bytes, 164 << 20);
}

#[test]
fn unpack_restores_files_links_and_permissions() {
    let long = format!("lib/{}/module.py", "d".repeat(180));
    let mut builder = Builder::new(Vec::new());
    for entry in [
        (EntryType::Directory, "bin/", 0o755, ""),
        (FILE, "./bin/tool", 0o644, "replaced by the next"),
        (FILE, "bin/tool", 0o775, "#!x\n"),
        (FILE, "pyvenv.cfg", 0o600, "home = /usr/bin\nversion = 3.11.2\n"),
        (LINK, "bin/python3", 0o777, "/usr/bin/python3"),
        (LINK, "bin/python", 0o777, "python3"),
        (LINK, "lib64", 0o777, "lib"),
        (LINK, "share/up", 0o777, "../lib/../bin/tool"),
        (EntryType::Link, "bin/tool2", 0o755, "bin/tool"),
    ] {
        let (header, data) = header(entry);
        builder.append(&header, data.as_slice()).unwrap();
    }
    let (mut of_long, data) = header((FILE, "", 0o644, "long"));
    builder.append_data(&mut of_long, &long, data.as_slice()).unwrap();
    let pax = [("path", "from-pax.py".as_bytes()), ("mtime", b"1.5")];
    builder.append_pax_extensions(pax).unwrap();
    let (of_pax, data) = header((FILE, "truncated", 0o644, "pax"));
    builder.append(&of_pax, data.as_slice()).unwrap();
    let bytes = builder.into_inner().unwrap();
    let zstd = ruzstd::encoding::compress_to_vec(bytes.as_slice(), ruzstd::encoding::CompressionLevel::Fastest);
    for bytes in [gzip(&bytes), bzip2(&bytes), xz(&bytes), zstd, bytes] {
        let (folder, filled) = unpack(&bytes, LIMITS);
        let root = folder.path().join("root");
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
        let mode = |path: &str| fs::metadata(root.join(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!((read("share/up").as_str(), read("bin/tool2").as_str()), ("#!x\n", "#!x\n"));
        assert_eq!((mode("bin/tool"), mode("pyvenv.cfg")), (0o755, 0o644));
        assert_eq!((read(&long).as_str(), read("from-pax.py").as_str()), ("long", "pax"));
        assert_eq!(fs::read_link(root.join("bin/python")).unwrap(), Path::new("python3"));
        assert_eq!(fs::read_link(root.join("lib64")).unwrap(), Path::new("lib"));
        // The caller creates this link.
        assert!(!root.join("bin/python3").exists());
        let left_out = [("bin/python3".into(), "/usr/bin/python3".into())];
        assert_eq!(filled.unwrap().left_out, left_out.into());
    }
}

#[test]
fn unpack_reads_zip_archives() {
    let file = |entries: &[(&str, u32, &str)]| {
        let mut writer = ZipWriter::new(std::io::Cursor::new(Vec::new()));
        for (name, mode, text) in entries {
            let options = SimpleFileOptions::default().unix_permissions(*mode);
            if mode & 0o120_000 == 0o120_000 {
                writer.add_symlink(*name, *text, options).unwrap();
            } else {
                writer.start_file(*name, options).unwrap();
                writer.write_all(text.as_bytes()).unwrap();
            }
        }
        writer.finish().unwrap().into_inner()
    };
    let (folder, filled) =
        unpack(&file(&[("bin/tool", 0o755, "x"), ("lib/a.py", 0o644, "y"), ("l", 0o120_777, "lib/a.py")]), LIMITS);
    assert_eq!(filled.unwrap().files, 2);
    let root = folder.path().join("root");
    assert_eq!(fs::read_to_string(root.join("l")).unwrap(), "y");
    assert_eq!(fs::metadata(root.join("bin/tool")).unwrap().permissions().mode() & 0o7777, 0o755);
    assert_eq!(refusal(&file(&[("../x", 0o644, "")]), LIMITS), ("../x".to_owned(), Refusal::Outside));
    let outside = Refusal::LinkOutside { target: "/etc".into() };
    assert_eq!(refusal(&file(&[("l", 0o120_777, "/etc")]), LIMITS), ("l".to_owned(), outside));
    let zeros = "\0".repeat(1 << 20);
    assert_eq!(refusal(&file(&[("a", 0o644, "x"), ("b", 0o644, &zeros)]), LIMITS).0, "b");
}

#[test]
fn unpack_rejects_other_formats_and_damaged_archives() {
    let whole = gzip(&tar(&[(FILE, "a", 0o644, "text")]));
    let mut changed = whole.clone();
    let checksum = changed.len() - 6;
    changed[checksum] ^= 1;
    let cases: [(&[u8], &str); 7] = [
        (b"", "it is not an archive: expected tar.gz, tar.bz2, tar.xz, tar.zst, tar or zip"),
        (b"hello", "it is not an archive: expected tar.gz, tar.bz2, tar.xz, tar.zst, tar or zip"),
        (b"BZh91AY", "it is damaged"),
        (b"\xfd7zXZ\0", "it is damaged"),
        (&whole[..whole.len() / 2], "it is damaged"),
        (&changed, "it is damaged"),
        (b"PK\x03\x04", "it is damaged"),
    ];
    for (bytes, expected) in cases {
        assert_eq!(unpack(bytes, LIMITS).1.unwrap_err().to_string(), expected, "{}", bytes.escape_ascii());
    }
}

proptest! {
    /// No archive causes a panic or a write outside of the folder.
    #[test]
    fn unpack_never_writes_outside_folder(
        entries in prop::collection::vec((0..5_usize, "[ab./]{1,6}", "[ab./]{1,8}"), 1..12)
    ) {
        let kinds = [FILE, LINK, EntryType::Link, EntryType::Directory, LINK];
        let packed: Vec<PackedEntry<'_>> = entries
            .iter()
            .map(|(kind, path, text)| (kinds[*kind], path.as_str(), 0o644, text.as_str()))
            .collect();
        let (folder, outcome) = unpack(&tar(&packed), LIMITS);
        if outcome.is_ok() {
            let root = folder.path().join("root").canonicalize().unwrap();
            let mut ahead = vec![root.clone()];
            while let Some(next) = ahead.pop() {
                for entry in fs::read_dir(next).unwrap() {
                    let path = entry.unwrap().path();
                    if let Ok(real) = path.canonicalize() {
                        prop_assert!(real.starts_with(&root), "{}", path.display());
                    }
                    if path.symlink_metadata().unwrap().is_dir() {
                        ahead.push(path);
                    }
                }
            }
        }
    }

    /// Changing any byte of an archive causes no panic and no write outside of the folder.
    #[test]
    fn unpack_survives_damaged_archives(at in 0..2048_usize, byte: u8) {
        let mut bytes = tar(&[(FILE, "a/b", 0o755, "text"), (LINK, "l", 0o777, "a/b")]);
        bytes[at] = byte;
        let _ = unpack(&bytes, LIMITS);
    }
}

#[test]
fn unpack_keeps_names_that_are_not_utf8() {
    let mut header = header((FILE, "x", 0o644, "")).0;
    header.as_old_mut().name[..2].copy_from_slice(b"\xff\xfe");
    header.set_cksum();
    let mut builder = Builder::new(Vec::new());
    builder.append(&header, &[][..]).unwrap();
    let (folder, filled) = unpack(&builder.into_inner().unwrap(), LIMITS);
    assert_eq!(filled.unwrap().files, 1);
    let name = fs::read_dir(folder.path().join("root")).unwrap().next().unwrap().unwrap().file_name();
    assert_eq!(name.as_bytes(), b"\xff\xfe");
}
