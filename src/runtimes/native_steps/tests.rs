//! Steps compared with naive code, on tensors of every datatype.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use half::{bf16, f16};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::numbers::Number;
use super::*;
use crate::runtimes::Runtime;
use crate::runtimes::native::NEVER;
use crate::types::{BytesElements, Parameters, RequestedOutput, TensorMetadata, merge};

fn settings(implementation: &str, extra: &Value) -> ModelSettings {
    let mut settings = ModelSettings::new("step", implementation);
    settings.parameters.extra = extra.as_object().unwrap().clone();
    settings
}

fn load(implementation: &str, extra: &Value) -> Result<NativeStep, LoadError> {
    NativeStep::load(&settings(implementation, extra)).map(|(step, _)| step)
}

fn request(inputs: Vec<Tensor>) -> InferenceRequest {
    InferenceRequest { inputs, ..InferenceRequest::default() }
}

/// Answers a request, and checks that its size was known before.
fn answer(model: &NativeStep, request: &InferenceRequest) -> Result<Vec<Tensor>, String> {
    let plan = model.plan(request).map_err(|error| error.to_string())?;
    let bytes = plan.bytes;
    // What is computed on the way counts, too.
    let has_one_stage = plan.prepared.outputs.iter().all(|output| output.signatures.len() == 1);
    let outputs = model.answer(request, plan.prepared, &NEVER).map_err(|error| error.to_string())?.outputs;
    let size: usize = outputs.iter().map(Tensor::byte_len).sum();
    if outputs.iter().all(|output| output.datatype != Datatype::Bytes) {
        assert!(if has_one_stage { bytes == size } else { bytes >= size }, "{bytes} and {size}");
    }
    Ok(outputs)
}

/// Answers a request with one output.
fn only(implementation: &str, extra: &Value, inputs: Vec<Tensor>) -> Result<Tensor, String> {
    let model = load(implementation, extra).map_err(|error| error.to_string())?;
    let mut outputs = answer(&model, &request(inputs))?;
    assert_eq!(outputs.len(), 1);
    Ok(outputs.remove(0))
}

/// Answers a request with one output of `mlserver.Map`.
fn mapped(apply: &Value, input: Tensor) -> Result<Tensor, String> {
    let extra = json!({"outputs": [{"input": input.name, "apply": apply, "name": "y"}]});
    only("mlserver.Map", &extra, vec![input])
}

fn texts(name: &str, shape: &[usize], texts: &[&str]) -> Tensor {
    let data = TensorData::Variable(texts.iter().collect::<BytesElements>().with_text(true));
    let (name, datatype) = (name.to_owned(), Datatype::Bytes);
    Tensor { name, datatype, shape: shape.to_vec(), parameters: Parameters::new(), data, nested: false, as_sent: None }
}

fn floats(shape: &[usize], values: &[f64]) -> Tensor {
    Tensor::from_elements("x", shape.to_vec(), values).unwrap()
}

/// An element, for comparisons. All NaN are equal.
#[derive(Debug, Clone, PartialEq)]
enum Cell {
    Integer(i128),
    Float(Option<f64>),
    Text(Vec<u8>),
}

impl Cell {
    fn float(value: f64) -> Self {
        Self::Float((!value.is_nan()).then_some(value))
    }

    #[expect(clippy::cast_precision_loss, reason = "as NumPy's cast of integers to float64")]
    fn to_f64(&self) -> f64 {
        match self {
            Self::Integer(integer) => *integer as f64,
            Self::Float(float) => float.unwrap_or(f64::NAN),
            Self::Text(_) => unreachable!("a text"),
        }
    }
}

/// Reads the elements of a tensor in the simplest way.
fn cells(tensor: &Tensor) -> Vec<Cell> {
    let raw = tensor.to_raw().unwrap();
    let width = match (&tensor.data, tensor.datatype.width()) {
        (TensorData::Variable(elements), _) => {
            return elements.iter().map(|text| Cell::Text(text.to_vec())).collect();
        }
        (_, width) => width.unwrap(),
    };
    let cell = |bytes: &[u8]| match tensor.datatype {
        Datatype::Bool | Datatype::Uint8 => Cell::Integer(bytes[0].into()),
        Datatype::Int8 => Cell::Integer(i8::from_le_bytes(bytes.try_into().unwrap()).into()),
        Datatype::Uint16 => Cell::Integer(u16::from_le_bytes(bytes.try_into().unwrap()).into()),
        Datatype::Int16 => Cell::Integer(i16::from_le_bytes(bytes.try_into().unwrap()).into()),
        Datatype::Uint32 => Cell::Integer(u32::from_le_bytes(bytes.try_into().unwrap()).into()),
        Datatype::Int32 => Cell::Integer(i32::from_le_bytes(bytes.try_into().unwrap()).into()),
        Datatype::Uint64 => Cell::Integer(u64::from_le_bytes(bytes.try_into().unwrap()).into()),
        Datatype::Int64 => Cell::Integer(i64::from_le_bytes(bytes.try_into().unwrap()).into()),
        Datatype::Fp16 => Cell::float(f16::from_le_bytes(bytes.try_into().unwrap()).to_f64()),
        Datatype::Bf16 => Cell::float(bf16::from_le_bytes(bytes.try_into().unwrap()).to_f64()),
        Datatype::Fp32 => Cell::float(f32::from_le_bytes(bytes.try_into().unwrap()).into()),
        Datatype::Fp64 => Cell::float(f64::from_le_bytes(bytes.try_into().unwrap())),
        Datatype::Bytes => unreachable!(),
    };
    raw.chunks_exact(width).map(cell).collect()
}

