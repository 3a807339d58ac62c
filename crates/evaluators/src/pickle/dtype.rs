//! NumPy's element types and arrays.

use std::sync::Arc;

use bytes::Bytes;

use super::graph::NodeId;

/// The kind of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementKind {
    Bool,
    Int,
    Uint,
    Float,
    /// UCS-4, padded with zeros.
    Text,
    /// Bytes, padded with zeros.
    Bytes,
    /// Any Python object.
    Object,
    /// A structure, or a type that is not interpreted here.
    Void,
}

/// An element type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dtype {
    pub kind: ElementKind,
    /// The number of bytes of an element.
    pub size: usize,
    pub big_endian: bool,
    /// The fields of a structure; otherwise empty.
    pub fields: Vec<DtypeField>,
}

/// A field of a structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DtypeField {
    pub name: Arc<str>,
    pub dtype: Arc<Dtype>,
    /// The offset from the start of the structure, in bytes.
    pub offset: usize,
}

impl Dtype {
    /// Parses a code such as `f8`, `<i4` or `U12`.
    pub(crate) fn parse(code: &str) -> Option<Self> {
        let (big_endian, code) = match code.as_bytes().first()? {
            b'>' => (true, &code[1..]),
            b'<' | b'|' | b'=' => (false, &code[1..]),
            _ => (false, code),
        };
        let mut characters = code.chars();
        let letter = characters.next()?;
        let size = match characters.as_str() {
            "" => None,
            digits => Some(digits.parse::<usize>().ok()?),
        };
        let (kind, size) = match (letter, size) {
            ('b', Some(1)) | ('?', None) => (ElementKind::Bool, 1),
            ('i', Some(size @ (1 | 2 | 4 | 8))) => (ElementKind::Int, size),
            ('u', Some(size @ (1 | 2 | 4 | 8))) => (ElementKind::Uint, size),
            ('f', Some(size @ (2 | 4 | 8))) => (ElementKind::Float, size),
            // Complex and extended-precision numbers, times and time spans: only their size matters.
            ('f' | 'c' | 'M' | 'm' | 'V', Some(size)) => (ElementKind::Void, size),
            ('U', size) => (ElementKind::Text, size.unwrap_or(0).checked_mul(4)?),
            ('S', size) => (ElementKind::Bytes, size.unwrap_or(0)),
            ('O', _) => (ElementKind::Object, 8),
            _ => return None,
        };
        Some(Self { kind, size, big_endian, fields: Vec::new() })
    }

    /// Returns NumPy's name without byte order, such as `float64` or `<U3`.
    pub fn name(&self) -> String {
        let bits = self.size * 8;
        match self.kind {
            ElementKind::Bool => "bool".to_owned(),
            ElementKind::Int => format!("int{bits}"),
            ElementKind::Uint => format!("uint{bits}"),
            ElementKind::Float => format!("float{bits}"),
            ElementKind::Text => format!("<U{}", self.size / 4),
            ElementKind::Bytes => format!("S{}", self.size),
            ElementKind::Object => "object".to_owned(),
            ElementKind::Void => format!("V{}", self.size),
        }
    }
}

/// An array of any rank. The number of elements matches the shape.
#[derive(Debug, Clone)]
pub struct NumpyArray {
    pub dtype: Arc<Dtype>,
    pub shape: Vec<usize>,
    /// Whether the first dimension varies fastest.
    pub(super) fortran: bool,
    pub(super) data: ArrayData,
}

#[derive(Debug, Clone)]
pub(super) enum ArrayData {
    Raw(Bytes),
    Objects(Vec<NodeId>),
}

/// The numbers of an array, or of one of its fields, as a view of the file.
#[derive(Debug, Clone)]
pub struct ArrayNumbers<'a> {
    bytes: &'a [u8],
    kind: ElementKind,
    size: usize,
    big_endian: bool,
    stride: usize,
    offset: usize,
    shape: &'a [usize],
    fortran: bool,
}

