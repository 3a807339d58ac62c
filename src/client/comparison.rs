//! Two servers that answer the same requests, and the differences between their answers.

use std::fmt;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use half::{bf16, f16};

use crate::remote::{FailureKind, InferenceTarget, RequestFailure, server_bytes, server_text};
use crate::types::{Datatype, Element, InferenceRequest, InferenceResponse, Tensor, TensorData};

/// Sends each request to two servers. A request whose answers differ fails with [`FailureKind::Different`].
///
/// Outputs are paired by name. Their datatypes, shapes, elements and parameters are compared. Ids, model names, versions and the
/// parameters of the response are not.
pub struct ComparedServers {
    pub servers: [ComparedServer; 2],
    pub tolerance: Tolerance,
}

/// One of two servers.
pub struct ComparedServer {
    /// The address, for messages.
    pub name: String,
    pub target: Arc<dyn InferenceTarget>,
}

/// The largest difference between two floating-point numbers that count as equal: `absolute + relative * max(|a|, |b|)`. Numbers that
/// are not finite only equal themselves. Other datatypes are compared exactly.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Tolerance {
    pub absolute: f64,
    pub relative: f64,
}

/// The first difference between two responses: the two values, and their place.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ResponseDifference {
    place: String,
    values: [String; 2],
    /// Follows the values; empty if they are all.
    note: String,
}

impl ResponseDifference {
    fn new(place: impl Into<String>, first: impl fmt::Display, second: impl fmt::Display) -> Self {
        let values = [server_text(&first.to_string()), server_text(&second.to_string())];
        Self { place: server_text(&place.into()), values, note: String::new() }
    }
}

impl InferenceTarget for ComparedServers {
    fn infer<'a>(&'a self, request: &'a InferenceRequest) -> BoxFuture<'a, Result<InferenceResponse, RequestFailure>> {
        async move {
            let [first, second] = &self.servers;
            let answers = futures_util::future::join(first.target.infer(request), second.target.infer(request)).await;
            match answers {
                (Ok(response), Ok(other)) => match self.tolerance.difference(&response, &other) {
                    None => Ok(response),
                    Some(difference) => Err(self.differ(&difference)),
                },
                // If a server is overloaded or gone, its answer is not known.
                (Err(failure), _) if failure.kind != FailureKind::Rejected => Err(first.failed(failure)),
                (_, Err(failure)) if failure.kind != FailureKind::Rejected => Err(second.failed(failure)),
                (Err(failure), Err(other)) => {
                    let message = format!("rejected by {}: {failure}; by {}: {other}", first.name, second.name);
                    Err(RequestFailure { message, status: None, ..failure })
                }
                (Err(failure), Ok(_)) => Err(first.alone_rejects(&failure, second)),
                (Ok(_), Err(failure)) => Err(second.alone_rejects(&failure, first)),
            }
        }
        .boxed()
    }

    fn check_available(&self) -> BoxFuture<'_, Result<(), RequestFailure>> {
        async {
            for server in &self.servers {
                server.target.check_available().await.map_err(|failure| server.failed(failure))?;
            }
            Ok(())
        }
        .boxed()
    }
}

impl ComparedServers {
    fn differ(&self, difference: &ResponseDifference) -> RequestFailure {
        let ([first, second], ResponseDifference { place, values, note }) = (&self.servers, difference);
        let [value, other] = values;
        let message = format!("{place}: {value} from {}, {other} from {}{note}", first.name, second.name);
        RequestFailure::new(FailureKind::Different, message)
    }
}

impl ComparedServer {
    /// Returns a failure of this server that is not an answer of its model.
    fn failed(&self, mut failure: RequestFailure) -> RequestFailure {
        failure.message = format!("{}: {}", self.name, failure.message);
        failure
    }

    fn alone_rejects(&self, failure: &RequestFailure, other: &Self) -> RequestFailure {
        let message = format!("rejected by {}: {failure}; answered by {}", self.name, other.name);
        RequestFailure::new(FailureKind::Different, message)
    }
}

