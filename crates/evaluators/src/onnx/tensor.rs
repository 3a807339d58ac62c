//! Tensors of a graph: elements of one type, and a shape.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;

/// The most dimensions of a tensor.
pub const MAX_RANK: usize = 8;

/// The type of a tensor's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ElementType {
    F16,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    Bool,
    /// Byte strings; those of a file are UTF-8.
    Text,
}

impl ElementType {
    /// Every type, with its number in `TensorProto.DataType` and its name in ONNX.
    const ALL: [(Self, i64, &'static str); 13] = [
        (Self::F32, 1, "float"),
        (Self::U8, 2, "uint8"),
        (Self::I8, 3, "int8"),
        (Self::U16, 4, "uint16"),
        (Self::I16, 5, "int16"),
        (Self::I32, 6, "int32"),
        (Self::I64, 7, "int64"),
        (Self::Text, 8, "string"),
        (Self::Bool, 9, "bool"),
        (Self::F16, 10, "float16"),
        (Self::F64, 11, "double"),
        (Self::U32, 12, "uint32"),
        (Self::U64, 13, "uint64"),
    ];

    /// Returns the type with a number of `TensorProto.DataType`, if tables have it.
    pub(super) fn of_number(number: i64) -> Option<Self> {
        Self::ALL.iter().find(|(_, of, _)| *of == number).map(|(element, ..)| *element)
    }

    /// Returns the name of a number of `TensorProto.DataType`.
    pub(super) fn name_of(number: i64) -> String {
        match number {
            14 => "complex64".to_owned(),
            15 => "complex128".to_owned(),
            16 => "bfloat16".to_owned(),
            other => Self::of_number(other).map_or_else(|| format!("number {other}"), |element| element.to_string()),
        }
    }

    /// Returns the size of an element in bytes. A text counts its place only.
    pub const fn width(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::Bool => 1,
            Self::F16 | Self::I16 | Self::U16 => 2,
            Self::F32 | Self::I32 | Self::U32 => 4,
            Self::F64 | Self::I64 | Self::U64 => 8,
            Self::Text => size_of::<Bytes>(),
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(Self::ALL.iter().find(|(element, ..)| element == self).map_or("", |(.., name)| *name))
    }
}

/// The dimensions of a tensor, at most [`MAX_RANK`]. Their product fits in `isize`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Shape {
    dimensions: [usize; MAX_RANK],
    rank: u8,
}

impl Shape {
    /// Creates a shape, if it has at most [`MAX_RANK`] dimensions and fits in the address space.
    pub fn new(dimensions: &[usize]) -> Option<Self> {
        let mut shape = Self { rank: u8::try_from(dimensions.len()).ok()?, ..Self::default() };
        shape.dimensions.get_mut(..dimensions.len())?.copy_from_slice(dimensions);
        // Checked without the dimensions that are 0, so that the product of any of them fits, too.
        let fits = |count: &usize| isize::try_from(*count).is_ok_and(|count| count < isize::MAX / 64);
        let product = |count: usize, next: &usize| count.checked_mul((*next).max(1));
        dimensions.iter().try_fold(1, product).filter(fits)?;
        Some(shape)
    }

    /// Returns the shape of a list.
    pub fn of_list(length: usize) -> Option<Self> {
        Self::new(&[length])
    }

    /// Returns the shape of a matrix.
    pub fn of_matrix(rows: usize, columns: usize) -> Option<Self> {
        Self::new(&[rows, columns])
    }

    /// Returns the dimensions.
    pub fn dimensions(&self) -> &[usize] {
        &self.dimensions[..usize::from(self.rank)]
    }

    /// Returns the number of dimensions.
    pub fn rank(&self) -> usize {
        usize::from(self.rank)
    }

    /// Returns the number of elements.
    pub fn count(&self) -> usize {
        self.dimensions().iter().product()
    }

    /// Returns the product of the dimensions before `axis`, of the one at `axis`, and of those after it.
    pub(super) fn around(&self, axis: usize) -> (usize, usize, usize) {
        let dimensions = self.dimensions();
        (dimensions[..axis].iter().product(), dimensions[axis], dimensions[axis + 1..].iter().product())
    }

    /// Returns the distance in elements between neighbours along each dimension.
    pub(super) fn strides(&self) -> [usize; MAX_RANK] {
        let mut strides = [0; MAX_RANK];
        let mut stride = 1;
        for (index, dimension) in self.dimensions().iter().enumerate().rev() {
            strides[index] = stride;
            stride *= (*dimension).max(1);
        }
        strides
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.dimensions(), formatter)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.dimensions(), formatter)
    }
}

