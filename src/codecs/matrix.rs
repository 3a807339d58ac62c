//! The inputs of requests as matrices of one floating-point type.

use std::borrow::Cow;
use std::collections::HashSet;

use half::{bf16, f16};

use super::CodecError;
use crate::types::{Datatype, Tensor};

/// The inputs of a request, arranged but not yet converted to one type.
#[derive(Debug, Clone, PartialEq)]
pub enum DecodedInputs<'a> {
    /// One tensor (`np`).
    Array(&'a Tensor),
    /// A column from each input, all of the same length (`pd`).
    Frame(Vec<&'a Tensor>),
}

/// A row-major matrix of numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct NumericArray<'a, T: Clone> {
    pub values: Cow<'a, [T]>,
    pub rows: usize,
    pub columns: usize,
}

/// A matrix of the narrowest type that keeps the precision of the request.
#[derive(Debug, Clone, PartialEq)]
pub enum NumericMatrix<'a> {
    F32(NumericArray<'a, f32>),
    F64(NumericArray<'a, f64>),
}

impl<'a> DecodedInputs<'a> {
    pub(super) fn frame(inputs: &'a [Tensor]) -> Result<Self, CodecError> {
        let mut names = HashSet::with_capacity(inputs.len());
        if let Some(twice) = inputs.iter().find(|input| !names.insert(input.name.as_str())) {
            return Err(CodecError::DuplicateColumn { input: twice.name.clone() });
        }
        if let Some(first) = inputs.first() {
            let rows = first.len();
            if let Some(other) = inputs.iter().find(|input| input.len() != rows) {
                let (input, found, first) = (other.name.clone(), other.len(), first.name.clone());
                return Err(CodecError::Rows { input, found, first, rows });
            }
        }
        Ok(Self::Frame(inputs.iter().collect()))
    }

    /// Checks that there are `features` columns, and that the columns of a frame have the given names.
    ///
    /// # Errors
    ///
    /// Fails with the found and the expected columns.
    pub fn check(&self, features: usize, names: Option<&[String]>) -> Result<(), CodecError> {
        match self {
            Self::Array(tensor) => match tensor.shape[..] {
                [_, columns] if columns == features => Ok(()),
                _ => {
                    let (input, found) = (tensor.name.clone(), tensor.shape.clone());
                    Err(CodecError::Shape { input, found, features })
                }
            },
            Self::Frame(columns) => {
                if columns.len() != features {
                    return Err(CodecError::Columns { found: columns.len(), features });
                }
                let pairs = columns.iter().zip(names.unwrap_or_default()).enumerate();
                for (index, (column, wanted)) in pairs {
                    if column.name != *wanted {
                        let (found, wanted) = (column.name.clone(), wanted.clone());
                        return Err(CodecError::ColumnName { index, found, wanted });
                    }
                }
                Ok(())
            }
        }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        match self {
            Self::Array(tensor) => tensor.shape.first().copied().unwrap_or(1),
            Self::Frame(columns) => columns.first().map_or(0, |column| column.len()),
        }
    }

    /// Rounds every number to `f32`. An FP32 tensor is borrowed.
    pub fn to_f32(&self) -> NumericArray<'a, f32> {
        self.collect(Number::to_f32)
    }

    /// Converts to `f64` if the request has FP64, and to `f32` otherwise.
    ///
    /// Integers of an array count as `f32`, as `LightGBM` reads them. In a frame, those of 32 and 64 bits count as `f64`,
    /// which is NumPy's common type of these and `f32`.
    pub fn to_widest(&self) -> NumericMatrix<'a> {
        let wide = match self {
            Self::Array(tensor) => tensor.datatype == Datatype::Fp64,
            Self::Frame(columns) => columns.iter().any(|column| {
                let wide = [Datatype::Fp64, Datatype::Int32, Datatype::Int64, Datatype::Uint32, Datatype::Uint64];
                wide.contains(&column.datatype)
            }),
        };
        if wide { NumericMatrix::F64(self.collect(Number::to_f64)) } else { NumericMatrix::F32(self.to_f32()) }
    }

    fn collect<T: crate::types::Element>(&self, convert: fn(Number) -> T) -> NumericArray<'a, T> {
        match self {
            Self::Array(tensor) => {
                let columns = tensor.shape.last().copied().unwrap_or(1);
                let values = tensor.elements::<T>().unwrap_or_else(|| {
                    let mut values = Vec::with_capacity(tensor.len());
                    for_each(tensor, |_, number| values.push(convert(number)));
                    Cow::Owned(values)
                });
                NumericArray { values, rows: self.rows(), columns }
            }
            Self::Frame(columns) => {
                let rows = self.rows();
                let mut values = vec![T::zeroed(); rows * columns.len()];
                for (index, column) in columns.iter().enumerate() {
                    for_each(column, |row, number| values[row * columns.len() + index] = convert(number));
                }
                NumericArray { values: Cow::Owned(values), rows, columns: columns.len() }
            }
        }
    }
}