impl Tolerance {
    /// Returns the first difference between the outputs of two responses, or `None` if they are equal.
    fn difference(&self, first: &InferenceResponse, second: &InferenceResponse) -> Option<ResponseDifference> {
        let names = |outputs: &[Tensor]| {
            let mut names: Vec<_> = outputs.iter().map(|output| output.name.clone()).collect();
            names.sort_unstable();
            names
        };
        let (expected, found) = (names(&first.outputs), names(&second.outputs));
        if expected != found {
            let list = |names: &[String]| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Some(ResponseDifference::new("outputs", list(&expected), list(&found)));
        }
        let mut others: Vec<_> = second.outputs.iter().collect();
        first.outputs.iter().find_map(|output| {
            // Outputs of one name are paired in their order.
            let other = others.iter().position(|other| other.name == output.name).map(|index| others.remove(index))?;
            self.tensor_difference(output, other)
        })
    }

    fn tensor_difference(&self, first: &Tensor, second: &Tensor) -> Option<ResponseDifference> {
        let place = |what: &str| format!("{what} of output `{}`", first.name);
        if first.datatype != second.datatype {
            return Some(ResponseDifference::new(place("datatype"), first.datatype, second.datatype));
        }
        if first.shape != second.shape {
            let shape = |tensor: &Tensor| format!("{:?}", tensor.shape);
            return Some(ResponseDifference::new(place("shape"), shape(first), shape(second)));
        }
        let elements = match first.datatype {
            Datatype::Fp16 => self.floats::<f16>(first, second),
            Datatype::Bf16 => self.floats::<bf16>(first, second),
            Datatype::Fp32 => self.floats::<f32>(first, second),
            Datatype::Fp64 => self.floats::<f64>(first, second),
            Datatype::Uint8 => integers::<u8>(first, second),
            Datatype::Uint16 => integers::<u16>(first, second),
            Datatype::Uint32 => integers::<u32>(first, second),
            Datatype::Uint64 => integers::<u64>(first, second),
            Datatype::Int8 => integers::<i8>(first, second),
            Datatype::Int16 => integers::<i16>(first, second),
            Datatype::Int32 => integers::<i32>(first, second),
            Datatype::Int64 => integers::<i64>(first, second),
            Datatype::Bool | Datatype::Bytes => bytes(first, second),
        };
        if let Some(ElementDifference { index, values, note }) = elements {
            let place = match index {
                Some(index) => format!("output `{}`{:?}", first.name, position(&first.shape, index)),
                None => format!("output `{}`", first.name),
            };
            let [value, other] = values;
            return Some(ResponseDifference { note, ..ResponseDifference::new(place, value, other) });
        }
        if first.parameters != second.parameters {
            let parameters = |tensor: &Tensor| {
                serde_json::to_string(&tensor.parameters).unwrap_or_else(|_| format!("{:?}", tensor.parameters))
            };
            return Some(ResponseDifference::new(place("parameters"), parameters(first), parameters(second)));
        }
        None
    }

    /// Compares floating-point numbers.
    fn floats<T: Element + Into<f64>>(&self, first: &Tensor, second: &Tensor) -> Option<ElementDifference> {
        let (Some(first), Some(second)) = (first.elements::<T>(), second.elements::<T>()) else {
            return bytes(first, second);
        };
        let pairs = || first.iter().zip(second.iter()).map(|(first, second)| ((*first).into(), (*second).into()));
        let (index, (value, other)) =
            pairs().enumerate().find(|(_, (first, second))| !self.is_equal(*first, *second))?;
        let differing = pairs().filter(|(first, second)| !self.is_equal(*first, *second));
        let (count, largest) = differing.fold((0_usize, 0_f64), |(count, largest), (first, second)| {
            (count + 1, largest.max((first - second).abs()))
        });
        let note = format!(" ({count} of {} elements differ, by at most {largest:e})", first.len());
        Some(ElementDifference { index: Some(index), values: [format!("{value:?}"), format!("{other:?}")], note })
    }

