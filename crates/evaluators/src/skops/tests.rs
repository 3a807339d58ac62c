use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::DeflateEncoder;
use proptest::prelude::*;

use super::{SkopsError, is_archive, read};
use crate::pickle::{ElementKind, Pickle};

/// An entry of an archive, with fields that may be wrong.
#[derive(Clone)]
struct TestEntry {
    name: Vec<u8>,
    local_name: Vec<u8>,
    flags: u16,
    method: u16,
    content: Vec<u8>,
    checksum: u32,
    size: u32,
    extra: Vec<u8>,
    /// Where the directory finds it, instead of where it is.
    offset: Option<u32>,
}

impl TestEntry {
    fn new(name: &str, content: impl AsRef<[u8]>) -> Self {
        let content = content.as_ref().to_vec();
        let mut checksum = flate2::Crc::new();
        checksum.update(&content);
        Self {
            name: name.into(),
            local_name: name.into(),
            flags: 0,
            method: 0,
            checksum: checksum.sum(),
            size: content.len().try_into().unwrap(),
            content,
            extra: Vec::new(),
            offset: None,
        }
    }

    fn deflated(self) -> Self {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&self.content).unwrap();
        Self { content: encoder.finish().unwrap(), method: 8, ..self }
    }
}

/// Writes an archive, and returns where its directory is, too.
fn archive_and_directory(entries: &[TestEntry]) -> (Vec<u8>, usize) {
    let short = |length: usize| u16::try_from(length).unwrap().to_le_bytes();
    let long = |length: usize| u32::try_from(length).unwrap().to_le_bytes();
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for entry in entries {
        let offset = entry.offset.map_or(long(file.len()), u32::to_le_bytes);
        let common = [
            &entry.flags.to_le_bytes()[..],
            &entry.method.to_le_bytes(),
            &[0; 4],
            &entry.checksum.to_le_bytes(),
            &long(entry.content.len()),
            &entry.size.to_le_bytes(),
        ]
        .concat();
        let local_name = short(entry.local_name.len());
        file.extend(
            [b"PK\x03\x04\x14\0", &common[..], &local_name, &[0; 2], &entry.local_name, &entry.content].concat(),
        );
        let lengths = [short(entry.name.len()), short(entry.extra.len())].concat();
        let row = [b"PK\x01\x02\x14\0\x14\0", &common[..], &lengths, &[0; 10], &offset, &entry.name, &entry.extra];
        directory.extend(row.concat());
    }
    let start = file.len();
    let count = short(entries.len());
    file.extend(&directory);
    file.extend([b"PK\x05\x06\0\0\0\0", &count[..], &count, &long(directory.len()), &long(start), &[0; 2]].concat());
    (file, start)
}

fn archive(entries: &[TestEntry]) -> Vec<u8> {
    archive_and_directory(entries).0
}

fn schema(root: &str) -> TestEntry {
    TestEntry::new(
        "schema.json",
        format!("{}, \"protocol\": 2, \"_skops_version\": \"0.16.0\"}}", &root[..root.len() - 1]),
    )
}

/// Reads a file of a schema and other entries.
fn read_with(root: &str, others: &[TestEntry]) -> Result<Pickle, SkopsError> {
    read(archive(&[&[schema(root)], others].concat()).into())
}

fn message(root: &str) -> String {
    read_with(root, &[]).unwrap_err().to_string()
}

