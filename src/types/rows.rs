//! Slices and concatenates tensors along their first dimension.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use super::{AsSent, BytesElements, Tensor, TensorData};

impl Tensor {
    /// Returns the number of rows, which is the first dimension, or `None` for a scalar.
    pub fn rows(&self) -> Option<usize> {
        self.shape.first().copied()
    }

    /// Returns the given rows as a new tensor. The elements are shared, not copied.
    ///
    /// Returns `None` if the range is out of bounds, or if the elements do not fit the shape.
    pub fn slice_rows(&self, rows: Range<usize>) -> Option<Self> {
        let (&all, trailing) = self.shape.split_first()?;
        if rows.start > rows.end || rows.end > all || self.check().is_err() {
            return None;
        }
        let mut shape = self.shape.clone();
        shape[0] = rows.len();
        // No overflow: the whole tensor is in memory.
        let per_row: usize = if all == 0 { 0 } else { trailing.iter().product() };
        let elements = rows.start * per_row..rows.end * per_row;
        let data = match &self.data {
            TensorData::Fixed(bytes) => {
                let width = self.datatype.width()?;
                TensorData::Fixed(bytes.slice(elements.start * width..elements.end * width))
            }
            TensorData::Variable(all) => TensorData::Variable(all.slice(elements.clone())?),
            TensorData::Irregular(_) => return None,
        };
        let (name, parameters) = (self.name.clone(), self.parameters.clone());
        let as_sent = self.doubles().and_then(|doubles| {
            let width = size_of::<f64>();
            let rows = doubles.get(elements.start * width..elements.end * width)?;
            Some(Box::new(AsSent { doubles: Some(doubles.slice_ref(rows)), ..AsSent::default() }))
        });
        Some(Self { name, datatype: self.datatype, shape, parameters, data, nested: self.nested, as_sent })
    }

    /// Concatenates the rows of tensors. The result has the name and the parameters of the first.
    ///
    /// Returns `None` if there are no tensors, if they differ in datatype or in any dimension but the first, or if the
    /// elements of one do not fit its shape.
    pub fn concat_rows(tensors: &[&Self]) -> Option<Self> {
        let (first, others) = tensors.split_first()?;
        let trailing = first.shape.get(1..)?;
        let alike = |tensor: &&Self| tensor.datatype == first.datatype && tensor.shape.get(1..) == Some(trailing);
        if !others.iter().all(alike) || tensors.iter().any(|tensor| tensor.check().is_err()) {
            return None;
        }
        let rows = tensors.iter().try_fold(0_usize, |sum, tensor| sum.checked_add(tensor.rows()?))?;
        let mut shape = first.shape.clone();
        shape[0] = rows;
        let data = match &first.data {
            TensorData::Fixed(_) => {
                let mut bytes = BytesMut::with_capacity(tensors.iter().map(|tensor| tensor.byte_len()).sum());
                for tensor in tensors {
                    let TensorData::Fixed(part) = &tensor.data else { return None };
                    bytes.extend_from_slice(part);
                }
                TensorData::Fixed(bytes.freeze())
            }
            TensorData::Variable(elements) => {
                let text = elements.is_text();
                let mut parts = Vec::with_capacity(tensors.len());
                for tensor in tensors {
                    let TensorData::Variable(part) = &tensor.data else { return None };
                    parts.push(part);
                }
                let elements: BytesElements = parts.into_iter().flat_map(BytesElements::iter).collect();
                TensorData::Variable(elements.with_text(text))
            }
            TensorData::Irregular(_) => return None,
        };
        let (name, parameters) = (first.name.clone(), first.parameters.clone());
        let as_sent = Self::concat_doubles(tensors)
            .map(|doubles| Box::new(AsSent { doubles: Some(doubles), ..AsSent::default() }));
        Some(Self { name, datatype: first.datatype, shape, parameters, data, nested: first.nested, as_sent })
    }

    /// Concatenates the elements of float tensors in double precision, if one of them has them so.
    fn concat_doubles(tensors: &[&Self]) -> Option<Bytes> {
        tensors.iter().find_map(|tensor| tensor.doubles())?;
        let mut bytes = BytesMut::with_capacity(tensors.iter().map(|tensor| tensor.len() * size_of::<f64>()).sum());
        for tensor in tensors {
            if let Some(doubles) = tensor.doubles() {
                bytes.extend_from_slice(doubles);
            } else {
                bytes.extend_from_slice(&tensor.widened()?);
            }
        }
        Some(bytes.freeze())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Datatype, Parameters};

    fn texts(shape: &[usize], texts: &[&str]) -> Tensor {
        let data = TensorData::Variable(texts.iter().collect::<BytesElements>().with_text(true));
        let (name, datatype) = ("t".to_owned(), Datatype::Bytes);
        Tensor {
            name,
            datatype,
            shape: shape.to_vec(),
            parameters: Parameters::new(),
            data,
            nested: false,
            as_sent: None,
        }
    }

    #[test]
    fn slice_rows_reverses_concat_rows() {
        let (a, b) = (texts(&[1, 2], &["a", "bc"]), texts(&[2, 2], &["", "d", "e", "f"]));
        let both = Tensor::concat_rows(&[&a, &b]).unwrap();
        assert_eq!(both, texts(&[3, 2], &["a", "bc", "", "d", "e", "f"]));
        assert!(matches!(&both.data, TensorData::Variable(elements) if elements.is_text()));
        assert_eq!(both.slice_rows(0..1), Some(a));
        assert_eq!(both.slice_rows(1..3), Some(b));

        let numbers = |shape: &[usize], from: i16, to: i16| {
            Tensor::from_elements("n", shape.to_vec(), &(from..to).collect::<Vec<_>>()).unwrap()
        };
        let (a, b, c) = (numbers(&[2, 1, 3], 0, 6), numbers(&[0, 1, 3], 0, 0), numbers(&[1, 1, 3], 6, 9));
        let all = Tensor::concat_rows(&[&a, &b, &c]).unwrap();
        assert_eq!(all, numbers(&[3, 1, 3], 0, 9));
        for (rows, part) in [(0..2, &a), (2..2, &b), (2..3, &c)] {
            assert_eq!(all.slice_rows(rows).as_ref(), Some(part));
        }
    }

    #[test]
    fn rows_of_unsuitable_tensors_are_none() {
        let scalar = Tensor::from_elements("x", vec![], &[1_i32]).unwrap();
        let pair = Tensor::from_elements("x", vec![1, 2], &[1_i32, 2]).unwrap();
        let triple = Tensor::from_elements("x", vec![1, 3], &[1_i32, 2, 3]).unwrap();
        let floats = Tensor::from_elements("x", vec![1, 2], &[1_f32, 2.0]).unwrap();
        let wrong = Tensor { shape: vec![4, 2], ..pair.clone() };
        assert_eq!((scalar.rows(), pair.rows()), (None, Some(1)));
        assert!(scalar.slice_rows(0..1).is_none() && Tensor::concat_rows(&[&scalar]).is_none());
        assert!(Tensor::concat_rows(&[]).is_none());
        for other in [&triple, &floats, &wrong, &scalar] {
            assert!(Tensor::concat_rows(&[&pair, other]).is_none(), "{other:?}");
        }
        assert!(pair.slice_rows(0..2).is_none() && wrong.slice_rows(0..1).is_none());
    }
}
