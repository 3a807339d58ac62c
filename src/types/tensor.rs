//! Tensors: a name, a datatype, a shape and one contiguous buffer.

use std::borrow::Cow;
use std::ops::Range;

use bytemuck::Pod;
use bytes::Bytes;
use half::{bf16, f16};
use serde::{Deserialize, Serialize};

use super::json::IrregularData;
use super::{Datatype, Parameters, raw};

#[cfg(target_endian = "big")]
compile_error!("tensor buffers are little-endian and are borrowed as native numbers; a big-endian target needs swaps");

/// A named tensor.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    pub name: String,
    pub datatype: Datatype,
    /// Row-major dimensions; empty for a scalar.
    pub shape: Vec<usize>,
    pub parameters: Parameters,
    pub data: TensorData,
    /// Whether the JSON has arrays nested as in the shape: of a request, for models in Python, and of their responses.
    pub nested: bool,
    /// What the JSON says besides, if the other fields would lose it.
    pub as_sent: Option<Box<AsSent>>,
}

/// The parts of a tensor's JSON that its regular form loses. Models in Python see the requests of clients with them, and clients the responses
/// of these models. Everything else uses the regular form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AsSent {
    /// The shape, if it has negative dimensions.
    pub shape: Option<Vec<i64>>,
    /// The data as JSON in UTF-8: arrays that are nested in another way than the shape, `null` or text among numbers, objects in BYTES.
    pub data: Option<Bytes>,
    /// The elements of FP32, FP16 and BF16 tensors in double precision: little-endian, as many as the tensor has.
    pub doubles: Option<Bytes>,
}

impl AsSent {
    /// Returns the size in bytes.
    fn byte_len(&self) -> usize {
        let of = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
        self.shape.as_ref().map_or(0, |shape| size_of_val(&shape[..])) + of(&self.data) + of(&self.doubles)
    }

    /// Copies the data out of a larger buffer.
    pub fn detach(&mut self) {
        for bytes in [&mut self.data, &mut self.doubles].into_iter().flatten() {
            *bytes = Bytes::copy_from_slice(bytes);
        }
    }
}

/// The elements of a tensor.
#[derive(Debug, Clone, PartialEq)]
pub enum TensorData {
    /// Elements of fixed width: little-endian, row-major, without gaps. The buffer need not be aligned.
    Fixed(Bytes),
    /// Elements of a [`Datatype::Bytes`] tensor.
    Variable(BytesElements),
    /// Data without the declared datatype or shape. Only models in Python get it, or send it.
    Irregular(IrregularData),
}

/// Which tensors a reader accepts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TensorRule {
    /// The data has the declared datatype, and as many elements as the shape.
    #[default]
    Strict,
    /// Strings may be `null` in the JSON of a BYTES tensor: missing texts, which [`IrregularData::texts`] returns.
    MissingText,
    /// All data that the original gives to models. Of data that is not regular, [`Tensor::check`] says why.
    AsSent,
}

impl TensorRule {
    /// Checks tensors that were read as they were sent.
    ///
    /// # Errors
    ///
    /// Fails with the first tensor that the rule excludes.
    pub fn check(self, tensors: &[Tensor]) -> Result<(), TensorError> {
        match self {
            // Only JSON has missing texts, and its reader has checked that.
            Self::Strict | Self::MissingText => tensors.iter().try_for_each(Tensor::check),
            Self::AsSent => Ok(()),
        }
    }
}

impl TensorData {
    /// Creates data from the raw form of elements, in which gRPC and the binary extension of REST send them: as in memory,
    /// little-endian and without gaps. A BOOL is the byte 0 or 1, and each BYTES element is preceded by its length in
    /// 4 bytes.
    ///
    /// `bytes` is kept, not copied. [`Tensor::check`] compares the number of elements with the shape. `name` is the
    /// tensor's name, for messages.
    ///
    /// # Errors
    ///
    /// Fails if a BOOL is neither 0 nor 1, or if a BYTES element exceeds the buffer.
    pub fn from_raw(name: &str, datatype: Datatype, bytes: Bytes) -> Result<Self, TensorError> {
        match datatype {
            Datatype::Bytes => raw::split(bytes, name).map(Self::Variable),
            Datatype::Bool => raw::check_bools(&bytes, name).map(|()| Self::Fixed(bytes)),
            _ => Ok(Self::Fixed(bytes)),
        }
    }
}

