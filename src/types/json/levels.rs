//! How arrays of data nest.

use super::cursor::MAX_DEPTH;

/// The lengths of the arrays of each level, given by the first array of that level.
pub(super) struct Levels {
    pub(super) lengths: [Option<usize>; MAX_DEPTH],
    /// The level whose arrays hold elements.
    pub(super) leaf: Option<usize>,
    /// Whether an element has another JSON type than its datatype: `null` or text among numbers, a number in BOOL.
    pub(super) is_converted: bool,
}

impl Levels {
    pub(super) const NONE: Self = Self { lengths: [None; MAX_DEPTH], leaf: None, is_converted: false };

    /// Returns how many arrays are around each element.
    pub(super) fn depth(&self) -> usize {
        self.lengths.iter().take_while(|length| length.is_some()).count()
    }

    /// Returns the lengths of the arrays of all levels: the shape of the data.
    pub(super) fn shape(&self) -> Vec<usize> {
        self.lengths.iter().map_while(|length| *length).collect()
    }

    /// Reports whether the arrays have these lengths.
    pub(super) fn have(&self, shape: &[usize]) -> bool {
        self.depth() == shape.len() && shape.iter().zip(&self.lengths).all(|(&wanted, &length)| length == Some(wanted))
    }
}
