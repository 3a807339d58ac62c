//! Networks and their operators against onnxruntime: `tests/goldens/onnx_networks`.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use super::Network;
use crate::onnx::fixtures::{self, File, node, value};
use crate::onnx::goldens::{Case, cases};
use crate::onnx::tensor::{Shape, Tensor};

fn check(case: &Case) -> Result<(), (bool, String)> {
    let none = |_: &crate::onnx::ExternalRange<'_>| Err("there is none".to_owned());
    let refused = |error: crate::onnx::LoadError| (error.is_refusal(), error.to_string());
    Network::check(&case.file(), &none).map_err(refused)?;
    let network = Network::load(&case.file(), &none, 1).map_err(|error| (false, format!("load: {error}")))?;
    let all: Vec<usize> = (0..network.interface().outputs.len()).collect();
    let found = network.evaluate(&case.inputs(), &all, &AtomicBool::new(false));
    let found = found.map_err(|error| (false, format!("evaluate: {error}")))?;
    case.compare(&found).map_err(|problem| (false, problem))
}

/// Checks the cases of a file. Returns how many agree by the first part of their name, and why others are refused.
fn check_all(file: &str) -> (BTreeMap<String, usize>, Vec<String>) {
    let (mut equal, mut wrong, mut refused) = (BTreeMap::<String, usize>::new(), Vec::new(), Vec::new());
    for case in cases(file) {
        match check(&case) {
            Ok(()) => *equal.entry(case.name.split('-').next().unwrap().to_owned()).or_default() += 1,
            Err((true, reason)) => refused.push(format!("{}: {reason}", case.name)),
            Err((false, problem)) => wrong.push(format!("{}: {problem:.300}", case.name)),
        }
    }
    assert!(wrong.is_empty(), "{} of {file} differ:\n{}", wrong.len(), wrong.join("\n"));
    (equal, refused)
}

#[test]
fn networks_return_what_onnxruntime_does() {
    let (equal, refused) = check_all("onnx_networks/networks.jsonl.gz");
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(equal.len() > 10, "{equal:?}");
}

#[test]
fn operators_of_networks_return_what_onnxruntime_does() {
    let (equal, refused) = check_all("onnx_networks/operators.jsonl.gz");
    let count: usize = equal.values().sum();
    assert!(count > 300, "{equal:?}\n{}", refused.join("\n"));
}

/// A file of one node from `x` (INT64, of any length) and a constant to `y`.
fn integers(operator: &str, constant: &[i64]) -> Vec<u8> {
    let mut file = File::of(&[node(operator, &["x", "c"], &["y"], &[])]);
    file.inputs = vec![value("x", 7, &[-1])];
    file.outputs = vec![value("y", 7, &[-1])];
    file.initializers = vec![fixtures::integers("c", constant)];
    file.bytes()
}

fn load(file: &[u8]) -> Result<Network, String> {
    Network::load(file, &|_| Err("there is none".to_owned()), 1).map_err(|error| error.to_string())
}

fn evaluate(network: &Network, values: Vec<i64>) -> Result<Vec<i64>, String> {
    let input = Tensor::list(values).unwrap();
    let outputs = network.evaluate(&[input], &[0], &AtomicBool::new(false)).map_err(|error| error.to_string())?;
    Ok(outputs[0].values::<i64>().unwrap().to_vec())
}

#[test]
fn integers_that_may_not_fit_in_32_bits_limit_the_inputs() {
    let added = load(&integers("Add", &[7])).unwrap();
    assert_eq!(evaluate(&added, vec![1 << 30]).unwrap(), [(1 << 30) + 7]);
    assert!(evaluate(&added, vec![(1 << 30) + 1]).unwrap_err().contains("for numbers up to 1073741824"));
    let multiplied = load(&integers("Mul", &[1000])).unwrap();
    assert!(evaluate(&multiplied, vec![-65537]).unwrap_err().contains("-65537"));
    assert_eq!(evaluate(&multiplied, vec![-65536]).unwrap(), [-65_536_000]);
    assert!(load(&integers("Mul", &[1 << 20])).unwrap_err().contains("int64 that may not fit in int32"));
}

#[test]
fn constants_outside_of_32_bits_are_refused_by_name() {
    let error = load(&integers("Add", &[1 << 40])).unwrap_err();
    assert_eq!(
        error,
        "node `y` (Add, opset 17): the number 1099511627776 of `c`, outside of int32, is not evaluated natively"
    );
}