/// A tensor of any datatype and of a shape. Its buffer is not aligned.
fn tensor(name: &'static str, shape: Vec<usize>, datatypes: &'static [Datatype]) -> impl Strategy<Value = Tensor> {
    let count: usize = shape.iter().product();
    let bytes = proptest::collection::vec(any::<u8>(), count * 8 + 1);
    let lengths = proptest::collection::vec(0..4_usize, count);
    (prop::sample::select(datatypes), bytes, lengths).prop_map(move |(datatype, mut bytes, lengths)| {
        let data = if let Some(width) = datatype.width() {
            if datatype == Datatype::Bool {
                for byte in &mut bytes {
                    *byte %= 2;
                }
            }
            TensorData::Fixed(Bytes::from(bytes).slice(1..=count * width))
        } else {
            let texts = lengths.iter().zip(bytes.chunks_exact(8)).map(|(&length, bytes)| &bytes[..length]);
            TensorData::Variable(texts.collect())
        };
        let (name, shape) = (name.to_owned(), shape.clone());
        Tensor { name, datatype, shape, parameters: Parameters::new(), data, nested: false, as_sent: None }
    })
}

/// The datatypes of numbers.
const NUMBERS: [Datatype; 13] = [
    Datatype::Bool,
    Datatype::Uint8,
    Datatype::Uint16,
    Datatype::Uint32,
    Datatype::Uint64,
    Datatype::Int8,
    Datatype::Int16,
    Datatype::Int32,
    Datatype::Int64,
    Datatype::Fp16,
    Datatype::Bf16,
    Datatype::Fp32,
    Datatype::Fp64,
];

/// Returns all positions in a shape, in the order of the elements.
fn positions(shape: &[usize]) -> Vec<Vec<usize>> {
    shape.iter().fold(vec![Vec::new()], |before, &size| {
        before.iter().flat_map(|position| (0..size).map(|last| [&position[..], &[last]].concat())).collect()
    })
}

/// Returns the element at a position.
fn at(tensor: &Tensor, position: &[usize]) -> Cell {
    let index = position.iter().zip(&tensor.shape).fold(0, |index, (position, size)| index * size + position);
    cells(tensor)[index].clone()
}

fn shapes(dimensions: std::ops::Range<usize>) -> impl Strategy<Value = Vec<usize>> {
    proptest::collection::vec(0..4_usize, dimensions)
}

