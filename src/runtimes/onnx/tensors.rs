//! Tensors of the protocol become tensors of a graph, and back.

use std::borrow::Cow;

use bytes::Bytes;
use half::{bf16, f16};
use serde_json::json;

use crate::evaluators::onnx::{self, Element as OnnxElement, ElementType, Elements, Labels};
use crate::runtimes::RuntimeError;
use crate::types::{BytesElements, Datatype, Element, Parameters, Tensor, TensorData};

/// A number of the protocol, which converts to all types of a graph.
trait Numeric: Element {
    fn to_f64(self) -> f64;

    fn to_i64(self) -> i64;
}

macro_rules! numeric {
    ($($type:ty),*) => { $(
        impl Numeric for $type {
            #[expect(clippy::allow_attributes, reason = "not every type needs every exception")]
            #[allow(clippy::cast_precision_loss, clippy::cast_lossless, reason = "rounds, as NumPy")]
            fn to_f64(self) -> f64 {
                self as f64
            }

            #[expect(clippy::allow_attributes, reason = "not every type needs every exception")]
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_possible_wrap,
                clippy::cast_lossless,
                reason = "fractions are cut, and integers wrap, as in NumPy"
            )]
            fn to_i64(self) -> i64 {
                self as i64
            }
        }
    )* };
}
numeric!(i8, i16, i32, i64, u8, u16, u32, u64, f32, f64);

impl Numeric for f16 {
    fn to_f64(self) -> f64 {
        Self::to_f64(self)
    }

    fn to_i64(self) -> i64 {
        self.to_f32().to_i64()
    }
}

impl Numeric for bf16 {
    fn to_f64(self) -> f64 {
        Self::to_f64(self)
    }

    fn to_i64(self) -> i64 {
        self.to_f32().to_i64()
    }
}

/// Returns the elements of a tensor in the type of a graph's input. Elements of that type are borrowed.
pub(super) fn elements(tensor: &Tensor, wanted: ElementType) -> Result<Elements<'_>, RuntimeError> {
    let elements = match tensor.datatype {
        Datatype::Bytes => match &tensor.data {
            TensorData::Variable(texts) => Some(Bytes::wrap(texts.slices().collect::<Vec<Bytes>>().into())),
            TensorData::Fixed(_) | TensorData::Irregular(_) => None,
        },
        Datatype::Bool => bools(tensor, wanted),
        Datatype::Fp16 => converted::<f16>(tensor, wanted),
        Datatype::Bf16 => converted::<bf16>(tensor, wanted),
        Datatype::Fp32 => converted::<f32>(tensor, wanted),
        Datatype::Fp64 => converted::<f64>(tensor, wanted),
        Datatype::Int8 => converted::<i8>(tensor, wanted),
        Datatype::Int16 => converted::<i16>(tensor, wanted),
        Datatype::Int32 => converted::<i32>(tensor, wanted),
        Datatype::Int64 => converted::<i64>(tensor, wanted),
        Datatype::Uint8 => converted::<u8>(tensor, wanted),
        Datatype::Uint16 => converted::<u16>(tensor, wanted),
        Datatype::Uint32 => converted::<u32>(tensor, wanted),
        Datatype::Uint64 => converted::<u64>(tensor, wanted),
    };
    elements.ok_or_else(|| RuntimeError::inconsistent("a tensor has no elements of its datatype"))
}

/// Returns the elements of a tensor of flags.
fn bools(tensor: &Tensor, wanted: ElementType) -> Option<Elements<'_>> {
    let TensorData::Fixed(bytes) = &tensor.data else { return None };
    if wanted == ElementType::Bool {
        let flags: Vec<bool> = bytes.iter().map(|byte| *byte != 0).collect();
        return Some(bool::wrap(flags.into()));
    }
    convert(Cow::Borrowed(&bytes[..]), wanted)
}

fn converted<T: Numeric>(tensor: &Tensor, wanted: ElementType) -> Option<Elements<'_>> {
    convert(tensor.elements::<T>()?, wanted)
}

