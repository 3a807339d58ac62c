use bytes::Bytes;
use proptest::prelude::*;

use super::{CompressionFormat, PickleError, read};

fn parse(bytes: &[u8]) -> Result<super::Pickle, PickleError> {
    read(Bytes::copy_from_slice(bytes))
}

fn message(bytes: &[u8]) -> String {
    parse(bytes).unwrap_err().to_string()
}

#[test]
fn read_plain_objects() {
    let pickle = parse(b"(dS'a'\nI1\nsS'b'\n(lF2.5\naI01\naNaL-3L\nas.").unwrap();
    let root = pickle.root();
    assert_eq!(root.get("a").unwrap().as_i64(), Some(1));
    let items = root.get("b").unwrap().items().unwrap();
    assert_eq!(items[0].as_f64(), Some(2.5));
    assert_eq!(items[1].as_bool(), Some(true));
    assert!(items[2].is_none());
    assert_eq!(items[3].as_i64(), Some(-3));
}

#[test]
fn dict_with_equal_keys_keeps_last() {
    assert_eq!(parse(b"}(X\x01\0\0\0aK\x01X\x01\0\0\0aK\x02u.").unwrap().root().get("a").unwrap().as_i64(), Some(2));
}

#[test]
fn read_object_that_contains_itself() {
    let pickle = parse(b"]\x94h\x00a.").unwrap();
    let inner = pickle.root().items().unwrap()[0];
    assert_eq!(inner.items().unwrap().len(), 1);
}

#[test]
fn call_of_unknown_function_is_rejected_by_name() {
    assert_eq!(
        message(b"cos\nsystem\n(S'ls'\ntR."),
        "byte 19: the file calls `os.system`, which is not known to only build data"
    );
    for call in ["cposix\nsystem\n)R.", "c__builtin__\neval\n)R.", "cbuiltins\nexec\n)R.", "cnowhere\nf\n)R."] {
        assert!(matches!(parse(call.as_bytes()), Err(PickleError::Call { .. })), "{call}");
    }
    // An instance of an unknown class is only data.
    let instance = parse(b"cnowhere\nModel\n)\x81}X\x01\0\0\0aK\x05sb.").unwrap();
    assert_eq!(instance.root().class(), Some("nowhere.Model"));
    assert_eq!(instance.root().attribute("a").unwrap().as_i64(), Some(5));
}

#[test]
fn paths_and_namespaces_are_values() {
    // `pickle.dumps` of `[PosixPath("a/b"), SimpleNamespace(x=1)]`, with protocol 0 and 2.
    let files: [&[u8]; 2] = [
        b"(lp0\ncpathlib\nPosixPath\np1\n(Va\np2\nVb\np3\ntp4\nRp5\nactypes\nSimpleNamespace\np6\n(tR(dp7\nVx\np8\nI1\nsba.",
        b"\x80\x02]q\x00(cpathlib\nPosixPath\nq\x01X\x01\x00\x00\x00aq\x02X\x01\x00\x00\x00bq\x03\x86q\x04Rq\x05ctypes\nSimpleNamespace\nq\x06)Rq\x07}q\x08X\x01\x00\x00\x00xq\tK\x01sbe.",
    ];
    for file in files {
        let pickle = parse(file).unwrap();
        let items = pickle.root().items().unwrap();
        assert_eq!((items[0].class(), items[0].arguments().len()), (Some("pathlib.PosixPath"), 2));
        assert_eq!(items[1].attribute("x").unwrap().as_i64(), Some(1));
    }
    for call in ["ctypes\nFunctionType\n)R.", "cshutil\nrmtree\n)R."] {
        assert!(matches!(parse(call.as_bytes()), Err(PickleError::Call { .. })), "{call}");
    }
}

#[test]
fn python_only_opcodes_are_rejected() {
    assert_eq!(message(b"Pid\n."), "byte 0: a persistent identifier cannot be read without Python");
    assert_eq!(message(b"\x82\x01."), "byte 0: an extension code cannot be read without Python");
    assert_eq!(message(b"\x97."), "byte 0: a buffer outside of the file cannot be read without Python");
    assert_eq!(message(b"\xff"), "byte 0: opcode 0xff is not in pickle protocols 0 to 5");
    assert!(matches!(parse(b"ZF0x1"), Err(PickleError::OldJoblib)));
}