/// JSON with the keys and texts of settings in places where they may not belong.
fn unexpected_settings() -> impl Strategy<Value = Value> {
    const WORDS: &[&str] = &[
        "outputs",
        "input",
        "name",
        "columns",
        "apply",
        "softmax",
        "argmax",
        "weighted_sum",
        "thresholds",
        "table",
        "default",
        "one_hot",
        "ignore_unknown",
        "axis",
        "x",
        "y",
        "0",
        "1",
    ];
    let word = || prop::sample::select(WORDS).prop_map(str::to_owned);
    let output = json!([{"input": "x", "apply": ["softmax"], "columns": [0]}]);
    let leaf = prop_oneof![
        word().prop_map(Value::from),
        (-3..4_i64).prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        any::<bool>().prop_map(Value::from),
        Just(Value::Null),
        Just(json!({"input": "x", "apply": ["argmax", {"table": ["a", "b"]}]})),
        Just(output),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((word(), inner), 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn select_columns_are_those_of_naive_code(
        (tensor, chosen) in shapes(2..5).prop_flat_map(|shape| {
            let columns = i64::try_from(*shape.last().unwrap()).unwrap();
            (tensor("x", shape, &Datatype::ALL), proptest::collection::vec(-columns - 1..=columns, 1..5))
        }),
    ) {
        let columns = *tensor.shape.last().unwrap();
        let extra = json!({"outputs": [{"input": "x", "columns": chosen, "name": "y"}]});
        let selected = only("mlserver.Select", &extra, vec![tensor.clone()]);
        let size = i64::try_from(columns).unwrap();
        let indices: Option<Vec<usize>> = chosen
            .iter()
            .map(|&column| usize::try_from(if column < 0 { column + size } else { column }).ok().filter(|&index| index < columns))
            .collect();
        let Some(indices) = indices else {
            prop_assert!(selected.unwrap_err().contains("needs a column"));
            return Ok(());
        };
        let selected = selected.unwrap();
        prop_assert_eq!(selected.datatype, tensor.datatype);
        prop_assert_eq!(selected.shape.last(), Some(&chosen.len()));
        for position in positions(&selected.shape) {
            let mut source = position.clone();
            *source.last_mut().unwrap() = indices[*position.last().unwrap()];
            prop_assert_eq!(at(&selected, &position), at(&tensor, &source));
        }
    }

    #[test]
    fn concat_elements_are_those_of_naive_code(
        (axis, tensors) in (shapes(1..4), 0..3_usize).prop_flat_map(|(shape, axis)| {
            let axis = axis % shape.len();
            let sized = move |name, size: usize| {
                let mut shape = shape.clone();
                shape[axis] = size;
                tensor(name, shape, &NUMBERS)
            };
            let tensors = (0..4_usize, 0..4_usize, 0..4_usize)
                .prop_flat_map(move |(a, b, c)| (sized("a", a), sized("b", b), sized("c", c)));
            (Just(axis), tensors)
        }),
    ) {
        let tensors = [tensors.0, tensors.1, tensors.2];
        let joined = only("mlserver.Concat", &json!({"name": "y", "axis": axis}), tensors.to_vec()).unwrap();
        let datatypes = tensors.clone().map(|tensor| tensor.datatype);
        prop_assert_eq!(Some(joined.datatype), numbers::promote(&datatypes));
        let is_float = [Datatype::Fp16, Datatype::Bf16, Datatype::Fp32, Datatype::Fp64].contains(&joined.datatype);
        let mut expected_size = 0;
        for tensor in &tensors {
            for position in positions(&tensor.shape) {
                let mut target = position.clone();
                target[axis] += expected_size;
                let (found, cell) = (at(&joined, &target), at(tensor, &position));
                prop_assert_eq!(found, if is_float { Cell::float(cell.to_f64()) } else { cell });
            }
            expected_size += tensor.shape[axis];
        }
        prop_assert_eq!(joined.shape[axis], expected_size);
    }

    #[test]
    fn concat_of_texts_is_that_of_naive_code(
        (first, second) in (0..4_usize, 0..4_usize, 0..4_usize).prop_flat_map(|(rows, a, b)| {
            (tensor("a", vec![rows, a], &[Datatype::Bytes]), tensor("b", vec![rows, b], &[Datatype::Bytes]))
        }),
    ) {
        let joined = only("mlserver.Concat", &json!({"name": "y"}), vec![first.clone(), second.clone()]).unwrap();
        prop_assert_eq!(&joined.shape, &vec![first.shape[0], first.shape[1] + second.shape[1]]);
        for position in positions(&joined.shape) {
            let [row, column] = position[..] else { unreachable!() };
            let (source, column) =
                if column < first.shape[1] { (&first, column) } else { (&second, column - first.shape[1]) };
            prop_assert_eq!(at(&joined, &position), at(source, &[row, column]));
        }
    }

    #[test]
    fn map_numbers_are_those_of_naive_code(
        tensor in (0..5_usize, 1..5_usize).prop_flat_map(|(rows, columns)| tensor("x", vec![rows, columns], &NUMBERS)),
        mut thresholds in proptest::collection::vec(-300.0..300.0, 1..6),
    ) {
        let all = cells(&tensor);
        let rows: Vec<&[Cell]> = all.chunks(tensor.shape[1]).collect();

        let argmax = mapped(&json!(["argmax"]), tensor.clone()).unwrap();
        prop_assert_eq!((argmax.datatype, &argmax.shape), (Datatype::Int64, &vec![rows.len(), 1]));
        for (found, row) in cells(&argmax).iter().zip(&rows) {
            let is_above = |one: &Cell, other: &Cell| match (one, other) {
                (Cell::Integer(one), Cell::Integer(other)) => one > other,
                _ => one.to_f64() > other.to_f64(),
            };
            let nan = row.iter().position(|cell| *cell == Cell::Float(None));
            let largest = (0..row.len()).find(|&index| row.iter().all(|other| !is_above(other, &row[index])));
            let expected = nan.or(largest).unwrap();
            prop_assert_eq!(found, &Cell::Integer(i128::try_from(expected).unwrap()));
        }

        thresholds.sort_by(f64::total_cmp);
        thresholds.dedup();
        let counted = mapped(&json!([{"thresholds": thresholds}]), tensor.clone()).unwrap();
        prop_assert_eq!((counted.datatype, &counted.shape), (Datatype::Int64, &tensor.shape));
        for (found, cell) in cells(&counted).iter().zip(&all) {
            let expected = thresholds.iter().filter(|threshold| cell.to_f64() >= **threshold).count();
            prop_assert_eq!(found, &Cell::Integer(i128::try_from(expected).unwrap()));
        }

        let summed = mapped(&json!([{"weighted_sum": thresholds}]), tensor.clone());
        if tensor.shape[1] % thresholds.len() == 0 {
            let summed = summed.unwrap();
            let size = tensor.shape[1] / thresholds.len();
            prop_assert_eq!(&summed.shape, &vec![rows.len(), size]);
            for (found, row) in cells(&summed).chunks(size).zip(&rows) {
                for (column, found) in found.iter().enumerate() {
                    let sum: f64 = thresholds.iter().enumerate().map(|(part, weight)| weight * row[part * size + column].to_f64()).sum();
                    let rounded = match summed.datatype {
                        Datatype::Fp16 => f16::from_f64(sum).to_f64(),
                        Datatype::Bf16 => bf16::from_f64(sum).to_f64(),
                        Datatype::Fp32 => Number::to_f64(<f32 as Number>::from_f64(sum)),
                        _ => sum,
                    };
                    prop_assert_eq!(found, &Cell::float(rounded));
                }
            }
        } else {
            prop_assert!(summed.unwrap_err().contains("parts of the same size"));
        }

        let softmax = mapped(&json!(["softmax"]), tensor.clone()).unwrap();
        prop_assert_eq!(&softmax.shape, &tensor.shape);
        let tolerance = match softmax.datatype {
            Datatype::Bf16 => 1e-2,
            Datatype::Fp16 => 1e-3,
            Datatype::Fp32 => 1e-6,
            _ => 1e-12,
        };
        for (found, row) in cells(&softmax).chunks(tensor.shape[1]).zip(&rows) {
            let values: Vec<f64> = row.iter().map(Cell::to_f64).collect();
            for (found, value) in found.iter().zip(&values) {
                // 1 / sum(exp(other - value)), which does not overflow to NaN.
                let expected = 1.0 / values.iter().map(|other| (other - value).exp()).sum::<f64>();
                let is_special = values.iter().any(|value| value.is_nan() || *value == f64::INFINITY)
                    || values.iter().all(|value| *value == f64::NEG_INFINITY);
                let found = found.to_f64();
                match (is_special, *value == f64::NEG_INFINITY) {
                    (true, _) => prop_assert!(found.is_nan()),
                    (false, true) => prop_assert!(found == 0.0),
                    (false, false) => prop_assert!((found - expected).abs() <= tolerance, "{found} is not {expected}"),
                }
            }
        }
    }

    #[test]
    fn map_tables_are_those_of_naive_code(
        tensor in shapes(1..4).prop_flat_map(|shape| tensor("x", shape, &Datatype::ALL)),
        keys in proptest::collection::hash_set(-3..4_i64, 1..6),
    ) {
        let keys: Vec<i64> = keys.into_iter().collect();
        let number = |cell: &Cell| {
            let integer = match cell {
                Cell::Text(text) => return keys.iter().position(|key| key.to_string().as_bytes() == text),
                Cell::Integer(integer) => *integer,
                Cell::Float(Some(float)) => return keys.iter().position(|&key| {
                    i32::try_from(key).is_ok_and(|key| f64::from(key).total_cmp(&(float + 0.0)).is_eq())
                }),
                Cell::Float(None) => return None,
            };
            keys.iter().position(|key| i128::from(*key) == integer)
        };
        let table: serde_json::Map<String, Value> =
            keys.iter().enumerate().map(|(number, key)| (key.to_string(), json!(format!("label {number}")))).collect();
        let labels = mapped(&json!([{"table": table, "default": "other"}]), tensor.clone()).unwrap();
        prop_assert_eq!(&labels.shape, &tensor.shape);
        for (found, cell) in cells(&labels).iter().zip(cells(&tensor)) {
            let expected = number(&cell).map_or_else(|| "other".to_owned(), |number| format!("label {number}"));
            prop_assert_eq!(found, &Cell::Text(expected.into_bytes()));
        }
        let without_default = mapped(&json!([{"table": table}]), tensor.clone());
        let unlisted = cells(&tensor).iter().position(|cell| number(cell).is_none());
        if let Some(index) = unlisted {
            let start = format!("the element {index} of the input `x` is `");
            prop_assert!(without_default.unwrap_err().starts_with(&start));
        } else {
            prop_assert_eq!(cells(&without_default.unwrap()), cells(&labels));
        }

        let encoded = mapped(&json!([{"one_hot": keys, "ignore_unknown": true}]), tensor.clone()).unwrap();
        let ones = cells(&tensor).iter().map(|cell| {
            let number = number(cell);
            (0..keys.len()).map(|column| Cell::float(if number == Some(column) { 1.0 } else { 0.0 })).collect::<Vec<_>>()
        }).collect::<Vec<_>>().concat();
        prop_assert_eq!(cells(&encoded), ones);
        let mut shape = tensor.shape.clone();
        if shape.len() == 1 { shape.push(keys.len()) } else { *shape.last_mut().unwrap() *= keys.len() }
        prop_assert_eq!((encoded.datatype, encoded.shape), (Datatype::Fp32, shape));
    }

    #[test]
    fn unexpected_settings_never_panic(
        value in unexpected_settings(),
        tensors in shapes(0..4).prop_flat_map(|shape| (tensor("x", shape.clone(), &Datatype::ALL), tensor("y", shape, &Datatype::ALL))),
    ) {
        let request = request(vec![tensors.0, tensors.1]);
        for extra in [
            json!({"outputs": value}),
            json!({"outputs": [value]}),
            json!({"outputs": [{"input": "x", "columns": value}]}),
            json!({"outputs": [{"input": "x", "apply": value}]}),
            json!({"outputs": [{"input": "x", "apply": [value]}]}),
            json!({"name": "z", "axis": value}),
            json!({"name": "z", "inputs": value}),
        ] {
            for (implementation, _) in STEPS {
                if let Ok(model) = load(implementation, &extra) {
                    drop(answer(&model, &request));
                }
            }
        }
    }

    #[test]
    fn declared_outputs_are_those_of_requests(
        tensor in shapes(1..4).prop_flat_map(|shape| tensor("x", shape, &Datatype::ALL)),
        unknown in 0..3_usize,
        apply in prop::sample::select(vec![json!(["argmax"]), json!(["softmax"]), json!([{"one_hot": [0, 1], "ignore_unknown": true}]),
            json!([{"thresholds": [0.5]}, {"table": ["a"], "default": "b"}])]),
    ) {
        let mut settings = settings("mlserver.Map", &json!({"outputs": [{"input": "x", "apply": apply}]}));
        let mut shape: Vec<i64> = tensor.shape.iter().map(|&size| i64::try_from(size).unwrap()).collect();
        if let Some(size) = shape.get_mut(unknown) {
            *size = -1;
        }
        let (name, datatype) = ("x".to_owned(), tensor.datatype.name().to_owned());
        settings.inputs = vec![TensorMetadata { name, datatype, shape, parameters: Parameters::new() }];
        let Ok((model, description)) = NativeStep::load(&settings) else {
            prop_assert!(mapped(&apply, tensor).is_err(), "the request does not fit, either");
            return Ok(());
        };
        let metadata = description.metadata.as_ref().unwrap();
        let Ok(outputs) = answer(&model, &request(vec![tensor])) else { return Ok(()) };
        prop_assert_eq!(metadata.outputs.len(), 1);
        prop_assert_eq!(&metadata.outputs[0].datatype, outputs[0].datatype.name());
        prop_assert_eq!(metadata.outputs[0].shape.len(), outputs[0].shape.len());
        for (declared, actual) in metadata.outputs[0].shape.iter().zip(&outputs[0].shape) {
            prop_assert!(*declared == -1 || usize::try_from(*declared) == Ok(*actual));
        }
    }
}

#[test]
fn map_applies_operations_in_order() {
    let scores = floats(&[2, 3], &[0.1, 2.0, 0.3, 5.0, 1.0, f64::NAN]);
    let labels = mapped(&json!(["softmax", "argmax", {"table": ["a", "b", "c"]}]), scores).unwrap();
    assert_eq!(cells(&labels), [Cell::Text(b"b".into()), Cell::Text(b"a".into())], "softmax spreads NaN");
    assert_eq!((labels.name.as_str(), labels.shape, labels.parameters.content_type()), ("y", vec![2, 1], Some("str")));
    let ranks = mapped(
        &json!([{"thresholds": [0, 1.5]}, {"table": {"0": -1, "1": 0.5, "2": 7}}]),
        floats(&[4], &[f64::NAN, 0.0, 1.4, 1.5]),
    );
    let ranks = ranks.unwrap();
    assert_eq!((ranks.datatype, ranks.parameters.content_type()), (Datatype::Fp64, Some("np")));
    assert_eq!(cells(&ranks), [-1.0, 0.5, 0.5, 7.0].map(Cell::float));
}

#[test]
fn map_tables_take_every_datatype() {
    let apply = json!([{"table": ["zero", "one"]}]);
    for datatype in NUMBERS {
        let one = numbers::with_number!(datatype, N => bytemuck::bytes_of(&N::from_f64(1.0)).to_vec(), unreachable!());
        let tensor = Tensor::from_raw("x", datatype, vec![1], one.into()).unwrap();
        assert_eq!(cells(&mapped(&apply, tensor).unwrap()), [Cell::Text(b"one".into())], "{datatype}");
    }
    assert_eq!(cells(&mapped(&apply, texts("x", &[1], &["1"])).unwrap()), [Cell::Text(b"one".into())]);
    assert!(mapped(&apply, texts("x", &[1], &["01"])).is_err());
    assert_eq!(
        cells(&mapped(&json!([{"one_hot": ["b", 7]}]), texts("x", &[2], &["7", "b"])).unwrap()),
        [0.0, 1.0, 1.0, 0.0].map(Cell::float)
    );
}

#[test]
fn map_compares_wide_integers_exactly() {
    let wide = Tensor::from_elements("x", vec![2], &[(1_i64 << 53), (1 << 53) + 1]).unwrap();
    let above = mapped(&json!([{"thresholds": [9_007_199_254_740_992.0, 9_007_199_254_740_994.0]}]), wide).unwrap();
    assert_eq!(cells(&above), [Cell::Integer(1), Cell::Integer(1)]);
    let wide = Tensor::from_elements("x", vec![2], &[u64::MAX, u64::MAX - 1]).unwrap();
    let labels = mapped(&json!([{"table": {"18446744073709551615": 1, "18446744073709551614": 2}}]), wide).unwrap();
    assert_eq!((labels.datatype, cells(&labels)), (Datatype::Int64, vec![Cell::Integer(1), Cell::Integer(2)]));
    let huge = floats(&[2], &[1e300, 1e306]);
    let above = mapped(&json!([{"thresholds": [1e305]}]), huge).unwrap();
    assert_eq!(cells(&above), [Cell::Integer(0), Cell::Integer(1)]);
}

#[test]
fn concat_takes_one_dimension_as_a_column_and_keeps_common_content_types() {
    let numbers = |name: &str, shape: &[usize]| {
        Tensor::from_elements(name, shape.to_vec(), &vec![1_i8; shape.iter().product()]).unwrap()
    };
    let joined =
        only("mlserver.Concat", &json!({"name": "y"}), vec![numbers("a", &[2]), numbers("b", &[2, 3])]).unwrap();
    assert_eq!((joined.shape, joined.datatype), (vec![2, 4], Datatype::Int8));
    let joined = only(
        "mlserver.Concat",
        &json!({"name": "y", "inputs": ["b", "a"]}),
        vec![numbers("a", &[2]), numbers("b", &[2])],
    );
    assert_eq!(joined.unwrap().shape, [2, 2]);
    let mut pair = [texts("a", &[1], &["p"]), texts("b", &[1], &["q"])];
    let content_type = |pair: &[Tensor]| {
        let joined = only("mlserver.Concat", &json!({"name": "y"}), pair.to_vec()).unwrap();
        assert!(matches!(&joined.data, TensorData::Variable(elements) if elements.is_text()));
        joined.parameters.content_type().map(str::to_owned)
    };
    assert_eq!(content_type(&pair), None);
    pair[0].parameters = Parameters::with_content_type("base64");
    assert_eq!(content_type(&pair), None);
    pair[1].parameters = Parameters::with_content_type("base64");
    assert_eq!(content_type(&pair).as_deref(), Some("base64"));
}

#[test]
fn requests_that_do_not_fit_are_rejected() {
    let select = |columns: Value| json!({"outputs": [{"input": "x", "columns": columns}]});
    let column = || floats(&[2, 1], &[0.5, 1.0]);
    let cases = [
        (
            "mlserver.Select",
            select(json!([1])),
            vec![column()],
            "the input `x` has the shape [2, 1], but `columns` needs a column 1",
        ),
        (
            "mlserver.Select",
            select(json!([0])),
            vec![floats(&[2], &[0.5, 1.0])],
            "the input `x` has the shape [2], but `columns` needs at least two dimensions: rows and columns",
        ),
        (
            "mlserver.Select",
            json!({"outputs": [{"input": "z"}]}),
            vec![column()],
            "the input `z` is missing (found `x`)",
        ),
        ("mlserver.Select", json!({"outputs": [{"input": "z"}]}), vec![], "the input `z` is missing (found none)"),
        (
            "mlserver.Map",
            json!({"outputs": [{"input": "x", "apply": ["argmax"]}]}),
            vec![floats(&[2, 0], &[])],
            "the input `x` has the shape [2, 0], but `argmax` needs at least one column",
        ),
        (
            "mlserver.Map",
            json!({"outputs": [{"input": "x", "apply": [{"weighted_sum": [1, 2]}]}]}),
            vec![column()],
            "the input `x` has the shape [2, 1], but `weighted_sum` needs columns in 2 parts of the same size",
        ),
        (
            "mlserver.Map",
            json!({"outputs": [{"input": "x", "apply": ["softmax"]}]}),
            vec![texts("x", &[1, 1], &["a"])],
            "the input `x` is BYTES, but `softmax` needs numbers",
        ),
        (
            "mlserver.Map",
            json!({"outputs": [{"input": "x", "apply": [{"one_hot": ["a"]}]}]}),
            vec![floats(&[], &[1.0])],
            "the input `x` has the shape [], but `one_hot` needs at least one dimension",
        ),
        (
            "mlserver.Map",
            json!({"outputs": [{"input": "x", "apply": [{"one_hot": ["a"]}]}]}),
            vec![column()],
            "the element 0 of the input `x` is `0.5`, which is not in `one_hot`",
        ),
        ("mlserver.Concat", json!({"name": "y"}), vec![], "the request has no inputs to concatenate"),
        (
            "mlserver.Concat",
            json!({"name": "y", "axis": 2}),
            vec![column()],
            "the input `x` has the shape [2, 1], but `axis` needs an axis 2: more than 2 dimensions",
        ),
        (
            "mlserver.Concat",
            json!({"name": "y"}),
            vec![column(), texts("t", &[2, 1], &["a", "b"])],
            "the inputs cannot be concatenated: `t` is BYTES, and `x` is FP64",
        ),
        (
            "mlserver.Concat",
            json!({"name": "y"}),
            vec![column(), Tensor { name: "z".into(), ..floats(&[1, 1], &[0.5]) }],
            "the inputs `x` and `z` cannot be concatenated along axis 1: their shapes are [2, 1] and [1, 1]",
        ),
    ];
    for (implementation, extra, inputs, expected) in cases {
        assert_eq!(only(implementation, &extra, inputs).unwrap_err(), expected);
    }
    let mut unknown = request(vec![column()]);
    unknown.outputs = vec![RequestedOutput { name: "w".into(), ..RequestedOutput::default() }];
    let model =
        load("mlserver.Select", &json!({"outputs": [{"input": "x", "name": "a"}, {"input": "x", "name": "b"}]}))
            .unwrap();
    assert_eq!(answer(&model, &unknown).unwrap_err(), "the output `w` is unknown; the model has `a`, `b`");
    unknown.outputs[0].name = "b".into();
    let outputs = answer(&model, &unknown).unwrap();
    assert_eq!(outputs.iter().map(|output| output.name.as_str()).collect::<Vec<_>>(), ["b"]);
}

#[test]
fn shapes_without_elements_are_not_multiplied() {
    let empty = |shape: &[usize]| Tensor::from_elements::<f32>("x", shape.to_vec(), &[]).unwrap();
    let huge = [usize::MAX, 0, usize::MAX];
    let selected = only("mlserver.Select", &json!({"outputs": [{"input": "x", "columns": [0]}]}), vec![empty(&huge)]);
    assert_eq!(selected.unwrap().shape, [usize::MAX, 0, 1]);
    for apply in [
        json!(["argmax"]),
        json!(["softmax"]),
        json!([{"weighted_sum": [1]}]),
        json!([{"thresholds": [1]}]),
        json!([{"table": ["a"]}]),
    ] {
        assert!(mapped(&apply, empty(&huge)).unwrap().is_empty());
    }
    assert_eq!(
        mapped(&json!([{"one_hot": ["a", "b"]}]), empty(&huge)).unwrap_err(),
        "the output `y` would have more elements than memory can address"
    );
    let twice = json!({"name": "y", "inputs": ["x", "x"], "axis": 0});
    let error = only("mlserver.Concat", &twice, vec![empty(&huge)]).unwrap_err();
    assert_eq!(error, "the output `y` would have more elements than memory can address");
    let joined = only("mlserver.Concat", &json!({"name": "y", "axis": 2}), vec![empty(&huge)]).unwrap();
    assert_eq!(joined.shape, huge);
    // A column of a tensor without columns.
    let none =
        only("mlserver.Select", &json!({"outputs": [{"input": "x", "columns": [0]}]}), vec![empty(&[usize::MAX, 0])]);
    assert!(none.unwrap_err().ends_with("but `columns` needs a column 0"));
}

#[test]
fn computations_stop_when_nobody_waits() {
    let stopped = AtomicBool::new(true);
    let cases = [
        ("mlserver.Select", json!({"outputs": [{"input": "x", "columns": [0]}]})),
        ("mlserver.Map", json!({"outputs": [{"input": "x", "apply": ["softmax"]}]})),
        ("mlserver.Map", json!({"outputs": [{"input": "x", "apply": ["argmax"]}]})),
        ("mlserver.Map", json!({"outputs": [{"input": "x", "apply": [{"weighted_sum": [1]}]}]})),
        ("mlserver.Map", json!({"outputs": [{"input": "x", "apply": [{"thresholds": [1]}]}]})),
        ("mlserver.Map", json!({"outputs": [{"input": "x", "apply": [{"table": ["a"], "default": "b"}]}]})),
        ("mlserver.Concat", json!({"name": "y"})),
    ];
    for (implementation, extra) in cases {
        let model = load(implementation, &extra).unwrap();
        let request = request(vec![floats(&[1, 1], &[0.0])]);
        let plan = model.plan(&request).unwrap().prepared;
        assert_eq!(model.answer(&request, plan, &stopped).unwrap_err().to_string(), "the request was cancelled");
    }
}

#[test]
fn load_errors_name_file_key_value_and_expectation() {
    let cases = [
        ("mlserver.Select", json!({}), "`parameters.extra.outputs` is missing, expected a list of outputs"),
        (
            "mlserver.Select",
            json!({"outputs": []}),
            "`parameters.extra.outputs` is `[]`, expected a list of 1 to 1024 outputs",
        ),
        ("mlserver.Select", json!({"output": []}), "`parameters.extra.output` is unknown, expected `outputs`"),
        (
            "mlserver.Select",
            json!({"outputs": ["x"]}),
            "`parameters.extra.outputs[0]` is `\"x\"`, expected an object with `input`, `columns`, `name`",
        ),
        (
            "mlserver.Select",
            json!({"outputs": [{"input": 1}]}),
            "`parameters.extra.outputs[0].input` is `1`, expected a text",
        ),
        (
            "mlserver.Select",
            json!({"outputs": [{"input": "x", "columns": [0, "a"]}]}),
            "`parameters.extra.outputs[0].columns[1]` is `\"a\"`, expected an integer",
        ),
        (
            "mlserver.Select",
            json!({"outputs": [{"input": "x"}, {"input": "y", "name": "x"}]}),
            "`parameters.extra.outputs[1].name` is `x`, the name of another output, expected a name of its own",
        ),
        (
            "mlserver.Map",
            json!({"outputs": [{"input": "x"}]}),
            "`parameters.extra.outputs[0].apply` is missing, expected a list of operations",
        ),
        (
            "mlserver.Concat",
            json!({"name": "y", "axis": -1}),
            "`parameters.extra.axis` is `-1`, expected an axis from 0 to 31",
        ),
        ("mlserver.Concat", json!({"axis": 1}), "`parameters.extra.name` is missing, expected the name of the output"),
    ];
    for (implementation, extra, expected) in cases {
        assert_load_error(implementation, &extra, expected);
    }
}

#[test]
fn load_errors_of_operations_name_file_key_value_and_expectation() {
    let cases = [
        (
            json!("sigmoid"),
            "`parameters.extra.outputs[0].apply[0]` is `\"sigmoid\"`, expected `\"softmax\"`, `\"argmax\"`, or an object with `weighted_sum`, `thresholds`, `table` or `one_hot`",
        ),
        (
            json!({"softmax": {}}),
            "`parameters.extra.outputs[0].apply[0].softmax` is unknown, expected `\"softmax\"`, `\"argmax\"`, or an object with `weighted_sum`, `thresholds`, `table` or `one_hot`",
        ),
        (
            json!({"thresholds": [1, 1]}),
            "`parameters.extra.outputs[0].apply[0].thresholds` is `[1,1]`, expected numbers that increase",
        ),
        (
            json!({"table": {}}),
            "`parameters.extra.outputs[0].apply[0].table` is an object, expected an object of labels by value, or a list of labels, with 1 to 65536 of them",
        ),
        (
            json!({"table": ["a"], "defaults": "b"}),
            "`parameters.extra.outputs[0].apply[0].defaults` is unknown, expected `table`, `default`",
        ),
        (
            json!({"table": {"1": "a", "2": 3}}),
            "`parameters.extra.outputs[0].apply[0].table.2` is `3`, expected a text, as the first label",
        ),
        (
            json!({"table": [1, 2], "default": "other"}),
            "`parameters.extra.outputs[0].apply[0].default` is `\"other\"`, expected a number, as the first label",
        ),
        (
            json!({"table": [true]}),
            "`parameters.extra.outputs[0].apply[0].table[0]` is `true`, expected a text or a number",
        ),
        (
            json!({"one_hot": ["a", "b", "a"]}),
            "`parameters.extra.outputs[0].apply[0].one_hot[2]` is `a`, a category that is listed before, expected each category once",
        ),
        (
            json!({"one_hot": [0.5]}),
            "`parameters.extra.outputs[0].apply[0].one_hot[0]` is `0.5`, expected a text or an integer",
        ),
        (
            json!({"one_hot": ["a"], "ignore_unknown": 1}),
            "`parameters.extra.outputs[0].apply[0].ignore_unknown` is `1`, expected `true` or `false`",
        ),
    ];
    for (operation, expected) in cases {
        assert_load_error("mlserver.Map", &json!({"outputs": [{"input": "x", "apply": [operation]}]}), expected);
    }
}

#[track_caller]
fn assert_load_error(implementation: &str, extra: &Value, expected: &str) {
    let mut settings = settings(implementation, extra);
    let error = NativeStep::load(&settings).unwrap_err();
    assert_eq!(error.to_string(), expected);
    assert!(!error.is_unsupported(), "Python cannot serve it");
    settings.source = Some("/models/step/model-settings.json".into());
    let error = NativeStep::load(&settings).unwrap_err();
    assert_eq!(error.to_string(), format!("`/models/step/model-settings.json`: {expected}"));
}

#[test]
fn load_checks_declared_inputs_and_batching() {
    let mut settings = settings("mlserver.Concat", &json!({"name": "y", "axis": 0}));
    settings.max_batch_size = 8;
    let error = NativeStep::load(&settings).unwrap_err().to_string();
    assert_eq!(
        error,
        "`parameters.extra.axis` is `0`, although `max_batch_size` is 8, expected another axis, since requests of a batch are joined along \
         axis 0, or `max_batch_size` 0"
    );
    let mut settings = self::settings("mlserver.Select", &json!({"outputs": [{"input": "x", "columns": [4]}]}));
    let declare = |name: &str, shape: &[i64]| TensorMetadata {
        name: name.to_owned(),
        datatype: "FP32".to_owned(),
        shape: shape.to_vec(),
        parameters: Parameters::new(),
    };
    settings.inputs = vec![declare("x", &[-1, 4])];
    let error = |settings: &ModelSettings| NativeStep::load(settings).unwrap_err().to_string();
    assert_eq!(
        error(&settings),
        "`inputs` do not fit `parameters.extra`: the input `x` has the shape [-1, 4], but `columns` needs a column 4"
    );
    settings.inputs = vec![declare("z", &[-1, 4])];
    assert_eq!(error(&settings), "`inputs` do not fit `parameters.extra`: the input `x` is missing (found `z`)");
}

#[test]
fn merged_requests_are_answered_as_single_ones() {
    let cases = [
        ("mlserver.Select", json!({"outputs": [{"input": "x", "columns": [1]}, {"input": "t", "name": "u"}]})),
        ("mlserver.Map", json!({"outputs": [{"input": "x", "apply": ["softmax", "argmax", {"table": ["a", "b"]}]}]})),
        ("mlserver.Map", json!({"outputs": [{"input": "t", "apply": [{"one_hot": ["p", "q"]}]}]})),
        ("mlserver.Concat", json!({"name": "y", "inputs": ["x", "x"]})),
    ];
    let request = |values: &[f64], words: &[&str]| {
        request(vec![floats(&[words.len(), 2], values), texts("t", &[words.len()], words)])
    };
    let requests = [request(&[1.0, 2.0], &["p"]), request(&[5.0, 3.0, 0.0, 9.0], &["q", "p"])];
    for (implementation, extra) in cases {
        let model = load(implementation, &extra).unwrap();
        let merged = merge::merge(&requests.each_ref()).unwrap();
        let outputs = answer(&model, &merged).unwrap();
        let parts = merge::split(&InferenceResponse { outputs, ..InferenceResponse::default() }, &[1, 2]).unwrap();
        for (part, request) in parts.iter().zip(&requests) {
            assert_eq!(part.outputs, answer(&model, request).unwrap(), "{implementation} {extra}");
        }
    }
}

#[test]
fn steps_of_the_family_are_those_that_are_loaded() {
    let names = STEPS.map(|(name, _)| name);
    let family = crate::families::ModelFamily::of(names[0]).unwrap();
    assert_eq!(family.implementations, names);
}

#[test]
fn outputs_that_are_requested_twice_share_elements() {
    let model = load(
        "mlserver.Select",
        &json!({"outputs": [{"input": "x", "columns": [0], "name": "a"}, {"input": "x", "name": "b"}]}),
    )
    .unwrap();
    let mut twice = request(vec![floats(&[1, 2], &[0.5, 1.0])]);
    let output = |name: &str| RequestedOutput { name: name.to_owned(), ..RequestedOutput::default() };
    twice.outputs = vec![output("a"), output("a")];
    let outputs = answer(&model, &twice).unwrap();
    assert_eq!(outputs[0].to_raw().unwrap().as_ptr(), outputs[1].to_raw().unwrap().as_ptr());
    twice.outputs.push(output("b"));
    assert!(answer(&model, &twice).unwrap_err().starts_with("3 outputs are requested, of which `a` more than once"));
}

#[tokio::test]
async fn streams_are_answered_message_by_message() {
    let select = settings("mlserver.Select", &json!({"outputs": [{"input": "x", "columns": [-1]}]}));
    let model = Arc::new(NativeStep::serve(&select, ComputePool::for_this_machine()).unwrap());
    let requests = [[1.0, 2.0], [3.0, 4.0]].map(|row| request(vec![floats(&[1, 2], &row)]));
    let stream = model.predict_stream(Box::pin(futures_util::stream::iter(requests)), Arc::new(()));
    let answers: Vec<_> = stream.map(|answer| cells(&answer.unwrap().outputs[0])).collect().await;
    assert_eq!(answers, [vec![Cell::float(2.0)], vec![Cell::float(4.0)]]);
}
