//! Tests of whole models: what is read, what is refused, and what an evaluation may take.

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use proptest::prelude::{any, prop, proptest};

use super::fixtures::{File, field, int, integer, integers, ints, node, of_domain, reference, tensor, value};
use super::{EvaluateError, LoadError, OnnxModel, Shape, Tensor};

fn load(file: &File) -> Result<OnnxModel, LoadError> {
    OnnxModel::load(&file.bytes(), &|_| Err("there is none".to_owned()))
}

fn refusal(file: &File) -> String {
    load(file).unwrap_err().to_string()
}

/// Evaluates all outputs for `rows` rows of 0, 1, 2, ...
fn evaluate(model: &OnnxModel, rows: usize) -> Result<Vec<Tensor<'static>>, EvaluateError> {
    let shape = Shape::of_matrix(rows, 3).unwrap();
    let values: Vec<f32> = (0_u16..).take(rows * 3).map(f32::from).collect();
    let input = Tensor::of(shape, values).unwrap();
    let all: Vec<usize> = (0..model.interface().outputs.len()).collect();
    let plan = model.plan(&[(input.element_type(), shape)], &all)?;
    let found = model.evaluate(&plan, vec![input], &AtomicBool::new(false))?;
    Ok(found.into_iter().map(Tensor::into_static).collect())
}

fn floats(tensor: &Tensor<'_>) -> Vec<f32> {
    tensor.values::<f32>().unwrap().to_vec()
}

#[test]
fn nodes_are_evaluated_in_the_order_of_their_values() {
    // The file has them in another order.
    let model = load(&File::of(&[
        node("Add", &["a", "x"], &["y"], &[]),
        node("Mul", &["x", "x"], &["a"], &[]),
        // Not needed, so it is not even looked at.
        node("Unknown", &["x"], &["z"], &[]),
    ]))
    .unwrap();
    assert_eq!(floats(&evaluate(&model, 1).unwrap()[0]), [0.0, 2.0, 6.0]);
    assert_eq!(model.interface().operators, ["Add", "Mul"]);
}

#[test]
fn functions_are_expanded_with_their_attributes() {
    let negated_or_not = [
        field(10, b"own"),
        field(1, b"Scaled"),
        field(4, b"input"),
        field(4, b"left_out"),
        field(5, b"output"),
        field(6, b"to"),
        field(7, &node("Neg", &["input"], &["inner"], &[])),
        field(7, &node("Cast", &["inner"], &["output"], &[reference("to", "to")])),
        field(9, &[field(1, b""), integer(2, 17)].concat()),
    ]
    .concat();
    let call = |inputs: &[&str], output| of_domain("own", "Scaled", inputs, &[output], &[int("to", 1)]);
    let file = File { functions: vec![negated_or_not], ..File::of(&[call(&["x"], "a"), call(&["a"], "y")]) };
    assert_eq!(floats(&evaluate(&load(&file).unwrap(), 1).unwrap()[0]), [0.0, 1.0, 2.0]);
}

#[test]
fn functions_that_call_themselves_end() {
    let function = [
        field(10, b"own"),
        field(1, b"Again"),
        field(4, b"a"),
        field(5, b"b"),
        field(7, &of_domain("own", "Again", &["a"], &["b"], &[])),
        field(9, &[field(1, b"own"), integer(2, 1)].concat()),
    ];
    let file =
        File { functions: vec![function.concat()], ..File::of(&[of_domain("own", "Again", &["x"], &["y"], &[])]) };
    assert_eq!(refusal(&file), "the model has more than 64 functions that call each other");
}

#[test]
fn functions_that_double_with_each_call_end() {
    let function = |name: &str, called: &str, domain: &str| {
        [
            field(10, b"own"),
            field(1, name.as_bytes()),
            field(4, b"a"),
            field(5, b"c"),
            field(7, &of_domain(domain, called, &["a"], &["b"], &[])),
            field(7, &of_domain(domain, called, &["b"], &["c"], &[])),
            field(9, &[field(1, b"own"), integer(2, 1)].concat()),
            field(9, &[field(1, b""), integer(2, 17)].concat()),
        ]
        .concat()
    };
    let mut functions = vec![function("F0", "Neg", "")];
    functions.extend((1..40).map(|index| function(&format!("F{index}"), &format!("F{}", index - 1), "own")));
    let file = File { functions, ..File::of(&[of_domain("own", "F39", &["x"], &["y"], &[])]) };
    assert_eq!(refusal(&file), "the model has more than 100000 nodes");
}