/// The limit on elements of zero bytes. They take no memory, so a file could claim any number of them.
const MAX_EMPTY_ELEMENTS: usize = 1 << 16;

/// Returns the number of elements of a shape, or `None` if `dtype` does not allow as many.
pub(super) fn count(shape: &[usize], dtype: &Dtype) -> Option<usize> {
    product(shape).filter(|&count| dtype.size > 0 || count <= MAX_EMPTY_ELEMENTS)
}

/// Multiplies the dimensions. A shape with a zero is empty, however large the others are.
fn product(shape: &[usize]) -> Option<usize> {
    if shape.contains(&0) {
        return Some(0);
    }
    shape.iter().try_fold(1_usize, |count, &dimension| count.checked_mul(dimension))
}

impl NumpyArray {
    /// Creates an array of elements in their memory layout.
    ///
    /// Returns `None` if the number of bytes does not match dtype and shape, or if the elements are objects.
    pub(crate) fn from_raw(dtype: Arc<Dtype>, shape: Vec<usize>, fortran: bool, bytes: Bytes) -> Option<Self> {
        let needed = count(&shape, &dtype)?.checked_mul(dtype.size)?;
        let fits = dtype.kind != ElementKind::Object && bytes.len() == needed;
        fits.then_some(Self { dtype, shape, fortran, data: ArrayData::Raw(bytes) })
    }

    /// Creates an array of objects.
    pub(crate) fn from_objects(
        dtype: Arc<Dtype>,
        shape: Vec<usize>,
        fortran: bool,
        objects: Vec<NodeId>,
    ) -> Option<Self> {
        let fits = dtype.kind == ElementKind::Object && count(&shape, &dtype)? == objects.len();
        fits.then_some(Self { dtype, shape, fortran, data: ArrayData::Objects(objects) })
    }

    /// Creates the array that NumPy allocates before its state is set.
    pub(super) fn empty() -> Self {
        let dtype = Dtype { kind: ElementKind::Void, size: 1, big_endian: false, fields: Vec::new() };
        Self { dtype: Arc::new(dtype), shape: vec![0], fortran: false, data: ArrayData::Raw(Bytes::new()) }
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        product(&self.shape).unwrap_or(0)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the elements, if they are numbers or booleans.
    pub fn numbers(&self) -> Option<ArrayNumbers<'_>> {
        self.view(&self.dtype, 0)
    }

    /// Returns one field of each element, if the elements are structures with a numeric field of this name.
    pub fn field(&self, name: &str) -> Option<ArrayNumbers<'_>> {
        let field = self.dtype.fields.iter().find(|field| &*field.name == name)?;
        let inside = field.offset.checked_add(field.dtype.size)? <= self.dtype.size;
        if inside { self.view(&field.dtype, field.offset) } else { None }
    }

    fn view(&self, dtype: &Dtype, offset: usize) -> Option<ArrayNumbers<'_>> {
        let numeric =
            matches!(dtype.kind, ElementKind::Bool | ElementKind::Int | ElementKind::Uint | ElementKind::Float);
        let ArrayData::Raw(bytes) = &self.data else { return None };
        let (kind, size, big_endian, stride) = (dtype.kind, dtype.size, dtype.big_endian, self.dtype.size);
        let (shape, fortran) = (&self.shape[..], self.fortran);
        numeric.then_some(ArrayNumbers { bytes, kind, size, big_endian, stride, offset, shape, fortran })
    }

    /// Returns the elements in C order, if they are text.
    ///
    /// Also returns `None` if one of them is not valid Unicode.
    pub fn texts(&self) -> Option<Vec<String>> {
        let ArrayData::Raw(bytes) = &self.data else { return None };
        if self.dtype.kind != ElementKind::Text {
            return None;
        }
        if self.dtype.size == 0 {
            return Some(vec![String::new(); self.len()]);
        }
        let read = |unit: &[u8]| {
            let unit: [u8; 4] = unit.try_into().ok()?;
            char::from_u32(if self.dtype.big_endian { u32::from_be_bytes(unit) } else { u32::from_le_bytes(unit) })
        };
        let element = |index: usize| {
            let units = bytes[index * self.dtype.size..(index + 1) * self.dtype.size].chunks_exact(4);
            let text: String = units.map(read).collect::<Option<_>>()?;
            Some(text.trim_end_matches('\0').to_owned())
        };
        Order::new(&self.shape, self.fortran).map(element).collect()
    }

    /// Returns the bytes of all elements, if they are not objects.
    pub(crate) const fn raw_bytes(&self) -> Option<&Bytes> {
        match &self.data {
            ArrayData::Raw(bytes) => Some(bytes),
            ArrayData::Objects(_) => None,
        }
    }

    /// Returns the objects in C order, if the elements are objects.
    pub(super) fn objects(&self) -> Option<Vec<NodeId>> {
        match &self.data {
            ArrayData::Objects(objects) => {
                Some(Order::new(&self.shape, self.fortran).map(|index| objects[index]).collect())
            }
            ArrayData::Raw(_) => None,
        }
    }
}