/// An element that is to be converted to a float. It keeps its width, so that it is rounded only once.
#[derive(Debug, Clone, Copy)]
enum Number {
    Unsigned(u64),
    Signed(i64),
    Single(f32),
    Double(f64),
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "rounding to the model's type is intended"
)]
impl Number {
    fn to_f32(self) -> f32 {
        match self {
            Self::Unsigned(value) => value as f32,
            Self::Signed(value) => value as f32,
            Self::Single(value) => value,
            Self::Double(value) => value as f32,
        }
    }

    fn to_f64(self) -> f64 {
        match self {
            Self::Unsigned(value) => value as f64,
            Self::Signed(value) => value as f64,
            Self::Single(value) => f64::from(value),
            Self::Double(value) => value,
        }
    }
}

/// Calls `visit` with each element of a numeric tensor and its index.
fn for_each(tensor: &Tensor, mut visit: impl FnMut(usize, Number)) {
    macro_rules! visit_as {
        ($type:ty, $variant:ident) => {
            for (index, &value) in tensor.elements::<$type>().iter().flat_map(|elements| elements.iter()).enumerate() {
                visit(index, Number::$variant(value.into()));
            }
        };
    }
    match tensor.datatype {
        Datatype::Bool | Datatype::Uint8 => {
            if let crate::types::TensorData::Fixed(bytes) = &tensor.data {
                for (index, &value) in bytes.iter().enumerate() {
                    visit(index, Number::Unsigned(value.into()));
                }
            }
        }
        Datatype::Uint16 => visit_as!(u16, Unsigned),
        Datatype::Uint32 => visit_as!(u32, Unsigned),
        Datatype::Uint64 => visit_as!(u64, Unsigned),
        Datatype::Int8 => visit_as!(i8, Signed),
        Datatype::Int16 => visit_as!(i16, Signed),
        Datatype::Int32 => visit_as!(i32, Signed),
        Datatype::Int64 => visit_as!(i64, Signed),
        Datatype::Fp16 => visit_as!(f16, Single),
        Datatype::Bf16 => visit_as!(bf16, Single),
        Datatype::Fp32 => visit_as!(f32, Single),
        Datatype::Fp64 => visit_as!(f64, Double),
        // `decode` has rejected these.
        Datatype::Bytes => {}
    }
}

#[cfg(test)]
mod tests {
    use super::super::decode;
    use super::*;
    use crate::types::{InferenceRequest, Parameters};

    fn request(inputs: Vec<Tensor>, content_type: Option<&'static str>) -> InferenceRequest {
        let parameters = content_type.map(Parameters::with_content_type).unwrap_or_default();
        InferenceRequest { parameters, inputs, ..InferenceRequest::default() }
    }

    fn tensor<T: crate::types::Element>(name: &str, shape: &[usize], elements: &[T]) -> Tensor {
        Tensor::from_elements(name, shape.to_vec(), elements).unwrap()
    }

