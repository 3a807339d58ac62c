//! The raw form of BOOL and BYTES elements, which is used outside of JSON. All other elements are sent as they are.

use bytes::{BufMut, Bytes};

use super::{BytesElements, TensorError};

/// The size in bytes of the length that precedes each BYTES element.
const PREFIX: usize = size_of::<u32>();

/// Checks that all bytes are 0 or 1.
pub(super) fn check_bools(bytes: &[u8], name: &str) -> Result<(), TensorError> {
    // Without an early return, the compiler vectorizes the loop.
    if bytes.iter().fold(0, |seen, byte| seen | byte) <= 1 {
        return Ok(());
    }
    let index = bytes.iter().position(|&byte| byte > 1).unwrap_or_default();
    Err(TensorError::Bool { name: name.to_owned(), index, found: bytes[index] })
}

/// Finds the elements of a BYTES tensor in a buffer that has a little-endian length before each.
pub(super) fn split(buffer: Bytes, name: &str) -> Result<BytesElements, TensorError> {
    let mut spans = Vec::new();
    let mut position = 0;
    while position < buffer.len() {
        let truncated = |wanted: usize, from: usize| {
            let (name, index, left) = (name.to_owned(), spans.len(), buffer.len() - from);
            TensorError::Truncated { name, index, wanted, left }
        };
        let prefix = buffer[position..].first_chunk::<PREFIX>().ok_or_else(|| truncated(PREFIX, position))?;
        let start = position + PREFIX;
        let length = usize::try_from(u32::from_le_bytes(*prefix)).unwrap_or(usize::MAX);
        let end = start.checked_add(length).filter(|&end| end <= buffer.len());
        position = end.ok_or_else(|| truncated(length, start))?;
        spans.push(start..position);
    }
    spans.shrink_to_fit();
    Ok(BytesElements::new(buffer, spans).expect("each span was checked against the buffer's length"))
}

/// Writes the elements of a BYTES tensor one after another, each preceded by its length.
pub(super) fn join(elements: &BytesElements, name: &str) -> Result<Bytes, TensorError> {
    let size = elements.iter().map(|element| PREFIX + element.len()).sum();
    let mut buffer = Vec::with_capacity(size);
    for (index, element) in elements.iter().enumerate() {
        let too_long = |_| TensorError::TooLong { name: name.to_owned(), index, found: element.len() };
        buffer.put_u32_le(u32::try_from(element.len()).map_err(too_long)?);
        buffer.put_slice(element);
    }
    Ok(buffer.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Datatype, Tensor, TensorData};
    use proptest::prelude::*;

    fn tensor(datatype: Datatype, shape: &[usize], bytes: &[u8]) -> Result<Tensor, String> {
        let bytes = Bytes::copy_from_slice(bytes);
        Tensor::from_raw("x", datatype, shape.to_vec(), bytes).map_err(|error| error.to_string())
    }

    #[test]
    fn raw_buffers_are_shared_and_not_copied() {
        let body = Bytes::from_static(b"\x02\0\0\0ab\0\0\0\0");
        let whole = body.as_ptr_range();
        for (datatype, shape) in [(Datatype::Bytes, vec![2]), (Datatype::Uint8, vec![10])] {
            let tensor = Tensor::from_raw("x", datatype, shape, body.clone()).unwrap();
            let at = match &tensor.data {
                TensorData::Fixed(bytes) => bytes.as_ptr(),
                TensorData::Variable(elements) => elements.iter().next().unwrap().as_ptr(),
                TensorData::Irregular(_) => unreachable!("raw data is no JSON"),
            };
            assert!(whole.contains(&at), "{datatype}");
            assert_eq!(tensor.to_raw().unwrap(), body);
        }
    }

    #[test]
    fn from_raw_rejects_invalid_buffers() {
        let message = |datatype, shape: &[usize], bytes: &[u8]| tensor(datatype, shape, bytes).unwrap_err();
        assert_eq!(
            message(Datatype::Bool, &[3], &[0, 1, 7]),
            "tensor `x`: element 2 is the byte 7, but a BOOL is 0 or 1"
        );
        assert_eq!(
            message(Datatype::Fp32, &[1], &[0; 8]),
            "tensor `x` of shape [1] needs 1 elements, but 2 were given"
        );
        assert_eq!(
            message(Datatype::Fp32, &[1], &[0; 7]),
            "tensor `x` is FP32, but its 7 bytes are not a multiple of 4"
        );
        let bytes = |bytes: &[u8]| message(Datatype::Bytes, &[2], bytes);
        assert_eq!(bytes(b"\x01\0\0\0a\x02\0\0"), "tensor `x`: BYTES element 1 needs 4 bytes, but 3 are left");
        assert_eq!(bytes(b"\x03\0\0\0ab"), "tensor `x`: BYTES element 0 needs 3 bytes, but 2 are left");
        assert_eq!(bytes(b"\xff\xff\xff\xff"), "tensor `x`: BYTES element 0 needs 4294967295 bytes, but 0 are left");
        assert_eq!(bytes(b"\x01\0\0\0a"), "tensor `x` of shape [2] needs 2 elements, but 1 were given");
    }

    #[test]
    fn empty_tensors_and_scalars_have_a_raw_form() {
        for datatype in Datatype::ALL {
            assert_eq!(tensor(datatype, &[2, 0], b"").unwrap().to_raw().unwrap(), "", "{datatype}");
            assert!(tensor(datatype, &[], b"").is_err(), "{datatype}");
        }
        assert_eq!(tensor(Datatype::Bytes, &[], b"\0\0\0\0").unwrap().len(), 1);
    }

    proptest! {
        #[test]
        fn joined_elements_split_back(elements in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..9), 0..9)) {
            let elements: BytesElements = elements.iter().collect();
            let joined = join(&elements, "x").unwrap();
            prop_assert_eq!(split(joined, "x").unwrap(), elements);
        }

        #[test]
        fn split_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let _ = split(bytes.into(), "x");
        }
    }
}
