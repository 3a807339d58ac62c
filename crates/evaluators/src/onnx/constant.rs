//! Tensors that a file contains.

use bytes::Bytes;
use half::f16;

use super::error::{LoadError, TensorFault};
use super::proto::{TensorData, TensorProto};
use super::tensor::{Element, ElementType, MAX_RANK, Shape, Tensor, with_type};

/// A part of another file that belongs to a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalRange<'a> {
    /// The path of the file, relative to the folder of the model. It comes from an untrusted file.
    pub location: &'a str,
    /// Where the data starts, in bytes.
    pub offset: u64,
    /// The number of bytes, or `None` for all that follow.
    pub length: Option<u64>,
}

/// Reads data of other files. Returns the reason if it does not: a part of a sentence.
pub type ReadExternal<'f> = &'f dyn Fn(&ExternalRange<'_>) -> Result<Bytes, String>;

/// Elements that a file has in raw form, and in fields that are wider.
trait Stored: Element {
    fn of_raw(raw: &[u8]) -> Option<Vec<Self>>;

    fn of_integer(value: i64) -> Option<Self>;
}

macro_rules! stored {
    ($($type:ty),*) => { $(
        impl Stored for $type {
            fn of_raw(raw: &[u8]) -> Option<Vec<Self>> {
                let (chunks, rest) = raw.as_chunks();
                rest.is_empty().then(|| chunks.iter().map(|chunk| Self::from_le_bytes(*chunk)).collect())
            }

            fn of_integer(value: i64) -> Option<Self> {
                Self::try_from(value).ok()
            }
        }
    )* };
}
stored!(i8, i16, i32, i64, u8, u16, u32);

impl Stored for u64 {
    fn of_raw(raw: &[u8]) -> Option<Vec<Self>> {
        let (chunks, rest) = raw.as_chunks();
        rest.is_empty().then(|| chunks.iter().map(|chunk| Self::from_le_bytes(*chunk)).collect())
    }

    fn of_integer(value: i64) -> Option<Self> {
        // Read from a field of unsigned numbers.
        Some(value.cast_unsigned())
    }
}

impl Stored for bool {
    fn of_raw(raw: &[u8]) -> Option<Vec<Self>> {
        Some(raw.iter().map(|byte| *byte != 0).collect())
    }

    fn of_integer(value: i64) -> Option<Self> {
        Some(value != 0)
    }
}

impl Stored for f16 {
    fn of_raw(raw: &[u8]) -> Option<Vec<Self>> {
        let (chunks, rest) = raw.as_chunks();
        rest.is_empty().then(|| chunks.iter().map(|chunk| Self::from_le_bytes(*chunk)).collect())
    }

    fn of_integer(value: i64) -> Option<Self> {
        // The bits are in a field of integers.
        u16::try_from(value).ok().map(Self::from_bits)
    }
}

impl Stored for f32 {
    fn of_raw(raw: &[u8]) -> Option<Vec<Self>> {
        let (chunks, rest) = raw.as_chunks();
        rest.is_empty().then(|| chunks.iter().map(|chunk| Self::from_le_bytes(*chunk)).collect())
    }

    fn of_integer(_: i64) -> Option<Self> {
        None
    }
}

impl Stored for f64 {
    fn of_raw(raw: &[u8]) -> Option<Vec<Self>> {
        let (chunks, rest) = raw.as_chunks();
        rest.is_empty().then(|| chunks.iter().map(|chunk| Self::from_le_bytes(*chunk)).collect())
    }

    fn of_integer(_: i64) -> Option<Self> {
        None
    }
}

impl Stored for Bytes {
    fn of_raw(_: &[u8]) -> Option<Vec<Self>> {
        None
    }

    fn of_integer(_: i64) -> Option<Self> {
        None
    }
}

/// Reads a tensor, and names it in errors.
pub(super) fn read(proto: &TensorProto<'_>, external: ReadExternal<'_>) -> Result<Tensor<'static>, LoadError> {
    unnamed(proto, external).map_err(|problem| LoadError::Tensor { name: proto.name.to_owned(), problem })
}