/// Byte strings that share one buffer.
#[derive(Debug, Clone, Default)]
pub struct BytesElements {
    buffer: Bytes,
    spans: Vec<Range<usize>>,
    /// The length of all elements.
    size: usize,
    text: bool,
}

impl BytesElements {
    /// Creates elements from a buffer and the span of each element in it.
    ///
    /// Returns `None` if a span exceeds the buffer.
    pub fn new(buffer: Bytes, spans: Vec<Range<usize>>) -> Option<Self> {
        let inside = |span: &Range<usize>| span.start <= span.end && span.end <= buffer.len();
        if !spans.iter().all(inside) {
            return None;
        }
        let size = spans.iter().map(Range::len).sum();
        Some(Self { buffer, spans, size, text: false })
    }

    pub fn len(&self) -> usize {
        self.spans.len()
    }

    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    /// Sets whether the elements are UTF-8 text, which Python models see as `str` rather than `bytes`.
    #[must_use]
    pub const fn with_text(mut self, text: bool) -> Self {
        self.text = text;
        self
    }

    pub const fn is_text(&self) -> bool {
        self.text
    }

    /// Returns a range of the elements, which share the buffer, or `None` if it is out of bounds.
    pub fn slice(&self, elements: Range<usize>) -> Option<Self> {
        let spans = self.spans.get(elements)?.to_vec();
        let size = spans.iter().map(Range::len).sum();
        Some(Self { buffer: self.buffer.clone(), spans, size, text: self.text })
    }

    /// Returns the elements at the given indices, which share the buffer. Indices out of bounds are skipped.
    #[must_use]
    pub fn pick(&self, indices: impl IntoIterator<Item = usize>) -> Self {
        let spans: Vec<_> = indices.into_iter().filter_map(|index| self.spans.get(index).cloned()).collect();
        let size = spans.iter().map(Range::len).sum();
        Self { buffer: self.buffer.clone(), spans, size, text: self.text }
    }

    /// Returns the length of all elements in bytes.
    pub const fn size(&self) -> usize {
        self.size
    }

    /// Iterates over a range of the elements, or over none if it is out of bounds.
    pub fn range(&self, elements: Range<usize>) -> impl ExactSizeIterator<Item = &[u8]> {
        self.spans.get(elements).unwrap_or_default().iter().map(|span| &self.buffer[span.clone()])
    }

    /// Iterates over the elements in order, as slices that share the buffer.
    pub fn slices(&self) -> impl ExactSizeIterator<Item = Bytes> {
        self.spans.iter().map(|span| self.buffer.slice(span.clone()))
    }

    /// Iterates over the elements in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.spans.iter().map(|span| &self.buffer[span.clone()])
    }
}

impl PartialEq for BytesElements {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl<T: AsRef<[u8]>> FromIterator<T> for BytesElements {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let mut buffer = Vec::new();
        let mut spans = Vec::new();
        for element in elements {
            let start = buffer.len();
            buffer.extend_from_slice(element.as_ref());
            spans.push(start..buffer.len());
        }
        spans.shrink_to_fit();
        Self { size: buffer.len(), buffer: buffer.into(), spans, text: false }
    }
}

/// A Rust type whose values are the elements of a fixed-width datatype.
pub trait Element: Pod {
    /// The datatype of the elements.
    const DATATYPE: Datatype;
}

macro_rules! elements {
    ($($type:ty => $datatype:ident),* $(,)?) => {
        $(impl Element for $type {
            const DATATYPE: Datatype = Datatype::$datatype;
        })*
    };
}

elements! {
    u8 => Uint8, u16 => Uint16, u32 => Uint32, u64 => Uint64,
    i8 => Int8, i16 => Int16, i32 => Int32, i64 => Int64,
    f16 => Fp16, bf16 => Bf16, f32 => Fp32, f64 => Fp64,
}

/// The most bytes of a name that messages repeat.
const MAX_NAME: usize = 128;

/// Cuts a client's name for a message.
pub fn short(name: &str) -> &str {
    &name[..name.floor_char_boundary(MAX_NAME)]
}