#[test]
fn double_precision_and_other_domains_are_refused_by_name() {
    let mut file = File::of(&[node("Relu", &["x"], &["y"], &[])]);
    file.inputs = vec![value("x", 11, &[-1])];
    file.outputs = vec![value("y", 11, &[-1])];
    assert_eq!(load(&file.bytes()).unwrap_err(), "input `x` is of type double, which is not evaluated natively");
    let foreign = File::of(&[fixtures::of_domain("own", "Relu", &["x"], &["y"], &[])]);
    assert_eq!(load(&foreign.bytes()).unwrap_err(), "node `y` (Relu, opset 1): the operator is not evaluated natively");
}

#[test]
fn constants_that_ask_for_unbounded_memory_are_refused_at_load() {
    let huge = |operator: &str| {
        let mut file = File::of(&[node(operator, &["x", "c"], &["y"], &[])]);
        file.initializers = vec![fixtures::integers("c", &[1 << 20, 1 << 20])];
        load(&file.bytes()).unwrap_err()
    };
    for operator in ["Expand", "Tile"] {
        assert!(huge(operator).contains("a constant that asks for more than 268435456 elements"), "{operator}");
    }
    let mut filled = File::of(&[node("ConstantOfShape", &["c"], &["z"], &[]), node("Add", &["x", "z"], &["y"], &[])]);
    filled.initializers = vec![fixtures::integers("c", &[1 << 20, 1 << 20])];
    assert!(load(&filled.bytes()).unwrap_err().contains("to compute constants"));
}

#[test]
fn panics_of_the_engine_become_errors() {
    let divided = load(&integers("Div", &[0])).unwrap();
    let error = evaluate(&divided, vec![1]).unwrap_err();
    assert!(error.contains("an operator failed") || error.contains("zero"), "{error}");
    assert_eq!(evaluate(&load(&integers("Div", &[2])).unwrap(), vec![5]).unwrap(), [2]);
}

#[test]
fn documentation_lists_the_operators() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/runtimes.md");
    let text = std::fs::read_to_string(path).unwrap();
    let section = text.split_once("### Networks").unwrap().1;
    let rows = section.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let listed: Vec<&str> = rows
        .flat_map(|row| row.trim_end_matches(" |").rsplit_once("| ").unwrap().1.split(", "))
        .map(|name| name.split(' ').next().unwrap())
        .collect();
    let mut known: Vec<&str> = super::rules::names().chain(["Constant", "Dropout"]).collect();
    let mut sorted = listed.clone();
    sorted.sort_unstable();
    known.sort_unstable();
    assert_eq!(sorted, known);
}

#[test]
fn weights_in_other_files_are_read_once_and_only_to_load() {
    let entry = |key: &str, value: &str| {
        fixtures::field(13, &[fixtures::field(1, key.as_bytes()), fixtures::field(2, value.as_bytes())].concat())
    };
    let mut file = File::of(&[node("Add", &["x", "w"], &["y"], &[])]);
    let external = [entry("location", "weights.bin"), entry("offset", "4"), fixtures::integer(14, 1)];
    let dimensions = [fixtures::integer(1, 3), fixtures::integer(2, 1), fixtures::field(8, b"w")];
    file.initializers = vec![[dimensions.concat(), external.concat()].concat()];
    let file = file.bytes();
    Network::check(&file, &|_| Err("a check reads no weights".to_owned())).unwrap();
    let count = std::cell::Cell::new(0);
    let network = Network::load(
        &file,
        &|range| {
            count.set(count.get() + 1);
            assert_eq!((range.location, range.offset, range.length), ("weights.bin", 4, Some(12)));
            Ok([1.0_f32, 2.0, 3.0].iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>().into())
        },
        1,
    );
    let network = network.unwrap();
    assert_eq!(count.get(), 1);
    let input = Tensor::of(Shape::new(&[1, 3]).unwrap(), vec![10.0_f32; 3]).unwrap();
    let outputs = network.evaluate(&[input], &[0, 0], &AtomicBool::new(false)).unwrap();
    assert_eq!(&outputs[1].values::<f32>().unwrap()[..], [11.0, 12.0, 13.0]);
    let short = Network::load(&file, &|_| Ok(vec![0; 11].into()), 1).unwrap_err();
    assert_eq!(short.to_string(), "tensor `w`: it has 11 bytes instead of 12");
}

#[test]
fn files_with_damaged_bytes_never_panic() {
    let mut file = File::of(&[node("Add", &["x", "w"], &["z"], &[]), node("Softmax", &["z"], &["y"], &[])]);
    file.initializers = vec![fixtures::tensor("w", 1, &[3], &[0; 12])];
    let file = file.bytes();
    for place in 0..file.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut damaged = file.clone();
            damaged[place] = value;
            let _ = Network::check(&damaged, &|_| Err("there is none".to_owned()));
        }
    }
}