fn unnamed(proto: &TensorProto<'_>, external: ReadExternal<'_>) -> Result<Tensor<'static>, TensorFault> {
    if proto.is_segmented {
        return Err(TensorFault::Layout);
    }
    let element = ElementType::of_number(proto.data_type)
        .ok_or_else(|| TensorFault::Type { found: ElementType::name_of(proto.data_type) })?;
    let shape = shape(&proto.dimensions)?;
    let count = shape.count();
    if let Some(entries) = &proto.external {
        if element == ElementType::Text {
            return Err(TensorFault::External("texts cannot be there".to_owned()));
        }
        let range = range(entries, count.saturating_mul(element.width()))?;
        let data = external(&range).map_err(TensorFault::External)?;
        return with_type!(element, T => raw::<T>(shape, &data));
    }
    match &proto.data {
        TensorData::Raw(data) => with_type!(element, T => raw::<T>(shape, data)),
        TensorData::None => with_type!(element, T => finish::<T>(shape, Vec::new())),
        TensorData::Texts(texts) if element == ElementType::Text => {
            finish(shape, texts.iter().map(|text| Bytes::copy_from_slice(text)).collect())
        }
        TensorData::Floats(values) if element == ElementType::F32 => finish(shape, values.clone()),
        TensorData::Doubles(values) if element == ElementType::F64 => finish(shape, values.clone()),
        TensorData::Integers(values) => {
            check(count, values.len(), "elements")?;
            with_type!(element, T => {
                let values: Option<Vec<T>> = values.iter().map(|value| T::of_integer(*value)).collect();
                finish(shape, values.ok_or(TensorFault::Range)?)
            })
        }
        _ => Err(TensorFault::Range),
    }
}

/// Returns the type and the shape of a tensor without its data.
#[cfg(feature = "networks")]
pub(super) fn declared(proto: &TensorProto<'_>) -> Result<(ElementType, Shape), LoadError> {
    let problem = |problem| LoadError::Tensor { name: proto.name.to_owned(), problem };
    if proto.is_segmented {
        return Err(problem(TensorFault::Layout));
    }
    let unknown = || problem(TensorFault::Type { found: ElementType::name_of(proto.data_type) });
    let element = ElementType::of_number(proto.data_type).ok_or_else(unknown)?;
    Ok((element, shape(&proto.dimensions).map_err(problem)?))
}

/// Returns the bytes of a tensor, if the file has them as they are in memory on a machine whose numbers are little-endian.
#[cfg(feature = "networks")]
pub(super) fn raw_bytes(proto: &TensorProto<'_>, external: ReadExternal<'_>) -> Result<Option<Vec<u8>>, LoadError> {
    let (element, shape) = declared(proto)?;
    let wanted = shape.count().saturating_mul(element.width());
    let read = || {
        let data = match (&proto.external, &proto.data) {
            (Some(entries), _) => external(&range(entries, wanted)?).map_err(TensorFault::External)?.into(),
            (None, TensorData::Raw(data)) => data.to_vec(),
            (None, _) => return Ok(None),
        };
        check(wanted, data.len(), "bytes")?;
        Ok(Some(data))
    };
    read().map_err(|problem| LoadError::Tensor { name: proto.name.to_owned(), problem })
}

/// Returns the shape of declared dimensions.
fn shape(dimensions: &[i64]) -> Result<Shape, TensorFault> {
    if dimensions.len() > MAX_RANK {
        return Err(TensorFault::Rank { found: dimensions.len() });
    }
    let sizes: Option<Vec<usize>> = dimensions.iter().map(|size| usize::try_from(*size).ok()).collect();
    sizes
        .and_then(|sizes| Shape::new(&sizes))
        .ok_or_else(|| TensorFault::Shape { dimensions: dimensions.iter().take(MAX_RANK).copied().collect() })
}

const fn check(wanted: usize, found: usize, unit: &'static str) -> Result<(), TensorFault> {
    if wanted == found { Ok(()) } else { Err(TensorFault::Count { unit, found, wanted }) }
}

fn raw<T: Stored>(shape: Shape, data: &[u8]) -> Result<Tensor<'static>, TensorFault> {
    check(shape.count().saturating_mul(T::TYPE.width()), data.len(), "bytes")?;
    finish(shape, T::of_raw(data).ok_or(TensorFault::Range)?)
}

fn finish<T: Element>(shape: Shape, values: Vec<T>) -> Result<Tensor<'static>, TensorFault> {
    check(shape.count(), values.len(), "elements")?;
    Tensor::of(shape, values).ok_or(TensorFault::Range)
}

/// Reads where the data of a tensor of so many bytes lies.
fn range<'a>(entries: &[(&'a str, &'a str)], bytes: usize) -> Result<ExternalRange<'a>, TensorFault> {
    let mut range = ExternalRange { location: "", offset: 0, length: None };
    for (key, value) in entries {
        let number = || {
            value
                .parse::<u64>()
                .map_err(|_| TensorFault::External(format!("its `{key}` is not a number: {}", value.escape_debug())))
        };
        match *key {
            "location" => range.location = value,
            "offset" => range.offset = number()?,
            "length" => range.length = Some(number()?),
            _ => {}
        }
    }
    if range.location.is_empty() {
        return Err(TensorFault::External("the file does not say where".to_owned()));
    }
    match range.length {
        Some(length) if u64::try_from(bytes) != Ok(length) => Err(TensorFault::Count {
            unit: "bytes",
            found: usize::try_from(length).unwrap_or(usize::MAX),
            wanted: bytes,
        }),
        _ => Ok(ExternalRange { length: u64::try_from(bytes).ok(), ..range }),
    }
}