fn node(module: &str, class: &str, loader: &str, rest: &str) -> String {
    format!(r#"{{"__class__": "{class}", "__module__": "{module}", "__loader__": "{loader}"{rest}}}"#)
}

fn json(value: &str) -> String {
    let content = serde_json::to_string(value).unwrap();
    node("builtins", "str", "JsonNode", &format!(r#", "content": {content}, "is_json": true"#))
}

fn sequence(class: &str, items: &[String]) -> String {
    let loader = format!("{}{}Node", class[..1].to_uppercase(), &class[1..]);
    node("builtins", class, &loader, &format!(r#", "content": [{}]"#, items.join(",")))
}

fn dict_of(class: (&str, &str), entries: &[(&str, &str, String)]) -> String {
    let types: Vec<_> = entries.iter().map(|(kind, ..)| node("builtins", kind, "TypeNode", "")).collect();
    let members: Vec<_> = entries.iter().map(|(_, key, value)| format!(r#""{key}": {value}"#)).collect();
    let types = sequence("list", &types);
    node(class.0, class.1, "DictNode", &format!(r#", "content": {{{}}}, "key_types": {types}"#, members.join(",")))
}

fn dict(entries: &[(&str, &str, String)]) -> String {
    dict_of(("builtins", "dict"), entries)
}

fn npy(header: &str, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(header.len()).unwrap().to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), data].concat()
}

fn doubles(shape: &str, values: &[f64]) -> Vec<u8> {
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    npy(&format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}   \n"), &data)
}

fn array(file: &str) -> String {
    node("numpy", "ndarray", "NdArrayNode", &format!(r#", "type": "numpy", "file": "{file}""#))
}

/// Reads an array.
fn read_array(file: &[u8]) -> Result<Pickle, SkopsError> {
    read_with(&array("1.npy"), &[TestEntry::new("1.npy", file)])
}

#[test]
fn values_and_containers_are_read() {
    let root = dict(&[
        ("str", "text", json(r#""a\u00e9\n""#)),
        ("int", "7", json("-12")),
        ("float", "0.5", json("0.1")),
        ("str", "none", json("null")),
        ("str", "flag", json("true")),
        ("str", "large", json("123456789012345678901234567890")),
        ("str", "nan", json("NaN")),
        ("str", "infinity", json("-Infinity")),
        ("str", "list", sequence("list", &[json("1"), json("2")])),
        ("str", "tuple", sequence("tuple", &[json("1.5")])),
        ("str", "set", sequence("set", &[])),
    ]);
    let pickle = read_with(&root, &[]).unwrap();
    let root = pickle.root();
    assert_eq!(root.get("text").unwrap().as_str(), Some("a\u{e9}\n"));
    let entries = root.entries().unwrap();
    assert_eq!((entries[1].0.as_i64(), entries[1].1.as_i64()), (Some(7), Some(-12)));
    assert_eq!((entries[2].0.as_f64(), entries[2].1.as_f64()), (Some(0.5), Some(0.1)));
    assert!(root.get("none").unwrap().is_none());
    assert_eq!(root.get("flag").unwrap().as_bool(), Some(true));
    assert_eq!((root.get("large").unwrap().as_i64(), root.get("large").unwrap().describe()), (None, "int"));
    assert!(root.get("nan").unwrap().as_f64().unwrap().is_nan());
    assert_eq!(root.get("infinity").unwrap().as_f64(), Some(f64::NEG_INFINITY));
    assert_eq!(root.get("list").unwrap().items().unwrap().len(), 2);
    assert_eq!(root.get("tuple").unwrap().items().unwrap()[0].as_f64(), Some(1.5));
    assert_eq!(root.get("set").unwrap().describe(), "set");
}

#[test]
fn objects_have_the_form_of_pickles() {
    let state = dict(&[
        ("str", "type", node("numpy._core.multiarray", "dot", "TypeNode", "")),
        (
            "str",
            "slice",
            node("builtins", "slice", "SliceNode", r#", "content": {"start": 1, "stop": null, "step": -2}"#),
        ),
        (
            "str",
            "set",
            node(
                "builtins",
                "frozenset",
                "ConstructorFromReduceNode",
                &format!(r#", "content": {}"#, sequence("tuple", &[sequence("list", &[json("1")])])),
            ),
        ),
        ("str", "bunch", dict_of(("sklearn.utils._bunch", "Bunch"), &[("str", "a", json("1"))])),
        ("str", "named", node("a", "Point", "TupleNode", &format!(r#", "content": [{}]"#, json("1")))),
        (
            "str",
            "partial",
            node(
                "functools",
                "partial",
                "PartialNode",
                &format!(
                    r#", "content": {{"func": {}, "args": {}, "kwds": {}, "namespace": {}}}"#,
                    node("numpy", "sum", "FunctionNode", ""),
                    sequence("tuple", &[]),
                    dict(&[]),
                    json("null"),
                ),
            ),
        ),
        ("str", "bytes", node("builtins", "bytearray", "BytearrayNode", r#", "file": "x.bin""#)),
    ]);
    let root = node("sklearn.svm._classes", "SVC", "ObjectNode", &format!(r#", "content": {state}"#));
    let pickle = read_with(&root, &[TestEntry::new("x.bin", b"abc").deflated()]).unwrap();
    let root = pickle.root();
    assert_eq!(root.class(), Some("sklearn.svm._classes.SVC"));
    assert_eq!(root.attribute("type").unwrap().global(), Some("numpy.core.multiarray.dot"));
    let slice = root.attribute("slice").unwrap();
    assert_eq!((slice.class(), slice.arguments()[2].as_i64()), (Some("builtins.slice"), Some(-2)));
    let set = root.attribute("set").unwrap();
    assert_eq!((set.describe(), set.items().unwrap().len()), ("set", 1));
    let bunch = root.attribute("bunch").unwrap();
    assert_eq!((bunch.class(), bunch.entries().unwrap().len()), (Some("sklearn.utils._bunch.Bunch"), 1));
    assert_eq!(root.attribute("named").unwrap().arguments().len(), 1);
    let partial = root.attribute("partial").unwrap();
    assert_eq!((partial.class(), partial.arguments()[0].global()), (Some("functools.partial"), Some("numpy.sum")));
    assert_eq!(partial.state().unwrap().items().unwrap().len(), 4);
    assert_eq!(root.attribute("bytes").unwrap().as_bytes(), Some(&b"abc"[..]));
}

#[test]
fn first_node_with_an_identifier_counts() {
    let with_id = |value: &str| json(value).replace(r#""is_json""#, r#""__id__": 5, "is_json""#);
    let root = sequence(
        "list",
        &[with_id("1"), with_id("2"), r#"{"__class__": null, "__module__": null, "__id__": 5}"#.into()],
    );
    let pickle = read_with(&root, &[]).unwrap();
    let items: Vec<_> = pickle.root().items().unwrap().into_iter().map(crate::pickle::PickleValue::as_i64).collect();
    assert_eq!(items, [Some(1); 3], "as in skops, which ignores what follows");
    let inner = r#"{"__class__": "list", "__module__": "builtins", "__loader__": "ListNode", "__id__": 9}"#;
    let cycle = node("builtins", "list", "ListNode", &format!(r#", "content": [{inner}], "__id__": 9"#));
    assert_eq!(message(&cycle), "`builtins.list` cannot be read without Python: it contains itself");
}

#[test]
fn arrays_are_read() {
    let pickle = read_array(&doubles("(2, 3)", &[0., 1., 2., 3., 4., 5.])).unwrap();
    let read = pickle.root().as_array().unwrap();
    assert_eq!((&read.shape[..], read.numbers().unwrap().to_f64()), (&[2, 3][..], vec![0., 1., 2., 3., 4., 5.]));
    let fortran = npy("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 2), }\n", &[1, 2, 3, 4]);
    assert_eq!(read_array(&fortran).unwrap().root().as_array().unwrap().numbers().unwrap().to_f64(), [1., 3., 2., 4.]);
    let structure = npy(
        "{'descr': [('left', '<i4'), ('', '|V4'), ('value', '<f8'), ('set', '<u4', (2,))], 'fortran_order': False, 'shape': (1,), }",
        &[&7_i32.to_le_bytes()[..], &[9; 4], &2.5_f64.to_le_bytes(), &[0; 8]].concat(),
    );
    let pickle = read_array(&structure).unwrap();
    let nodes = pickle.root().as_array().unwrap();
    assert_eq!(nodes.field("left").unwrap().to_i64(), Some(vec![7]));
    assert_eq!(nodes.field("value").unwrap().to_f64(), [2.5]);
    assert!(nodes.field("set").is_none(), "not interpreted");
    let scalar = |class: &str| {
        let root = array("1.npy").replace("ndarray", class);
        read_with(&root, &[TestEntry::new("1.npy", doubles("()", &[0.25]))])
    };
    assert_eq!(scalar("float64").unwrap().root().as_f64(), Some(0.25));
    for class in ["float32", "matrix", "memmap"] {
        assert!(matches!(scalar(class), Err(SkopsError::Unsupported { .. })), "{class}");
    }
    let dtype = node("numpy", "dtype", "DTypeNode", &format!(r#", "content": {}"#, array("1.npy")));
    let pickle = read_with(&dtype, &[TestEntry::new("1.npy", doubles("(0,)", &[]))]).unwrap();
    assert_eq!(pickle.root().as_dtype().unwrap().kind, ElementKind::Float);
}

#[test]
fn arrays_of_objects_are_read() {
    let of = |items: &[String], shape: &[&str]| {
        let shape: Vec<_> = shape.iter().map(|dimension| json(dimension)).collect();
        let rest =
            format!(r#", "type": "json", "content": [{}], "shape": {}"#, items.join(","), sequence("tuple", &shape));
        read_with(&node("numpy", "ndarray", "NdArrayNode", &rest), &[])
    };
    let flat = of(&[json("\"a\""), sequence("list", &[json("1")])], &["2"]).unwrap();
    assert_eq!(flat.root().items().unwrap()[0].as_str(), Some("a"));
    let row = || sequence("list", &[json("1"), json("null")]);
    assert_eq!(of(&[row(), row(), row()], &["3", "2"]).unwrap().root().items().unwrap().len(), 6);
    for (items, shape) in [(vec![row(), row()], ["3", "2"]), (vec![row()], ["1", "3"]), (vec![json("1")], ["1", "1"])] {
        assert!(matches!(of(&items, &shape), Err(SkopsError::Schema { .. })), "{shape:?}");
    }
    // NumPy would make an array of three dimensions of it.
    let inner = sequence("list", &[row(), row()]);
    assert!(matches!(of(&[inner.clone(), inner], &["2", "2"]), Err(SkopsError::Unsupported { .. })));
}

#[test]
fn sparse_matrices_are_read() {
    let integers = |values: &[i64]| {
        let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        npy(&format!("{{'descr': '<i8', 'fortran_order': False, 'shape': ({},), }}", values.len()), &data)
    };
    let format = npy("{'descr': '|S3', 'fortran_order': False, 'shape': (), }", b"csr");
    let entries = [
        TestEntry::new("format.npy", format).deflated(),
        TestEntry::new("shape.npy", integers(&[1, 4])).deflated(),
        TestEntry::new("indptr.npy", integers(&[0, 1])).deflated(),
        TestEntry::new("indices.npy", integers(&[2])).deflated(),
        TestEntry::new("data.npy", doubles("(1,)", &[7.5])).deflated(),
    ];
    let root =
        |class: &str| node("scipy.sparse._csr", class, "SparseMatrixNode", r#", "type": "scipy", "file": "1.npz""#);
    let npz = [TestEntry::new("1.npz", archive(&entries))];
    let pickle = read_with(&root("csr_matrix"), &npz).unwrap();
    let matrix = pickle.root();
    assert_eq!(matrix.class(), Some("scipy.sparse._csr.csr_matrix"));
    assert_eq!(matrix.attribute("_shape").unwrap().items().unwrap()[1].as_i64(), Some(4));
    assert_eq!(matrix.attribute("data").unwrap().as_array().unwrap().numbers().unwrap().to_f64(), [7.5]);
    assert!(matches!(read_with(&root("csr_array"), &npz), Err(SkopsError::Unsupported { .. })));
}

#[test]
fn unknown_nodes_are_refused_by_name() {
    assert_eq!(
        message(&node("quantile_forest._quantile_forest_fast", "QuantileForest", "QuantileForestNode", "")),
        "`quantile_forest._quantile_forest_fast.QuantileForest` is stored as `QuantileForestNode`, which is not known to only hold data"
    );
    assert!(message(r#"{"content": 1}"#).contains("`__class__` and `__module__`"));
    assert!(
        message(&node("builtins", "str", "JsonNode", r#", "content": "[1]""#))
            .contains("a text, number, Boolean or null")
    );
    let keys = node(
        "builtins",
        "dict",
        "DictNode",
        &format!(r#", "content": {{"a": {}}}, "key_types": {}"#, json("1"), sequence("list", &[])),
    );
    assert!(message(&keys).contains("its keys are not as many as their types"));
    assert!(message(&dict(&[("bytes", "a", json("1"))])).contains("it has keys that are neither texts nor numbers"));
    assert!(message(&dict(&[("str", "a", json("1")), ("str", "a", json("2"))])).contains("its keys"));
}

#[test]
fn later_protocols_are_refused() {
    let with = |protocol: &str| {
        let text = format!("{}, \"protocol\": {protocol}}}", &json("1")[..json("1").len() - 1]);
        read(archive(&[TestEntry::new("schema.json", text)]).into())
    };
    for protocol in ["0", "1", "2"] {
        assert!(with(protocol).is_ok());
    }
    assert_eq!(
        with("3").unwrap_err().to_string(),
        "the file was written with protocol 3 of skops; protocols 0 to 2 are read"
    );
    for protocol in ["-1", "true", "2.0", "null", "\"2\""] {
        assert!(matches!(with(protocol), Err(SkopsError::Schema { .. })), "{protocol}");
    }
}

/// Python's readers see other files in such archives than other readers, or refuse them.
#[test]
fn hostile_archives_are_rejected() {
    let good = schema(&json("1"));
    let other = TestEntry::new("1.npy", b"abc");
    let error = |entries: &[TestEntry]| read(archive(entries).into()).unwrap_err().to_string();
    for name in ["../a.npy", "/etc/passwd", "a/../../b", "a\\b", "C:x", ""] {
        let found = error(&[good.clone(), TestEntry::new(name, b"")]);
        assert!(found.ends_with("is a path out of it"), "{name}: {found}");
    }
    assert_eq!(
        error(&[good.clone(), other.clone(), other.clone()]),
        "the archive is not one that skops writes: `1.npy` is there twice"
    );
    let encrypted = TestEntry { flags: 1, ..other.clone() };
    assert!(error(&[good.clone(), encrypted]).ends_with("`1.npy` is encrypted"));
    let bzip2 = TestEntry { method: 12, ..other.clone() };
    assert!(error(&[good.clone(), bzip2]).ends_with("`1.npy` is compressed by another method than deflate"));
    let renamed = TestEntry { local_name: b"2.npy".to_vec(), ..other.clone() };
    assert!(error(&[good.clone(), renamed]).ends_with("`1.npy` has two names"));
    let latin = TestEntry { name: b"\xe9.npy".to_vec(), ..other.clone() };
    assert!(error(&[good.clone(), latin]).ends_with("an entry has a name that is not in UTF-8"));
    // Two rows of the directory share the bytes of one entry.
    let shared = TestEntry { offset: Some(0), content: good.content.clone(), size: good.size, ..good.clone() };
    assert!(error(&[good.clone(), shared]).ends_with("`schema.json` is there twice"));
    let mut overlapping = other.clone();
    let inner = archive_and_directory(&[TestEntry::new("2.npy", b"abc")]);
    overlapping.content = inner.0[..inner.1].to_vec();
    overlapping.size = overlapping.content.len().try_into().unwrap();
    let start = 30 + "schema.json".len() + good.content.len();
    let inside = TestEntry { offset: Some((start + 30 + 5).try_into().unwrap()), ..TestEntry::new("2.npy", b"abc") };
    assert!(error(&[good.clone(), overlapping, inside]).ends_with("its entries overlap"));
    let far = TestEntry { offset: Some(u32::MAX - 1), ..other.clone() };
    assert_eq!(error(&[good.clone(), far]), "`1.npy` in the archive is damaged: it is not where it is declared to be");
    assert_eq!(error(&[other]), "the archive has no `schema.json`");
    let before = [b"#!/bin/sh\n".to_vec(), archive(std::slice::from_ref(&good))].concat();
    assert!(read(before.into()).unwrap_err().to_string().ends_with("its directory is not where it is declared to be"));
    let mut wrong = archive(std::slice::from_ref(&good));
    let end = wrong.len() - 22;
    wrong[end + 8] = 9;
    assert!(read(wrong.clone().into()).unwrap_err().to_string().ends_with("it is a part of several"));
    wrong[end + 10] = 9;
    assert!(matches!(read(wrong.into()), Err(SkopsError::UnusualArchive { .. })));
    let named = TestEntry::new("a\u{1b}[2J", b"");
    assert!(error(&[good, named]).ends_with("`a\\u{1b}[2J` has control characters in its name"));
}

#[test]
fn damaged_entries_are_rejected() {
    let good = schema(&json("1"));
    let error = |entry: TestEntry| read(archive(&[entry]).into()).unwrap_err();
    let sum = TestEntry { checksum: good.checksum ^ 1, ..good.clone() };
    assert_eq!(error(sum.clone()).to_string(), "`schema.json` in the archive is damaged: its checksum is wrong");
    assert!(!error(sum).is_refusal());
    let deflated = good.clone().deflated();
    assert!(read(archive(std::slice::from_ref(&deflated)).into()).is_ok());
    for size in [0, deflated.size - 1, deflated.size + 1] {
        let found = error(TestEntry { size, ..deflated.clone() }).to_string();
        assert!(found.ends_with("`schema.json` does not have the size that is declared"), "{size}: {found}");
    }
    let cut = TestEntry { content: deflated.content[..deflated.content.len() / 2].to_vec(), ..deflated.clone() };
    assert!(matches!(error(cut), SkopsError::Entry { .. }));
    let garbage = TestEntry { content: vec![0xff; 50], ..deflated };
    assert!(error(garbage).to_string().ends_with("it cannot be decompressed"));
}

#[test]
fn bombs_are_rejected() {
    // More than the limit of small files, whether it is declared or not.
    let bomb = TestEntry::new("schema.json", vec![b' '; 16 << 20]).deflated();
    let declared = TestEntry { size: 1 << 30, ..bomb.clone() };
    let error = read(archive(&[declared]).into()).unwrap_err();
    assert!(matches!(error, SkopsError::TooLarge { .. }), "{error}");
    assert!(error.is_refusal());
    let lying = TestEntry { size: 100, ..bomb.clone() };
    assert!(matches!(read(archive(&[lying]).into()), Err(SkopsError::UnusualEntry { .. })));
    // Sizes of 64 bits.
    for number in [1_u64 << 63, u64::MAX, u64::MAX - 40] {
        let extra = [&[1, 0, 8, 0][..], &number.to_le_bytes()].concat();
        let size = TestEntry { size: u32::MAX, extra: extra.clone(), ..bomb.clone() };
        assert!(matches!(read(archive(&[size]).into()), Err(SkopsError::TooLarge { .. })));
        let stored = TestEntry { size: u32::MAX, extra: extra.clone(), ..schema(&json("1")) };
        assert!(matches!(read(archive(&[stored]).into()), Err(SkopsError::UnusualEntry { .. })));
        let place = TestEntry { offset: Some(u32::MAX), extra, ..schema(&json("1")) };
        assert!(matches!(read(archive(&[place]).into()), Err(SkopsError::Entry { .. })));
    }
    // A record of 64 bits whose directory is as large.
    let (file, start) = archive_and_directory(&[schema(&json("1"))]);
    let end = file.len() - 22;
    let record = |size: u64, offset: u64| {
        let numbers = [1, 1, size, offset].map(u64::to_le_bytes).concat();
        let record = [b"PK\x06\x06\x2c\0\0\0\0\0\0\0\x2d\0\x2d\0\0\0\0\0\0\0\0\0", &numbers[..]].concat();
        let locator = [b"PK\x06\x07\0\0\0\0", &(end as u64).to_le_bytes()[..], &[1, 0, 0, 0]].concat();
        [&file[..end], &record, &locator, &file[end..]].concat()
    };
    assert!(
        read(record((end - start) as u64, start as u64).into()).is_ok(),
        "an archive of many entries has this record"
    );
    for (size, offset) in [(u64::MAX, 1), (1 << 63, 1 << 63), (0, u64::MAX), (0, 0)] {
        assert!(matches!(read(record(size, offset).into()), Err(SkopsError::UnusualArchive { .. })));
    }
}

#[test]
fn large_and_deep_schemas_are_rejected() {
    let nested = |depth: usize| {
        let root = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        read(archive(&[TestEntry::new("schema.json", root)]).into()).unwrap_err()
    };
    for depth in [120, 200, 1_000_000] {
        assert!(nested(depth).is_refusal());
    }
    assert!(matches!(nested(200), SkopsError::Json { .. }));
    // A million values take 2 MB here, but 32 in memory.
    let many = format!("[{}1]", "1,".repeat(1 << 22));
    let error = read(archive(&[TestEntry::new("schema.json", many).deflated()]).into()).unwrap_err();
    assert!(matches!(error, SkopsError::TooMany { .. }), "{error}");
    // Each of many objects copies the elements of one tuple.
    let arguments = sequence("tuple", &vec![json("1"); 2000]).replacen(r#""content""#, r#""__id__": 3, "content""#, 1);
    let operator = || node("operator", "itemgetter", "OperatorFuncNode", r#", "attrs": {"__id__": 3}"#);
    let mut operators = vec![node("operator", "itemgetter", "OperatorFuncNode", &format!(r#", "attrs": {arguments}"#))];
    operators.extend((0..20_000).map(|_| operator()));
    let file = archive(&[schema(&sequence("list", &operators)).deflated()]);
    assert!(matches!(read(file.into()), Err(SkopsError::TooMany { .. })));
}

#[test]
fn hostile_arrays_are_rejected() {
    let with = |header: &str| read_array(&npy(header, &[0; 16]));
    for shape in [
        "(1000000000000,)",
        "(4294967296, 4294967296, 4294967296)",
        "(18446744073709551615,)",
        "(18446744073709551616,)",
        "(3,)",
        "(1,)",
        "(-2,)",
        "2",
        "(2, 'a')",
        "[2]",
    ] {
        let error = with(&format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}")).unwrap_err();
        assert!(matches!(error, SkopsError::Array { .. }), "{shape}: {error}");
    }
    assert!(with("{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }").is_ok());
    for descr in [
        "'O'",
        "[('a', '|O')]",
        "'<x8'",
        "[('a', '<f8', (18446744073709551615, 2))]",
        "[(('t', 'a'), '<f8')]",
        "'<U4611686018427387905'",
    ] {
        assert!(with(&format!("{{'descr': {descr}, 'fortran_order': False, 'shape': (2,), }}")).is_err(), "{descr}");
    }
    let nested = format!(
        "{{'descr': {}'<f8'{}, 'fortran_order': False, 'shape': (2,), }}",
        "[('a', ".repeat(900),
        ")]".repeat(900)
    );
    assert!(with(&nested).is_err());
    assert!(with(&" ".repeat(10_001)).is_err());
    for file in [
        &b""[..],
        b"\x93NUMPY",
        b"\x93NUMPY\x01\x00\xff\xff{}",
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff{}",
        b"\x93NUMPY\x09\x00\x00\x00",
    ] {
        assert!(matches!(read_array(file), Err(SkopsError::Array { .. })));
    }
}

#[test]
fn archives_are_told_from_pickles() {
    assert!(is_archive(&archive(&[])) && is_archive(&archive(&[schema(&json("1"))])));
    assert!(!is_archive(b"\x80\x04N.") && !is_archive(b"PK"));
}

/// Returns a file with nodes of many kinds.
fn sample() -> Vec<u8> {
    let root = dict(&[
        ("str", "array", array("1.npy")),
        ("int", "7", sequence("tuple", &[json("1.5"), json("\"a\"")])),
        ("str", "model", node("sklearn.svm._classes", "SVC", "ObjectNode", &format!(r#", "content": {}"#, dict(&[])))),
    ]);
    archive(&[TestEntry::new("1.npy", doubles("(2,)", &[1.0, 2.0])), schema(&root).deflated()])
}

#[test]
fn truncated_files_are_rejected() {
    let file = sample();
    assert!(read(file.clone().into()).is_ok());
    for length in 0..file.len() {
        assert!(read(Bytes::copy_from_slice(&file[..length])).is_err(), "{length}");
    }
}

proptest! {
    #[test]
    fn damaged_files_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5)) {
        let mut file = sample();
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        drop(read(file.into()));
    }

    #[test]
    fn damaged_schemas_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5)) {
        let mut text = schema(&dict(&[("str", "a", sequence("list", &[json("1"), array("1.npy")]))])).content;
        for (at, byte) in changes {
            let at = at.index(text.len());
            text[at] = byte;
        }
        drop(read(archive(&[TestEntry::new("schema.json", text), TestEntry::new("1.npy", b"")]).into()));
    }

    #[test]
    fn damaged_arrays_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5)) {
        let mut file = npy("{'descr': [('a', '<f8', (2,)), ('b', '|u1')], 'fortran_order': True, 'shape': (1, 1), }", &[1; 17]);
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] = byte;
        }
        drop(read_array(&file));
    }
}
