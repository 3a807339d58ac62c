//! Bytes that arrive in frames.

use bytes::Bytes;

/// The first allocation for bytes that arrive in several frames. Beyond it, the buffer doubles, until a quarter of the announced
/// bytes has arrived: the rest is worth allocating then.
const FIRST_ALLOCATION: usize = 256 << 10;

/// Bytes that are assembled from frames.
///
/// Those of a single frame are not copied. More than one frame is copied into a buffer of its own, because a frame of one byte
/// keeps the whole buffer of its connection. Memory is allocated in proportion to the bytes that have arrived, not for an announced length.
#[derive(Debug, Default)]
pub struct ReceivedBytes {
    first: Bytes,
    joined: Vec<u8>,
}

impl ReceivedBytes {
    pub fn len(&self) -> usize {
        self.first.len() + self.joined.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a frame. At most `length` bytes are expected in all.
    pub fn push(&mut self, frame: Bytes, length: usize) {
        if self.is_empty() {
            self.first = frame;
            return;
        }
        let needed = self.len() + frame.len();
        if self.joined.capacity() < needed {
            let most = if needed >= length / 4 { length } else { FIRST_ALLOCATION.max(2 * needed).min(length) };
            let capacity = most.max(needed);
            self.joined.reserve_exact(capacity - self.joined.len());
        }
        self.joined.extend_from_slice(&std::mem::take(&mut self.first));
        self.joined.extend_from_slice(&frame);
    }

    pub fn into_bytes(self) -> Bytes {
        if self.joined.is_empty() { self.first } else { self.joined.into() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn assembled_bytes_do_not_keep_the_buffers_of_their_frames() {
        let buffer = Bytes::from(vec![7_u8; 1 << 20]);
        let mut received = ReceivedBytes::default();
        for index in 0..100 {
            received.push(buffer.slice(index..=index), 100);
        }
        drop(buffer);
        assert!(received.first.is_empty() && received.joined.capacity() < 1000);
        assert_eq!(received.into_bytes(), vec![7_u8; 100]);
    }

    #[test]
    fn announced_length_is_not_allocated() {
        let mut received = ReceivedBytes::default();
        for text in ["a", "b", "c"] {
            received.push(Bytes::from_static(text.as_bytes()), usize::MAX);
        }
        assert!(received.joined.capacity() <= FIRST_ALLOCATION);
    }

    proptest! {
        #[test]
        fn frames_are_assembled_in_order(frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..50), 0..20)) {
            let all = frames.concat();
            let mut received = ReceivedBytes::default();
            for frame in frames {
                received.push(frame.into(), all.len());
            }
            prop_assert_eq!(received.into_bytes(), all);
        }
    }
}