#[cfg(test)]
mod tests {
    use super::{ExternalRange, read};
    use crate::onnx::proto::{TensorData, TensorProto};
    use crate::onnx::tensor::Tensor;

    fn values(proto: &TensorProto<'_>) -> Result<Tensor<'static>, String> {
        read(proto, &|_| Err("there is none".to_owned())).map_err(|error| error.to_string())
    }

    #[test]
    fn tensors_are_read_from_all_fields() {
        let of = |data_type, dimensions: &[i64], data| TensorProto {
            name: "t",
            dimensions: dimensions.to_vec(),
            data_type,
            data,
            ..TensorProto::default()
        };
        let floats = values(&of(1, &[2], TensorData::Raw(&[0, 0, 0x80, 0x3f, 0, 0, 0, 0x40]))).unwrap();
        assert_eq!(&floats.values::<f32>().unwrap()[..], [1.0, 2.0]);
        let bytes = values(&of(3, &[1, 2], TensorData::Integers(vec![-1, 7]))).unwrap();
        assert_eq!(&bytes.values::<i8>().unwrap()[..], [-1, 7]);
        let half = values(&of(10, &[], TensorData::Integers(vec![0x3c00]))).unwrap();
        assert_eq!(half.values::<half::f16>().unwrap()[0], half::f16::ONE);
        let texts = values(&of(8, &[2], TensorData::Texts(vec![b"a", b""]))).unwrap();
        assert_eq!(texts.values::<bytes::Bytes>().unwrap()[0], "a");
    }

    #[test]
    fn tensors_are_checked_before_anything_is_allocated() {
        let of = |data_type, dimensions: &[i64], data| {
            values(&TensorProto {
                name: "t",
                dimensions: dimensions.to_vec(),
                data_type,
                data,
                ..TensorProto::default()
            })
            .unwrap_err()
        };
        assert_eq!(of(1, &[1 << 40], TensorData::None), "tensor `t`: it has 0 elements instead of 1099511627776");
        assert_eq!(of(1, &[1 << 40], TensorData::Raw(&[0; 4])), "tensor `t`: it has 4 bytes instead of 4398046511104");
        assert_eq!(of(1, &[-1], TensorData::None), "tensor `t`: its shape is negative or too large: [-1]");
        assert_eq!(
            of(1, &[1 << 40, 1 << 40, 0], TensorData::None),
            "tensor `t`: its shape is negative or too large: [1099511627776, 1099511627776, 0]"
        );
        assert_eq!(of(1, &[1; 9], TensorData::None), "tensor `t`: tensors of 9 dimensions are not evaluated natively");
        assert_eq!(of(3, &[1], TensorData::Integers(vec![300])), "tensor `t`: it has a number outside of its type");
        assert_eq!(of(16, &[1], TensorData::None), "tensor `t`: elements of type bfloat16 are not evaluated natively");
        assert_eq!(of(1, &[1], TensorData::Doubles(vec![1.0])), "tensor `t`: it has a number outside of its type");
    }

    #[test]
    fn external_data_is_asked_for_by_its_range() {
        let proto = TensorProto {
            name: "t",
            dimensions: vec![2],
            data_type: 2,
            external: Some(vec![("location", "weights.bin"), ("offset", "3")]),
            ..TensorProto::default()
        };
        let read = |length: Option<&'static str>, answer: &'static [u8]| {
            let mut proto = proto.clone();
            proto.external.as_mut().unwrap().extend(length.map(|length| ("length", length)));
            super::read(&proto, &|range| {
                assert_eq!(*range, ExternalRange { location: "weights.bin", offset: 3, length: Some(2) });
                Ok(answer.into())
            })
            .map_err(|error| error.to_string())
        };
        assert_eq!(&read(None, &[4, 5]).unwrap().values::<u8>().unwrap()[..], [4, 5]);
        assert!(read(Some("2"), &[4, 5]).is_ok());
        assert_eq!(read(Some("3"), &[]).unwrap_err(), "tensor `t`: it has 3 bytes instead of 2");
        assert_eq!(read(None, &[4]).unwrap_err(), "tensor `t`: it has 1 bytes instead of 2");
        assert!(read(Some("x"), &[]).unwrap_err().contains("its `length` is not a number: x"));
        assert_eq!(values(&proto).unwrap_err(), "tensor `t`: its data lies in another file, and there is none");
    }
}