#[test]
fn functions_that_copy_attributes_with_each_call_end() {
    let constant = node("Constant", &[], &["c"], &[ints("value_ints", &vec![1; 100_000])]);
    let function = [
        field(10, b"own"),
        field(1, b"Large"),
        field(4, b"a"),
        field(5, b"b"),
        field(7, &constant),
        field(7, &node("Shape", &["c"], &["s"], &[])),
        field(7, &node("Expand", &["a", "s"], &["b"], &[])),
        field(9, &[field(1, b""), integer(2, 17)].concat()),
    ];
    let names: Vec<String> = (0..200).map(|index| format!("v{index}")).collect();
    let mut nodes = vec![of_domain("own", "Large", &["x"], &["v0"], &[])];
    nodes.extend(names.windows(2).map(|pair| of_domain("own", "Large", &[&pair[0]], &[&pair[1]], &[])));
    nodes.push(node("Neg", &["v199"], &["y"], &[]));
    let started = Instant::now();
    let file = File { functions: vec![function.concat()], ..File::of(&nodes) };
    assert_eq!(refusal(&file), "the model has more than 67108864 bytes of attributes in calls of functions");
    assert!(started.elapsed() < Duration::from_secs(5));
}

#[test]
fn damaged_graphs_are_refused_by_name() {
    let add = || node("Add", &["x", "x"], &["y"], &[]);
    let cases = [
        (File::of(&[node("Add", &["y", "x"], &["y"], &[])]), "the nodes that compute `y` depend on each other"),
        (
            File::of(&[node("Add", &["a", "x"], &["y"], &[]), node("Neg", &["y"], &["a"], &[])]),
            "the nodes that compute `a` depend on each other",
        ),
        (
            File::of(&[node("Add", &["x", "nothing"], &["y"], &[])]),
            "the value `nothing` is used, but nothing computes it",
        ),
        (File::of(&[]), "the value `y` is used, but nothing computes it"),
        (File::of(&[add(), add()]), "the name `y` is that of two values"),
        (File::of(&[node("Add", &["x", "x"], &["x"], &[])]), "the name `x` is that of two values"),
        (
            File { initializers: vec![integers("i", &[1]), integers("i", &[2])], ..File::of(&[add()]) },
            "the name `i` is that of two initializers",
        ),
        (
            File { inputs: vec![value("x", 1, &[-1, 3]), value("x", 1, &[-1, 3])], ..File::of(&[add()]) },
            "the name `x` is that of two inputs",
        ),
        (File { outputs: Vec::new(), ..File::of(&[add()]) }, "the graph has no outputs"),
        (
            File { opset: Some(6), ..File::of(&[add()]) },
            "opset 6 of the domain `` is not evaluated natively; 7 to 26 are",
        ),
        (
            File::of(&[node("LSTM", &["x"], &["y"], &[])]),
            "node `y` (LSTM, opset 17): the operator is not evaluated natively",
        ),
        (
            File::of(&[of_domain("com.other", "Add", &["x", "x"], &["y"], &[])]),
            "the model has nodes of the domain `com.other`, but does not import an opset of it",
        ),
        (File::of(&[node("Add", &["x"], &["y"], &[])]), "node `y` (Add, opset 17): it has 1 inputs instead of 2"),
        (File::of(&[node("Add", &["x", ""], &["y"], &[])]), "node `y` (Add, opset 17): input 1 is missing"),
        (
            File::of(&[node("Neg", &["x"], &["y"], &[int("strange", 1)])]),
            "node `y` (Neg, opset 17): attribute `strange` is not evaluated natively",
        ),
        (
            File { outputs: vec![value("y", 7, &[-1])], ..File::of(&[add()]) },
            "output `y` is of type int64, but the graph computes float, which is not evaluated natively",
        ),
        (
            File { inputs: vec![value("x", 16, &[-1, 3])], ..File::of(&[add()]) },
            "input `x` is of type bfloat16, which is not evaluated natively",
        ),
        (
            File {
                initializers: vec![tensor("i", 1, &[1 << 40], &[])],
                ..File::of(&[node("Add", &["x", "i"], &["y"], &[])])
            },
            "tensor `i`: it has 0 bytes instead of 4398046511104",
        ),
    ];
    for (file, expected) in cases {
        let found = refusal(&file);
        assert_eq!(found, expected);
    }
}