    fn is_equal(&self, first: f64, second: f64) -> bool {
        if !(first.is_finite() && second.is_finite()) {
            return first.is_nan() && second.is_nan() || first.total_cmp(&second).is_eq();
        }
        (first - second).abs() <= self.absolute + self.relative * first.abs().max(second.abs())
    }
}

/// The first of two tensors' elements that differ.
struct ElementDifference {
    /// `None` if the data has no elements to count.
    index: Option<usize>,
    values: [String; 2],
    note: String,
}

fn integers<T: Element + PartialEq + fmt::Display>(first: &Tensor, second: &Tensor) -> Option<ElementDifference> {
    let (Some(first), Some(second)) = (first.elements::<T>(), second.elements::<T>()) else {
        return bytes(first, second);
    };
    let different = || first.iter().zip(second.iter()).enumerate().filter(|(_, (first, second))| first != second);
    let (index, (value, other)) = different().next()?;
    let note = format!(" ({} of {} elements differ)", different().count(), first.len());
    Some(ElementDifference { index: Some(index), values: [value.to_string(), other.to_string()], note })
}

/// Compares data that is not made of numbers.
fn bytes(first: &Tensor, second: &Tensor) -> Option<ElementDifference> {
    let found = |index, value: &[u8], other: &[u8]| {
        let values = [value, other].map(|value| format!("\"{}\"", server_bytes(value)));
        Some(ElementDifference { index: Some(index), values, note: String::new() })
    };
    match (&first.data, &second.data) {
        (TensorData::Variable(first), TensorData::Variable(second)) => {
            let mut pairs = first.iter().zip(second.iter()).enumerate();
            let (index, (value, other)) = pairs.find(|(_, (first, second))| first != second)?;
            found(index, value, other)
        }
        (TensorData::Fixed(first), TensorData::Fixed(second)) => {
            let mut pairs = first.iter().zip(second.iter()).enumerate();
            let (index, (value, other)) = pairs.find(|(_, (first, second))| first != second)?;
            Some(ElementDifference {
                index: Some(index),
                values: [value, other].map(|value| (*value != 0).to_string()),
                note: String::new(),
            })
        }
        (first, second) => (first != second).then(|| ElementDifference {
            index: None,
            values: [irregular(first), irregular(second)],
            note: String::new(),
        }),
    }
}

/// Returns data that does not have the declared datatype or shape, as text.
fn irregular(data: &TensorData) -> String {
    match data {
        TensorData::Irregular(data) => server_bytes(data.json()),
        TensorData::Fixed(_) | TensorData::Variable(_) => "regular data".to_owned(),
    }
}