impl<'a> ArrayNumbers<'a> {
    pub const fn kind(&self) -> ElementKind {
        self.kind
    }

    /// Returns the number of bytes of a number.
    pub const fn size(&self) -> usize {
        self.size
    }

    /// Returns the number of numbers.
    pub fn len(&self) -> usize {
        product(self.shape).unwrap_or(0)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn raw(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (bytes, stride, offset, size) = (self.bytes, self.stride, self.offset, self.size);
        Order::new(self.shape, self.fortran).map(move |index| {
            let start = index * stride + offset;
            &bytes[start..start + size]
        })
    }

    /// Returns the numbers in C order. Integers of more than 53 bits are rounded.
    #[expect(clippy::cast_precision_loss, reason = "as NumPy's cast to float64")]
    pub fn to_f64(&self) -> Vec<f64> {
        match (self.kind, self.size) {
            (ElementKind::Float, 8) => self.collect(f64::from_le_bytes),
            (ElementKind::Float, 4) => self.collect(|bytes| f64::from(f32::from_le_bytes(bytes))),
            (ElementKind::Float, _) => self.collect(|bytes| half::f16::from_le_bytes(bytes).to_f64()),
            (ElementKind::Uint, 8) => self.collect(|bytes| u64::from_le_bytes(bytes) as f64),
            _ => self.integers().map(|integer| integer as f64).collect(),
        }
    }

    /// Returns the numbers in C order, or `None` if they are not integers or do not fit.
    pub fn to_i64(&self) -> Option<Vec<i64>> {
        if self.kind == ElementKind::Float {
            return None;
        }
        let integers: Vec<i64> = self.integers().collect();
        let wrapped = self.kind == ElementKind::Uint && self.size == 8 && integers.iter().any(|&integer| integer < 0);
        (!wrapped).then_some(integers)
    }

    /// Returns integers and booleans, sign-extended. Unsigned ones of 64 bits wrap.
    fn integers(&self) -> impl Iterator<Item = i64> {
        let signed = self.kind == ElementKind::Int;
        let big_endian = self.big_endian;
        self.raw().map(move |raw| {
            let most_significant = if big_endian { raw.first() } else { raw.last() };
            let negative = signed && most_significant.is_some_and(|byte| byte & 0x80 != 0);
            let mut bytes = [if negative { 0xff } else { 0 }; 8];
            for (index, slot) in bytes.iter_mut().take(raw.len()).enumerate() {
                *slot = raw[if big_endian { raw.len() - 1 - index } else { index }];
            }
            i64::from_le_bytes(bytes)
        })
    }

    /// Reads numbers of `N` bytes. The caller has checked the size.
    fn collect<const N: usize, T>(&self, read: impl Fn([u8; N]) -> T) -> Vec<T> {
        let big_endian = self.big_endian;
        let raw = self.raw().filter_map(|raw| <[u8; N]>::try_from(raw).ok());
        raw.map(|mut bytes| {
            if big_endian {
                bytes.reverse();
            }
            read(bytes)
        })
        .collect()
    }
}

/// The offsets of the elements of an array, in C order.
struct Order<'a> {
    shape: &'a [usize],
    index: Vec<usize>,
    fortran: bool,
    next: usize,
    count: usize,
}