#[test]
fn constants_that_grow_without_bound_are_refused() {
    let shape = integers("s", &[1 << 20, 1 << 20]);
    let grown = |nodes: &[Vec<u8>], initializers: Vec<Vec<u8>>| {
        let started = Instant::now();
        let found = refusal(&File { initializers, ..File::of(nodes) });
        assert!(started.elapsed() < Duration::from_secs(1), "{found}");
        found
    };
    let too_large = "to compute constants ";
    let zeros = node("ConstantOfShape", &["s"], &["c"], &[]);
    let found = grown(&[zeros, node("Add", &["x", "c"], &["y"], &[])], vec![shape]);
    assert!(found.contains(too_large), "{found}");
    let numbers = node("Range", &["a", "b", "d"], &["c"], &[]);
    let scalar = |name, value: i64| tensor(name, 7, &[], &value.to_le_bytes());
    let found = grown(
        &[numbers, node("Cast", &["c"], &["f"], &[int("to", 1)]), node("Add", &["x", "f"], &["y"], &[])],
        vec![scalar("a", 0), scalar("b", 1 << 40), scalar("d", 1)],
    );
    assert!(found.contains(too_large), "{found}");
}

#[test]
fn values_that_grow_with_a_request_are_counted_before_they_are_allocated() {
    // Every node has 1,000 times the elements of the one before it.
    let tiled = File {
        initializers: vec![integers("r", &[1000, 1000])],
        ..File::of(&[
            node("Tile", &["x", "r"], &["a"], &[]),
            node("Tile", &["a", "r"], &["b"], &[]),
            node("ReduceSum", &["b"], &["y"], &[]),
        ])
    };
    let model = load(&tiled).unwrap();
    let shape = Shape::of_matrix(1, 3).unwrap();
    let plan = model.plan(&[(super::ElementType::F32, shape)], &[0]).unwrap();
    assert_eq!(plan.bytes, 12_000_000 + 12_000_000_000_000 + 4, "the caller compares this with what a request may use");
    // The size depends on the data of the request.
    let by_data = File {
        outputs: vec![value("y", 1, &[-1])],
        ..File::of(&[
            node("Cast", &["x"], &["i"], &[int("to", 7)]),
            node("ReduceSum", &["i"], &["s"], &[int("keepdims", 0)]),
            node("Constant", &[], &["n"], &[ints("value_ints", &[1_000_000_000])]),
            node("Mul", &["s", "n"], &["m"], &[]),
            node("ConstantOfShape", &["m"], &["y"], &[]),
        ])
    };
    let error = evaluate(&load(&by_data).unwrap(), 1).unwrap_err();
    assert!(error.is_too_large(), "{error}");
    assert!(
        error.to_string().starts_with("node `y` (ConstantOfShape): the results of the model exceed 1677"),
        "{error}"
    );
}

#[test]
fn extreme_sizes_and_steps_never_panic() {
    let cases = [
        // The mean of no integers.
        File {
            initializers: vec![integers("s", &[0]), integers("e", &[0])],
            outputs: vec![value("y", 7, &[-1, -1])],
            ..File::of(&[
                node("Cast", &["x"], &["i"], &[int("to", 7)]),
                node("Slice", &["i", "s", "e"], &["n"], &[]),
                node("ReduceMean", &["n"], &["y"], &[ints("axes", &[0])]),
            ])
        },
        // Steps and sizes at the ends of their range.
        File {
            initializers: vec![
                integers("s", &[0, 0]),
                integers("e", &[i64::MAX, i64::MAX]),
                integers("a", &[0, 1]),
                integers("t", &[i64::MAX, i64::MAX]),
            ],
            ..File::of(&[node("Slice", &["x", "s", "e", "a", "t"], &["y"], &[])])
        },
        File {
            initializers: vec![integers("p", &[i64::MIN, 0, i64::MAX, 0])],
            ..File::of(&[node("Pad", &["x", "p"], &["y"], &[])])
        },
        File {
            initializers: vec![
                integers("s", &[-1, -1]),
                integers("e", &[i64::MIN, i64::MIN]),
                integers("a", &[0, 1]),
                integers("t", &[-1, i64::MIN + 1]),
            ],
            ..File::of(&[node("Slice", &["x", "s", "e", "a", "t"], &["y"], &[])])
        },
    ];
    for file in cases {
        let model = load(&file).unwrap();
        for rows in [0, 1, 2, 5] {
            // An answer or a fault.
            let _ = evaluate(&model, rows);
        }
    }
}

#[test]
fn inputs_have_the_declared_type_and_shape() {
    let model = load(&File::of(&[node("Neg", &["x"], &["y"], &[])])).unwrap();
    let plan = |element, shape: &[usize]| model.plan(&[(element, Shape::new(shape).unwrap())], &[0]);
    let error = plan(super::ElementType::F32, &[2, 4]).unwrap_err();
    assert_eq!(error.to_string(), "input `x` has the shape [2, 4], but the model has [-1, 3]");
    let error = plan(super::ElementType::F64, &[2, 3]).unwrap_err();
    assert_eq!(error.to_string(), "input `x` is of type double, but the model has float");
    assert_eq!(model.plan(&[], &[0]).unwrap_err().to_string(), "the model has 1 inputs, but 0 were given");
    assert_eq!(plan(super::ElementType::F32, &[0, 3]).unwrap().shapes(), [Shape::new(&[0, 3])]);
}