#[test]
fn text_is_rejected_with_its_first_characters() {
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32\nsize 12345\n";
    assert_eq!(
        message(pointer),
        r#"the file is text, not a pickle: it begins with "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a21"; put the model's own file there, which a download or a clone may have left out"#
    );
    // `I`, `N` and `t` are opcodes; the last text is a pickle that was encoded, and the one before it ends inside a character.
    let cut = format!("<p>{}", "\u{e9}".repeat(600));
    let texts = [
        "<!DOCTYPE html>\r\n<html>",
        "Internal Server Error",
        "Not Found",
        "tree\nversion=v4",
        &cut,
        "gASVBAAAAAAAAABdlGEu",
    ];
    for text in texts {
        let error = message(text.as_bytes());
        assert!(error.starts_with("the file is text, not a pickle") && error.len() < 400, "{error}");
    }
    assert!(message("\u{1b}[31mfailed".as_bytes()).starts_with("byte 0: opcode 0x1b"));
    let shown = message("<title>\"\u{202e}\t".as_bytes());
    assert!(shown.contains(r#""<title>\"\u{202e}\t""#), "{shown}");
    // Text as well, but a pickle that is damaged further on.
    let pickle = format!("(lp0\n{}?", "I1\na".repeat(30));
    assert_eq!(message(pickle.as_bytes()), "byte 125: opcode 0x3f is not in pickle protocols 0 to 5");
}

#[test]
fn size_beyond_file_is_rejected() {
    for claim in [&b"\x8e\xff\xff\xff\xff\xff\xff\xff\xff"[..], b"\x8b\xff\xff\xff\x7f", b"X\xff\xff\xff\xff", b"("] {
        assert!(matches!(parse(claim), Err(PickleError::Truncated { .. })), "{claim:?}");
    }
    for damaged in [&b"."[..], b"a.", b"]a.", b"(.", b"0.", b"t.", b"}K\x01u.", b"h\x07.", b"R.", b"NNb."] {
        assert!(matches!(parse(damaged), Err(PickleError::Malformed { .. })), "{damaged:?}");
    }
}

#[test]
fn repeated_copies_of_object_are_rejected() {
    // A list of 100,000 elements, from which a set is created 100,000 times.
    let mut bytes = b"c__builtin__\nset\nq\x00](".to_vec();
    bytes.extend(b"N".repeat(100_000));
    bytes.extend(b"eq\x01");
    bytes.extend(b"h\x00h\x01\x85R0".repeat(100_000));
    bytes.push(b'.');
    assert!(message(&bytes).contains("copied too often"), "{}", message(&bytes));
}

#[test]
fn compression_format_is_detected_from_first_bytes() {
    assert_eq!(CompressionFormat::of(b"\x80\x04"), CompressionFormat::Plain);
    assert_eq!(CompressionFormat::of(b"\x78\x9c"), CompressionFormat::Zlib);
    assert_eq!(CompressionFormat::of(b"BZh9"), CompressionFormat::Bzip2);
    assert_eq!(CompressionFormat::of(b""), CompressionFormat::Plain);
    assert!(matches!(parse(b"\x78\x9c\0\0"), Err(PickleError::Decompress { format: CompressionFormat::Zlib, .. })));
}

#[test]
fn decompressed_size_is_limited() {
    use std::io::Write;
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
    let zeros = vec![0; 1 << 20];
    for _ in 0..700 {
        encoder.write_all(&zeros).unwrap();
    }
    assert!(matches!(parse(&encoder.finish().unwrap()), Err(PickleError::TooLarge { .. })));
}

/// Objects that nothing refers to, and entries of the stacks and the memo, take memory, too.
#[test]
fn objects_are_limited_by_the_size_of_the_compressed_file() {
    use std::io::Write;
    for repeated in [&b"N0"[..], b"K\x010", b"(", b"2", b"h\x00", b")0", b"]0", b"\x94"] {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(b"Nq\x00").unwrap();
        let piece = repeated.repeat((1 << 20) / repeated.len());
        for _ in 0..32 {
            encoder.write_all(&piece).unwrap();
        }
        encoder.write_all(b"N.").unwrap();
        let file = encoder.finish().unwrap();
        assert!(file.len() < 100_000, "{}", file.len());
        let error = parse(&file).unwrap_err();
        assert!(
            matches!(error, PickleError::TooMany { what: "objects", limit, .. } if limit < 3 << 20),
            "{}: {error}",
            repeated.escape_ascii()
        );
    }
}

proptest! {
    #[test]
    fn read_does_not_panic_on_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        drop(parse(&bytes));
    }

    #[test]
    fn read_does_not_panic_on_any_program(
        opcodes in proptest::collection::vec(prop::sample::select(&b"().012NRabdeghloqtu]}\x81\x85\x86\x87\x88\x8f\x90\x91\x92\x94"[..]), 0..200)
    ) {
        let mut program = b"cnumpy\ndtype\ncnumpy.core.multiarray\n_reconstruct\n".to_vec();
        program.extend(opcodes);
        drop(parse(&program));
    }
}