/// The elements of a tensor: a slice of a request, or shared between a model and its values.
#[derive(Debug)]
pub enum Buffer<'v, T> {
    Borrowed(&'v [T]),
    Shared(Arc<Vec<T>>),
}

impl<T> Clone for Buffer<'_, T> {
    fn clone(&self) -> Self {
        match self {
            Self::Borrowed(values) => Self::Borrowed(values),
            Self::Shared(values) => Self::Shared(Arc::clone(values)),
        }
    }
}

impl<T> Deref for Buffer<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Borrowed(values) => values,
            Self::Shared(values) => values,
        }
    }
}

impl<T> From<Vec<T>> for Buffer<'_, T> {
    fn from(values: Vec<T>) -> Self {
        Self::Shared(Arc::new(values))
    }
}

impl<'v, T: Clone> Buffer<'v, T> {
    /// Returns the elements without a copy, unless something else shares them.
    pub fn into_cow(self) -> Cow<'v, [T]> {
        match self {
            Self::Borrowed(values) => Cow::Borrowed(values),
            Self::Shared(values) => Cow::Owned(Arc::unwrap_or_clone(values)),
        }
    }
}

impl<'v, T: Clone> From<Cow<'v, [T]>> for Buffer<'v, T> {
    fn from(values: Cow<'v, [T]>) -> Self {
        match values {
            Cow::Borrowed(values) => Self::Borrowed(values),
            Cow::Owned(values) => values.into(),
        }
    }
}

macro_rules! elements {
    ($($variant:ident: $type:ty),*) => {
        /// The elements of a tensor, by type.
        #[derive(Debug, Clone)]
        pub enum Elements<'v> {
            $($variant(Buffer<'v, $type>),)*
        }

        impl Elements<'_> {
            /// Returns the type.
            pub const fn element_type(&self) -> ElementType {
                match self { $(Self::$variant(_) => ElementType::$variant,)* }
            }

            /// Returns the number of elements.
            pub fn len(&self) -> usize {
                match self { $(Self::$variant(values) => values.len(),)* }
            }

            /// Returns the same elements, borrowed.
            pub(super) fn borrowed(&self) -> Elements<'_> {
                match self { $(Self::$variant(values) => Elements::$variant(Buffer::Borrowed(values)),)* }
            }

            /// Returns the elements as a list of their own. Shared ones are not copied.
            pub(super) fn into_static(self) -> Elements<'static> {
                match self { $(Self::$variant(values) => Elements::$variant(match values {
                    Buffer::Borrowed(values) => values.to_vec().into(),
                    Buffer::Shared(values) => Buffer::Shared(values),
                }),)* }
            }

            /// Returns no elements of a type.
            pub fn empty(element: ElementType) -> Self {
                match element { $(ElementType::$variant => Self::$variant(Vec::new().into()),)* }
            }
        }

        $(impl Element for $type {
            const TYPE: ElementType = ElementType::$variant;

            fn wrap(values: Buffer<'_, Self>) -> Elements<'_> {
                Elements::$variant(values)
            }

            fn of<'a, 'v>(elements: &'a Elements<'v>) -> Option<&'a Buffer<'v, Self>> {
                match elements { Elements::$variant(values) => Some(values), _ => None }
            }
        })*

        /// Runs an expression with the type of the elements: `with_elements!(elements, |values: &Buffer<T>| ...)`.
        macro_rules! with_elements {
            ($elements:expr, |$values:ident| $body:expr) => {
                match $elements { $($crate::onnx::tensor::Elements::$variant($values) => $body,)* }
            };
        }

        /// Runs an expression in which `$T` is the type of elements.
        macro_rules! with_type {
            ($element:expr, $T:ident => $body:expr) => {
                match $element { $($crate::onnx::tensor::ElementType::$variant => {
                    type $T = $type;
                    $body
                })* }
            };
        }
    };
}

/// A type of elements.
pub trait Element: Clone + fmt::Debug + Default + PartialEq + Send + Sync + 'static {
    const TYPE: ElementType;

    fn wrap(values: Buffer<'_, Self>) -> Elements<'_>;

    fn of<'a, 'v>(elements: &'a Elements<'v>) -> Option<&'a Buffer<'v, Self>>;
}

elements! {
    F16: half::f16, F32: f32, F64: f64, I8: i8, I16: i16, I32: i32, I64: i64, U8: u8, U16: u16, U32: u32, U64: u64, Bool: bool, Text: bytes::Bytes
}
pub(super) use {with_elements, with_type};