/// Why a tensor is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TensorError {
    #[error("tensor `{short_name}` of shape {shape:?} needs {wanted} elements, but {found} were given", short_name = short(.name))]
    Count { name: String, shape: Vec<usize>, wanted: usize, found: usize },
    #[error("the shape {shape:?} of tensor `{short_name}` has more elements than memory can address", short_name = short(.name))]
    TooLarge { name: String, shape: Vec<usize> },
    /// More than one dimension is -1, or the number of elements is not divisible by the others.
    #[error(
        "input `{short_name}`: the shape {shape:?} cannot be inferred from {found} elements: use at most one -1, and dimensions whose product divides the number of elements", short_name = short(.name)
    )]
    Inference { name: String, shape: Vec<i64>, found: usize },
    #[error("tensor `{short_name}` is {datatype}, but its {found} bytes are not a multiple of {width}", short_name = short(.name))]
    Width { name: String, datatype: Datatype, width: usize, found: usize },
    /// Only in the raw form.
    #[error("tensor `{short_name}`: element {index} is the byte {found}, but a BOOL is 0 or 1", short_name = short(.name))]
    Bool { name: String, index: usize, found: u8 },
    /// Only in the raw form: the length before a BYTES element, or the element itself, exceeds the buffer.
    #[error("tensor `{short_name}`: BYTES element {index} needs {wanted} bytes, but {left} are left", short_name = short(.name))]
    Truncated { name: String, index: usize, wanted: usize, left: usize },
    /// The data of a tensor is irregular, for this reason.
    #[error("{reason}")]
    Irregular { reason: Box<str> },
    #[error("tensor `{short_name}`: BYTES element {index} has {found} bytes, more than the 4294967295 of the raw form", short_name = short(.name))]
    TooLong { name: String, index: usize, found: usize },
}

impl From<&IrregularData> for TensorError {
    fn from(data: &IrregularData) -> Self {
        Self::Irregular { reason: data.reason().into() }
    }
}

impl Tensor {
    /// Creates a tensor of numbers without parameters, after checking that they fit the shape.
    pub fn from_elements<T: Element>(
        name: impl Into<String>,
        shape: Vec<usize>,
        elements: &[T],
    ) -> Result<Self, TensorError> {
        let tensor = Self {
            name: name.into(),
            datatype: T::DATATYPE,
            shape,
            parameters: Parameters::new(),
            data: TensorData::Fixed(Bytes::copy_from_slice(bytemuck::cast_slice(elements))),
            nested: false,
            as_sent: None,
        };
        tensor.check()?;
        Ok(tensor)
    }

    /// Creates a tensor without parameters. Many values that are owned are not copied.
    ///
    /// # Errors
    ///
    /// Fails if the values do not fit the shape.
    pub fn from_values<T: Element + Send>(
        name: impl Into<String>,
        shape: Vec<usize>,
        values: Cow<'_, [T]>,
    ) -> Result<Self, TensorError> {
        /// From how many bytes on a copy takes longer than to share the buffer.
        const SHARED: usize = 64 * 1024;

        struct Owned<T>(Vec<T>);

        impl<T: Element> AsRef<[u8]> for Owned<T> {
            fn as_ref(&self) -> &[u8] {
                bytemuck::cast_slice(&self.0)
            }
        }

        match values {
            Cow::Owned(values) if size_of_val(&values[..]) >= SHARED => {
                let mut tensor = Self::from_elements::<T>(name, vec![0], &[])?;
                (tensor.shape, tensor.data) = (shape, TensorData::Fixed(Bytes::from_owner(Owned(values))));
                tensor.check()?;
                Ok(tensor)
            }
            values => Self::from_elements(name, shape, &values),
        }
    }

    /// Creates a tensor without parameters from its raw form, after checking that the data fits the shape.
    ///
    /// See [`TensorData::from_raw`] for the raw form; `bytes` is kept, not copied.
    pub fn from_raw(
        name: impl Into<String>,
        datatype: Datatype,
        shape: Vec<usize>,
        bytes: Bytes,
    ) -> Result<Self, TensorError> {
        let name = name.into();
        let data = TensorData::from_raw(&name, datatype, bytes)?;
        let tensor = Self { name, datatype, shape, parameters: Parameters::new(), data, nested: false, as_sent: None };
        tensor.check()?;
        Ok(tensor)
    }