    #[test]
    fn an_fp32_array_is_borrowed() {
        let request = request(vec![tensor("x", &[2, 2], &[1_f32, 2.0, 3.0, 4.0])], None);
        let array = decode(&request, None).unwrap().to_f32();
        assert!(matches!(array.values, Cow::Borrowed(_)));
        assert_eq!((array.rows, array.columns), (2, 2));
    }

    #[test]
    fn every_datatype_becomes_floats() {
        fn check<T: crate::types::Element>(elements: &[T]) {
            let request = request(vec![tensor("x", &[1, 2], elements)], None);
            let decoded = decode(&request, None).unwrap();
            assert_eq!(decoded.to_f32().values.as_ref(), [1.0, 2.0], "{}", T::DATATYPE);
        }
        check(&[1_u8, 2]);
        check(&[1_u16, 2]);
        check(&[1_u32, 2]);
        check(&[1_u64, 2]);
        check(&[1_i8, 2]);
        check(&[1_i16, 2]);
        check(&[1_i32, 2]);
        check(&[1_i64, 2]);
        check(&[f16::from_f32(1.0), f16::from_f32(2.0)]);
        check(&[bf16::from_f32(1.0), bf16::from_f32(2.0)]);
        check(&[1_f32, 2.0]);
        check(&[1_f64, 2.0]);
    }

    #[test]
    fn integers_are_rounded_once() {
        let exact = (1_i64 << 25) + 1;
        let array = request(vec![tensor("x", &[1, 1], &[exact])], None);
        assert!(
            matches!(decode(&array, None).unwrap().to_widest(), NumericMatrix::F32(array) if array.values[0].to_bits() == 33_554_432_f32.to_bits())
        );
        let frame = request(vec![tensor("x", &[1], &[exact])], Some("pd"));
        assert!(
            matches!(decode(&frame, None).unwrap().to_widest(), NumericMatrix::F64(array) if array.values[0].to_bits() == 33_554_433_f64.to_bits())
        );
    }

    #[test]
    fn frame_columns_are_the_inputs() {
        let inputs = vec![tensor("a", &[2], &[1_i64, 2]), tensor("b", &[2, 1], &[0.5_f64, 1.5])];
        let named = request(inputs, Some("pd"));
        let decoded = decode(&named, None).unwrap();
        assert_eq!(decoded.to_f32().values.as_ref(), [1.0, 0.5, 2.0, 1.5]);
        let trained_with = ["a".to_owned(), "c".to_owned()];
        let error = decoded.check(2, Some(&trained_with)).unwrap_err();
        assert_eq!(error.to_string(), "column 1 is `b`, but this model was trained with `c` in that position");
        assert_eq!(decoded.check(3, None), Err(CodecError::Columns { found: 2, features: 3 }));
        let by_default = request(named.inputs.clone(), None);
        assert!(matches!(decode(&by_default, Some("pd")), Ok(DecodedInputs::Frame(_))), "the model's content type");
    }

    #[test]
    fn inputs_that_are_not_a_matrix_are_rejected() {
        let two = request(vec![tensor("a", &[1], &[1_f32]), tensor("b", &[1], &[1_f32])], None);
        assert_eq!(
            decode(&two, None).unwrap_err().to_string(),
            "There was an error encoding / decoding the payload: The 'np' codec only supports a single input tensor (2 were received)"
        );
        let ragged = request(vec![tensor("a", &[1], &[1_f32]), tensor("b", &[2], &[1_f32, 2.0])], Some("pd"));
        assert!(matches!(decode(&ragged, None), Err(CodecError::Rows { .. })));
        let twice = request(vec![tensor("a", &[1], &[1_f32]), tensor("a", &[1], &[1_f32])], Some("pd"));
        assert!(matches!(decode(&twice, None), Err(CodecError::DuplicateColumn { .. })));
        let flat = request(vec![tensor("a", &[4], &[1_f32, 2.0, 3.0, 4.0])], None);
        assert!(matches!(decode(&flat, None).unwrap().check(4, None), Err(CodecError::Shape { .. })));
    }
}