/// Returns numbers in another type. Those of the same type are not copied.
fn convert<T: Numeric>(values: Cow<'_, [T]>, wanted: ElementType) -> Option<Elements<'_>> {
    /// Returns the numbers as they are, if they have the type, or else each of them converted.
    fn to<T: Numeric, U: Element + OnnxElement>(values: Cow<'_, [T]>, convert: impl Fn(T) -> U) -> Elements<'_> {
        if T::DATATYPE != U::DATATYPE {
            return U::wrap(values.iter().map(|value| convert(*value)).collect::<Vec<U>>().into());
        }
        let same = match values {
            Cow::Borrowed(values) => {
                bytemuck::try_cast_slice(values).map_or_else(|_| Vec::new().into(), onnx::Buffer::Borrowed)
            }
            Cow::Owned(values) => bytemuck::try_cast_vec(values).unwrap_or_default().into(),
        };
        U::wrap(same)
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "integers wrap, as in NumPy")]
    Some(match wanted {
        ElementType::F16 => to::<T, f16>(values, |value| f16::from_f64(value.to_f64())),
        ElementType::F32 => to::<T, f32>(values, |value| value.to_f64() as f32),
        ElementType::F64 => to::<T, f64>(values, Numeric::to_f64),
        ElementType::I8 => to::<T, i8>(values, |value| value.to_i64() as i8),
        ElementType::I16 => to::<T, i16>(values, |value| value.to_i64() as i16),
        ElementType::I32 => to::<T, i32>(values, |value| value.to_i64() as i32),
        ElementType::I64 => to::<T, i64>(values, Numeric::to_i64),
        ElementType::U8 => to::<T, u8>(values, |value| value.to_i64() as u8),
        ElementType::U16 => to::<T, u16>(values, |value| value.to_i64() as u16),
        ElementType::U32 => to::<T, u32>(values, |value| value.to_i64() as u32),
        ElementType::U64 => to::<T, u64>(values, |value| value.to_i64().cast_unsigned()),
        ElementType::Bool => {
            let flags: Vec<bool> = values.iter().map(|value| value.to_f64() != 0.0).collect();
            bool::wrap(flags.into())
        }
        ElementType::Text => return None,
    })
}

/// Makes a tensor of the protocol of an output. A list becomes a matrix of one column, as by NumPy's codec, and a scalar a list.
pub(in crate::runtimes) fn output(
    name: String,
    result: onnx::Tensor<'_>,
    labels: Option<&Labels>,
) -> Result<Tensor, RuntimeError> {
    let mut shape = result.shape().dimensions().to_vec();
    if shape.len() < 2 {
        // A scalar is a list of one number.
        shape.push(1);
    }
    let tensor = match result.into_elements() {
        Elements::F16(values) => Tensor::from_values(name, shape, values.into_cow()),
        Elements::F32(values) => Tensor::from_values(name, shape, values.into_cow()),
        Elements::F64(values) => Tensor::from_values(name, shape, values.into_cow()),
        Elements::I8(values) => Tensor::from_values(name, shape, values.into_cow()),
        Elements::I16(values) => Tensor::from_values(name, shape, values.into_cow()),
        Elements::I32(values) => Tensor::from_values(name, shape, values.into_cow()),
        Elements::I64(values) => Tensor::from_values(name, shape, values.into_cow()),
        Elements::U8(values) => Tensor::from_values(name, shape, values.into_cow()),
        Elements::U16(values) => Tensor::from_values(name, shape, values.into_cow()),
        Elements::U32(values) => Tensor::from_values(name, shape, values.into_cow()),
        Elements::U64(values) => Tensor::from_values(name, shape, values.into_cow()),
        Elements::Bool(values) => {
            let bytes: Vec<u8> = values.iter().map(|value| u8::from(*value)).collect();
            Tensor::from_raw(name, Datatype::Bool, shape, bytes.into())
        }
        Elements::Text(values) => {
            let is_text = values.iter().all(|text| std::str::from_utf8(text).is_ok());
            let texts: BytesElements = values.iter().collect();
            let data = TensorData::Variable(texts.with_text(is_text));
            let parameters = Parameters::new();
            let tensor =
                Tensor { name, datatype: Datatype::Bytes, shape, parameters, data, nested: false, as_sent: None };
            tensor.check().map(|()| tensor)
        }
    };
    let mut tensor = tensor.map_err(RuntimeError::inconsistent)?;
    tensor.parameters = Parameters::with_content_type("np");
    if let Some(labels) = labels {
        let labels = match labels {
            Labels::Integers(labels) => json!(labels),
            Labels::Texts(labels) => json!(labels),
        };
        tensor.parameters.others.insert("labels".to_owned(), labels);
    }
    Ok(tensor)
}