/// Returns the indices of an element of a row-major tensor.
fn position(shape: &[usize], mut index: usize) -> Vec<usize> {
    let mut position: Vec<_> = shape
        .iter()
        .rev()
        .map(|&dimension| {
            let dimension = dimension.max(1);
            let place = index % dimension;
            index /= dimension;
            place
        })
        .collect();
    position.reverse();
    position
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{BytesElements, Parameters};

    fn response(outputs: Vec<Tensor>) -> InferenceResponse {
        InferenceResponse { outputs, ..InferenceResponse::default() }
    }

    fn floats(name: &str, shape: &[usize], elements: &[f32]) -> Tensor {
        Tensor::from_elements(name, shape.to_vec(), elements).unwrap()
    }

    fn texts(elements: &[&str]) -> Tensor {
        Tensor {
            name: "t".to_owned(),
            datatype: Datatype::Bytes,
            shape: vec![elements.len()],
            parameters: Parameters::new(),
            data: TensorData::Variable(elements.iter().collect::<BytesElements>()),
            nested: false,
            as_sent: None,
        }
    }

    fn shown(first: Vec<Tensor>, second: Vec<Tensor>, tolerance: Tolerance) -> Option<String> {
        let difference = tolerance.difference(&response(first), &response(second))?;
        let [value, other] = difference.values;
        Some(format!("{}: {value} | {other}{}", difference.place, difference.note))
    }

    #[test]
    fn comparison_reports_the_first_difference() {
        let exact = Tolerance::default();
        let differ = |first, second| shown(first, second, exact).unwrap();
        let matrix = |elements: &[f32]| floats("p", &[2, 2], elements);
        assert_eq!(
            differ(vec![matrix(&[0.0, 1.0, 2.0, 3.0])], vec![matrix(&[0.0, 1.0, 2.5, 3.25])]),
            "output `p`[1, 0]: 2.0 | 2.5 (2 of 4 elements differ, by at most 5e-1)"
        );
        let other_shape = vec![floats("p", &[4], &[0.0; 4])];
        assert_eq!(differ(vec![matrix(&[0.0; 4])], other_shape), "shape of output `p`: [2, 2] | [4]");
        let doubles = vec![Tensor::from_elements("p", vec![2, 2], &[0.0_f64; 4]).unwrap()];
        assert_eq!(differ(vec![matrix(&[0.0; 4])], doubles), "datatype of output `p`: FP32 | FP64");
        assert_eq!(differ(vec![matrix(&[0.0; 4])], vec![]), "outputs: p | none");
        let integers = |elements: &[i64]| vec![Tensor::from_elements("i", vec![3], elements).unwrap()];
        assert_eq!(differ(integers(&[1, 2, 3]), integers(&[1, 5, 3])), "output `i`[1]: 2 | 5 (1 of 3 elements differ)");
        assert_eq!(
            differ(vec![texts(&["a", "b"])], vec![texts(&["a", "c\u{1b}[2J"])]),
            "output `t`[1]: \"b\" | \"c\\u{1b}[2J\""
        );
        let flags = |bytes: &'static [u8]| {
            vec![Tensor::from_raw("b", Datatype::Bool, vec![2], bytes::Bytes::from_static(bytes)).unwrap()]
        };
        assert_eq!(differ(flags(&[0, 1]), flags(&[0, 0])), "output `b`[1]: true | false");
        let mut named = texts(&["a"]);
        named.parameters.content_type = Some("str".into());
        assert_eq!(
            differ(vec![texts(&["a"])], vec![named]),
            "parameters of output `t`: {} | {\"content_type\":\"str\"}"
        );
    }

    #[test]
    fn comparison_pairs_outputs_by_name() {
        let (first, second) = (floats("a", &[1], &[1.0]), floats("b", &[1], &[2.0]));
        let reversed = vec![second.clone(), first.clone()];
        assert_eq!(shown(vec![first, second], reversed, Tolerance::default()), None);
        let twice = |a: f32, b: f32| vec![floats("a", &[1], &[a]), floats("a", &[1], &[b])];
        assert_eq!(shown(twice(1.0, 2.0), twice(1.0, 2.0), Tolerance::default()), None);
        assert!(shown(twice(1.0, 2.0), twice(2.0, 1.0), Tolerance::default()).is_some());
    }

    #[test]
    fn comparison_tolerates_small_differences_of_floats() {
        let one = |value: f32| vec![floats("p", &[1], &[value])];
        let is_equal = |first: f32, second: f32, absolute: f64, relative: f64| {
            shown(one(first), one(second), Tolerance { absolute, relative }).is_none()
        };
        assert!(is_equal(100.0, 100.5, 0.5, 0.0));
        assert!(!is_equal(100.0, 100.5, 0.25, 0.0));
        assert!(is_equal(100.0, 101.0, 0.0, 0.01));
        assert!(!is_equal(100.0, 102.0, 0.0, 0.01));
        assert!(is_equal(f32::NAN, f32::NAN, 0.0, 0.0));
        assert!(!is_equal(f32::NAN, 1.0, 1.0, 1.0));
        assert!(is_equal(f32::INFINITY, f32::INFINITY, 0.0, 0.0));
        assert!(!is_equal(f32::INFINITY, f32::MAX, 1.0, 1.0));
        let integers = |value: i32| vec![Tensor::from_elements("p", vec![1], &[value]).unwrap()];
        assert!(shown(integers(1), integers(2), Tolerance { absolute: 5.0, relative: 1.0 }).is_some());
    }
}