    /// Returns the elements in the raw form of [`TensorData::from_raw`]. Only BYTES are copied.
    ///
    /// # Errors
    ///
    /// Fails if the length of a BYTES element does not fit in 4 bytes, or if the data is irregular.
    pub fn to_raw(&self) -> Result<Bytes, TensorError> {
        match &self.data {
            TensorData::Fixed(bytes) => Ok(bytes.clone()),
            TensorData::Variable(elements) => raw::join(elements, &self.name),
            TensorData::Irregular(data) => Err(data.into()),
        }
    }

    /// Checks that the data is regular, and that the number of elements matches the shape.
    pub fn check(&self) -> Result<(), TensorError> {
        let wanted = element_count(&self.shape)
            .ok_or_else(|| TensorError::TooLarge { name: self.name.clone(), shape: self.shape.clone() })?;
        if let TensorData::Irregular(data) = &self.data {
            return Err(data.into());
        }
        if let (TensorData::Fixed(bytes), Some(width)) = (&self.data, self.datatype.width())
            && bytes.len() % width != 0
        {
            let (name, datatype, found) = (self.name.clone(), self.datatype, bytes.len());
            return Err(TensorError::Width { name, datatype, width, found });
        }
        let found = self.len();
        if wanted == found {
            Ok(())
        } else {
            Err(TensorError::Count { name: self.name.clone(), shape: self.shape.clone(), wanted, found })
        }
    }