impl Elements<'_> {
    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Elements in row-major order, as many as the shape has.
#[derive(Debug, Clone)]
pub struct Tensor<'v> {
    shape: Shape,
    elements: Elements<'v>,
}

impl<'v> Tensor<'v> {
    /// Creates a tensor, if there are as many elements as the shape has.
    pub fn new(shape: Shape, elements: Elements<'v>) -> Option<Self> {
        (shape.count() == elements.len()).then_some(Self { shape, elements })
    }

    /// Creates a tensor of values, if there are as many as the shape has.
    pub fn of<T: Element>(shape: Shape, values: Vec<T>) -> Option<Self> {
        Self::new(shape, T::wrap(values.into()))
    }

    /// Creates a list of values.
    pub(super) fn list<T: Element>(values: Vec<T>) -> Option<Self> {
        Self::of(Shape::of_list(values.len())?, values)
    }

    /// Returns the dimensions.
    pub const fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the elements.
    pub const fn elements(&self) -> &Elements<'v> {
        &self.elements
    }

    /// Returns the elements, without a copy.
    pub fn into_elements(self) -> Elements<'v> {
        self.elements
    }

    /// Returns the type of the elements.
    pub const fn element_type(&self) -> ElementType {
        self.elements.element_type()
    }

    /// Returns the elements, if they have this type.
    pub fn values<T: Element>(&self) -> Option<&Buffer<'v, T>> {
        T::of(&self.elements)
    }

    /// Returns the same elements in another shape, if it has as many.
    pub(super) fn reshaped(&self, shape: Shape) -> Option<Self> {
        Self::new(shape, self.elements.clone())
    }

    /// Returns the same tensor, borrowed.
    pub(super) fn borrowed(&self) -> Tensor<'_> {
        Tensor { shape: self.shape, elements: self.elements.borrowed() }
    }

    /// Returns the tensor with elements of its own. Shared ones are not copied.
    pub fn into_static(self) -> Tensor<'static> {
        Tensor { shape: self.shape, elements: self.elements.into_static() }
    }

    /// Returns integers of any width as positions or sizes.
    pub(super) fn integers(&self) -> Option<Vec<i64>> {
        match &self.elements {
            Elements::I64(values) => Some(values.to_vec()),
            Elements::I32(values) => Some(values.iter().map(|value| i64::from(*value)).collect()),
            _ => None,
        }
    }

    /// Returns the size of the elements in bytes. Texts that are shared count, too.
    pub fn byte_len(&self) -> usize {
        let places = self.elements.len().saturating_mul(self.element_type().width());
        match &self.elements {
            Elements::Text(texts) => texts.iter().fold(places, |bytes, text| bytes.saturating_add(text.len())),
            _ => places,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ElementType, MAX_RANK, Shape, Tensor};

    #[test]
    fn shape_never_overflows() {
        assert_eq!(Shape::new(&[2, 3]).unwrap().count(), 6);
        assert_eq!(Shape::new(&[]).unwrap().count(), 1);
        assert!(Shape::new(&[1 << 32, 1 << 32]).is_none());
        assert!(Shape::new(&[0, usize::MAX, 2]).is_none(), "the product of any dimensions fits");
        assert!(Shape::new(&[1; MAX_RANK + 1]).is_none());
        assert_eq!(Shape::new(&[2, 3, 4]).unwrap().strides()[..3], [12, 4, 1]);
        assert_eq!(Shape::new(&[2, 3, 4]).unwrap().around(1), (2, 3, 4));
    }

    #[test]
    fn tensor_has_as_many_elements_as_its_shape() {
        let shape = Shape::new(&[2, 2]).unwrap();
        assert!(Tensor::of(shape, vec![1.0_f32; 3]).is_none());
        let tensor = Tensor::of(shape, vec![1.0_f32; 4]).unwrap();
        assert_eq!((tensor.element_type(), tensor.byte_len()), (ElementType::F32, 16));
        assert!(tensor.reshaped(Shape::new(&[5]).unwrap()).is_none());
    }

    #[test]
    fn element_types_have_the_numbers_of_the_format() {
        for (element, number, name) in ElementType::ALL {
            assert_eq!(ElementType::of_number(number), Some(element));
            assert_eq!(ElementType::name_of(number), name);
        }
        assert_eq!(ElementType::of_number(16), None);
        assert_eq!(ElementType::name_of(16), "bfloat16");
    }
}