#[test]
fn evaluations_stop() {
    let model = load(&File::of(&[node("Neg", &["x"], &["y"], &[])])).unwrap();
    let shape = Shape::of_matrix(1, 3).unwrap();
    let plan = model.plan(&[(super::ElementType::F32, shape)], &[0]).unwrap();
    let input = Tensor::of(shape, vec![1.0_f32; 3]).unwrap();
    assert_eq!(model.evaluate(&plan, vec![input], &AtomicBool::new(true)).unwrap_err(), EvaluateError::Cancelled);
}

#[test]
fn maps_become_tensors_with_labels() {
    let zipped = |labels: &[&str]| {
        let labels: Vec<_> = labels.iter().map(|label| field(9, label.as_bytes())).collect();
        let labels = [field(1, b"classlabels_strings"), labels.concat(), integer(20, 8)].concat();
        let map = of_domain("ai.onnx.ml", "ZipMap", &["p"], &["y"], &[labels]);
        let maps = field(4, &field(1, &field(5, &[])));
        let file = File {
            outputs: vec![[field(1, b"y"), field(2, &maps)].concat()],
            ..File::of(&[node("Neg", &["x"], &["p"], &[]), map])
        };
        load(&file).unwrap()
    };
    let error = evaluate(&zipped(&["no", "yes"]), 1).unwrap_err();
    assert_eq!(error.to_string(), "output `y` has 2 labels, but its tensor has the shape [1, 3]");
    let model = zipped(&["no", "yes", "both"]);
    let labels = ["no", "yes", "both"].map(str::to_owned);
    assert_eq!(model.interface().outputs[0].labels, Some(super::Labels::Texts(labels.to_vec())));
    assert_eq!(floats(&evaluate(&model, 1).unwrap()[0]), [0.0, -1.0, -2.0]);
    let used = File::of(&[
        node("Neg", &["x"], &["p"], &[]),
        of_domain("ai.onnx.ml", "ZipMap", &["p"], &["m"], &[ints("classlabels_int64s", &[1, 2, 3])]),
        node("Neg", &["m"], &["y"], &[]),
    ]);
    assert_eq!(refusal(&used), "node `y` (Neg, opset 17): inputs of type map are not evaluated natively");
}

/// A graph with an operator of every kind, whose bytes are then changed.
fn varied() -> Vec<u8> {
    File {
        initializers: vec![
            integers("i", &[0, 2]),
            integers("r", &[2, 1]),
            integers("s", &[-1, 3]),
            tensor("w", 1, &[3, 3], &[0x3f; 36]),
        ],
        ..File::of(&[
            node("MatMul", &["x", "w"], &["a"], &[]),
            node("Gather", &["a", "i"], &["b"], &[int("axis", 1)]),
            node("Tile", &["b", "r"], &["c"], &[]),
            node("Transpose", &["c"], &["d"], &[ints("perm", &[1, 0])]),
            node("Shape", &["d"], &["e"], &[]),
            node("ConstantOfShape", &["e"], &["f"], &[]),
            node("Add", &["d", "f"], &["g"], &[]),
            node("Softmax", &["g"], &["h"], &[int("axis", 0)]),
            node("ReduceMax", &["h"], &["k"], &[ints("axes", &[0]), int("keepdims", 1)]),
            node("ReduceSum", &["k"], &["l"], &[]),
            node("Concat", &["x", "x"], &["m"], &[int("axis", 0)]),
            node("Mul", &["m", "l"], &["n"], &[]),
            node("Reshape", &["n", "s"], &["y"], &[]),
        ])
    }
    .bytes()
}

proptest! {
    #[test]
    fn changed_files_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        length in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
    ) {
        let mut bytes = varied();
        for (place, value) in changes {
            let place = place.index(bytes.len());
            bytes[place] = value;
        }
        if cuts {
            bytes.truncate(length.index(bytes.len()));
        }
        let Ok(model) = OnnxModel::load(&bytes, &|_| Err("there is none".to_owned())) else { return Ok(()) };
        if model.interface().inputs.len() == 1 && model.interface().inputs[0].element == super::ElementType::F32 {
            let shape = Shape::of_matrix(2, 3).unwrap();
            let all: Vec<usize> = (0..model.interface().outputs.len()).collect();
            if let Ok(plan) = model.plan(&[(super::ElementType::F32, shape)], &all)
                && plan.bytes < 64 << 20
            {
                let input = Tensor::of(shape, vec![0.5_f32; 6]).unwrap();
                let _ = model.evaluate(&plan, vec![input], &AtomicBool::new(false));
            }
        }
    }
}