    /// Returns the number of elements in the data.
    pub fn len(&self) -> usize {
        match &self.data {
            TensorData::Fixed(bytes) => bytes.len() / self.datatype.width().unwrap_or(1),
            TensorData::Variable(elements) => elements.len(),
            TensorData::Irregular(data) => data.elements(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the size of the elements in memory, in bytes, in all forms. Each element of BYTES takes 16 bytes besides its own.
    pub fn byte_len(&self) -> usize {
        let regular = match &self.data {
            TensorData::Fixed(bytes) => bytes.len(),
            TensorData::Variable(elements) => elements.size() + elements.len() * size_of::<Range<usize>>(),
            TensorData::Irregular(data) => data.json().len() + data.reason().len(),
        };
        regular + self.as_sent.as_ref().map_or(0, |as_sent| as_sent.byte_len())
    }

    /// Returns the part that the regular form loses, to set it.
    pub fn as_sent_mut(&mut self) -> &mut AsSent {
        self.as_sent.get_or_insert_default()
    }

    /// Forgets how the model gave the data, unless it has no regular form.
    pub(super) fn make_flat(&mut self) {
        if !matches!(self.data, TensorData::Irregular(_)) {
            self.nested = false;
            self.as_sent = None;
        }
    }

    /// Returns the elements of a 16-bit or 32-bit float tensor in double precision, as they were sent.
    pub fn doubles(&self) -> Option<&Bytes> {
        self.as_sent.as_ref()?.doubles.as_ref()
    }

    /// Returns the tensor with one string as its only element, if that is the data of a BYTES tensor, or else as it is.
    pub fn text_as_element(&self) -> Cow<'_, Self> {
        match &self.data {
            TensorData::Irregular(data) if self.datatype == Datatype::Bytes => data.as_text().map(|text| {
                let elements = std::iter::once(text).collect::<BytesElements>().with_text(true);
                Cow::Owned(Self { data: TensorData::Variable(elements), ..self.clone() })
            }),
            _ => None,
        }
        .unwrap_or(Cow::Borrowed(self))
    }

    /// Returns the elements of a float tensor of at most 32 bits in double precision, little-endian, or `None` for other tensors.
    pub(super) fn widened(&self) -> Option<Vec<u8>> {
        fn widen<T: Element>(tensor: &Tensor, convert: impl Fn(T) -> f64) -> Option<Vec<u8>> {
            Some(tensor.elements::<T>()?.iter().flat_map(|&element| convert(element).to_le_bytes()).collect())
        }
        match self.datatype {
            Datatype::Fp32 => widen::<f32>(self, f64::from),
            Datatype::Fp16 => widen::<f16>(self, f64::from),
            Datatype::Bf16 => widen::<bf16>(self, f64::from),
            _ => None,
        }
    }

    /// Returns the elements as numbers, or `None` if `T` is not the element type of this datatype.
    ///
    /// They are borrowed, unless the buffer is not aligned for `T`, as may be the case for a slice of a larger message.
    pub fn elements<T: Element>(&self) -> Option<Cow<'_, [T]>> {
        match &self.data {
            TensorData::Fixed(bytes) if self.datatype == T::DATATYPE => Some(
                bytemuck::try_cast_slice(bytes)
                    .map_or_else(|_| Cow::Owned(bytemuck::pod_collect_to_vec(bytes)), Cow::Borrowed),
            ),
            _ => None,
        }
    }
}

/// Returns the number of elements of a shape, which is 1 for a scalar, or `None` if it overflows.
pub(super) fn element_count(shape: &[usize]) -> Option<usize> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1_usize, |count, &dimension| count.checked_mul(dimension))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_borrowed_when_aligned_and_copied_when_not() {
        let tensor = Tensor::from_elements("x", vec![2], &[1.5_f32, -2.0]).unwrap();
        assert_eq!(tensor.elements::<f32>().unwrap().as_ref(), [1.5, -2.0]);
        assert!(tensor.elements::<f64>().is_none(), "another datatype");

        let mut shifted = vec![0_u8];
        shifted.extend_from_slice(bytemuck::bytes_of(&[1.5_f32, -2.0]));
        let data = TensorData::Fixed(Bytes::from(shifted).slice(1..));
        let unaligned = Tensor { data, ..tensor };
        assert_eq!(unaligned.elements::<f32>().unwrap().as_ref(), [1.5, -2.0]);
    }

    #[test]
    fn from_elements_rejects_shapes_that_do_not_fit() {
        let error = Tensor::from_elements("x", vec![2, 3], &[1_i64, 2, 3]).unwrap_err();
        assert_eq!(error.to_string(), "tensor `x` of shape [2, 3] needs 6 elements, but 3 were given");
        let error = Tensor::from_elements::<u8>("x", vec![usize::MAX, 2], &[]).unwrap_err();
        assert!(matches!(error, TensorError::TooLarge { .. }));
        assert!(Tensor::from_elements::<u8>("x", vec![usize::MAX, 2, 0], &[]).is_ok(), "no elements at all");
    }

    #[test]
    fn byte_len_counts_the_spans_of_bytes() {
        let data = TensorData::Variable(["", "", "abc"].iter().collect());
        let texts = Tensor {
            name: "x".into(),
            datatype: Datatype::Bytes,
            shape: vec![3],
            parameters: Parameters::new(),
            data,
            nested: false,
            as_sent: None,
        };
        assert_eq!(texts.byte_len(), 3 + 3 * 16);
        assert_eq!(texts.slice_rows(1..3).unwrap().byte_len(), 3 + 2 * 16);
        let spans = vec![0..1, 1..3];
        assert_eq!(BytesElements::new(Bytes::from_static(b"abc"), spans).unwrap().size(), 3);
        assert_eq!(Tensor::from_elements("x", vec![2], &[1_u16, 2]).unwrap().byte_len(), 4);
    }

    #[test]
    fn errors_repeat_the_start_of_a_name() {
        let error = Tensor::from_elements("ü".repeat(1000), vec![2], &[1_u8]).unwrap_err().to_string();
        assert_eq!(error, format!("tensor `{}` of shape [2] needs 2 elements, but 1 were given", "ü".repeat(64)));
    }

    #[test]
    fn bytes_elements_pick_shares_the_buffer() {
        let all = ["ab", "", "c"].iter().collect::<BytesElements>().with_text(true);
        let picked = all.pick([2, 0, 0, 3]);
        assert_eq!(picked, ["c", "ab", "ab"].iter().collect());
        assert_eq!((picked.size(), picked.is_text()), (5, true));
        assert_eq!(picked.buffer.as_ptr(), all.buffer.as_ptr());
    }

    #[test]
    fn bytes_elements_reject_spans_outside_the_buffer() {
        assert!(BytesElements::new(Bytes::from_static(b"ab"), vec![0..1, 1..2]).is_some());
        assert!(BytesElements::new(Bytes::from_static(b"ab"), vec![0..1, 1..3]).is_none());
    }
}