impl<'a> Order<'a> {
    fn new(shape: &'a [usize], fortran: bool) -> Self {
        // For up to one dimension both orders are the same.
        let fortran = fortran && shape.len() > 1;
        Self { shape, index: vec![0; shape.len()], fortran, next: 0, count: product(shape).unwrap_or(0) }
    }
}

impl Iterator for Order<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        if self.next == self.count {
            return None;
        }
        self.next += 1;
        if !self.fortran {
            return Some(self.next - 1);
        }
        let place = self.index.iter().zip(self.shape).rev().fold(0, |place, (index, size)| place * size + index);
        for (index, &size) in self.index.iter_mut().zip(self.shape).rev() {
            *index += 1;
            if *index < size {
                break;
            }
            *index = 0;
        }
        Some(place)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.count - self.next;
        (left, Some(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(code: &str, shape: &[usize], fortran: bool, bytes: &[u8]) -> Option<NumpyArray> {
        let dtype = Arc::new(Dtype::parse(code)?);
        NumpyArray::from_raw(dtype, shape.to_vec(), fortran, Bytes::copy_from_slice(bytes))
    }

    #[test]
    fn dtype_codes_are_parsed() {
        let read = |code: &str| Dtype::parse(code).map(|dtype| (dtype.kind, dtype.size, dtype.big_endian));
        assert_eq!(read("f8"), Some((ElementKind::Float, 8, false)));
        assert_eq!(read(">i4"), Some((ElementKind::Int, 4, true)));
        assert_eq!(read("b1"), Some((ElementKind::Bool, 1, false)));
        assert_eq!(read("U3"), Some((ElementKind::Text, 12, false)));
        assert_eq!(read("O8"), Some((ElementKind::Object, 8, false)));
        assert_eq!(read("M8"), Some((ElementKind::Void, 8, false)));
        for unknown in ["", "<", "f", "i16", "x8", "U-1", "U99999999999999999999", "é"] {
            assert_eq!(read(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn numbers_are_in_c_order() {
        let bytes: Vec<u8> = (0..6).collect();
        assert_eq!(array("u1", &[2, 3], false, &bytes).unwrap().numbers().unwrap().to_f64(), [0., 1., 2., 3., 4., 5.]);
        let fortran = array("u1", &[2, 3], true, &bytes).unwrap();
        assert_eq!(fortran.numbers().unwrap().to_f64(), [0., 2., 4., 1., 3., 5.]);
        let wide = array(">i2", &[2], false, &[0xff, 0xfe, 1, 0]).unwrap();
        assert_eq!(wide.numbers().unwrap().to_i64(), Some(vec![-2, 256]));
        assert!(array("f8", &[2], false, &bytes).is_none(), "too few bytes");
        assert!(array("U0", &[1 << 40], false, b"").is_none(), "elements of zero bytes");
        assert!(array("f8", &[usize::MAX, 2], false, b"").is_none(), "a size that overflows");
        let nothing = array("f8", &[usize::MAX, 2, 0], true, b"").unwrap();
        assert!(nothing.numbers().unwrap().to_f64().is_empty());
    }

    #[test]
    fn texts_are_read_without_padding() {
        let text = array(">U2", &[2], false, b"\0\0\0a\0\0\0\0\0\0\0b\0\0\0c").unwrap();
        assert_eq!(text.texts(), Some(vec!["a".to_owned(), "bc".to_owned()]));
        assert_eq!(array("U1", &[1], false, &[0, 0xd8, 0, 0]).unwrap().texts(), None, "a lone surrogate");
    }
}
