//! What fuzz targets call: the readers of bytes from workers, and of native workers.

use bytes::BytesMut;

use super::frame::Frame;
use super::message::{self, CreditHead, ErrorHead, ExpositionHead, LoadedHead, MetricsHead, ReadyHead};
use super::score;

/// Reads frames as those of either end, and each of them as every message.
pub fn read_frames(bytes: &[u8]) {
    let mut buffer = BytesMut::from(bytes);
    while let Ok(Some(frame)) = Frame::take(&mut buffer) {
        // An error is a valid result.
        drop(message::read_response(&frame));
        drop(message::read_reply(&frame));
        drop(frame.read_head::<ReadyHead>());
        drop(frame.read_head::<LoadedHead>());
        drop(frame.read_head::<ErrorHead>());
        drop(frame.read_head::<MetricsHead>());
        drop(frame.read_head::<ExpositionHead>());
        drop(frame.read_head::<CreditHead>());
        score::read_for_fuzzing(&frame);
    }
}
