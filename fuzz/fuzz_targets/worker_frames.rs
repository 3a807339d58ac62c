//! Bytes that a worker sends, or the parent of a native worker, whose tensors may be in a memory file of 64 KiB: any bytes become messages
//! or errors. Lengths are made to fit first, so that most inputs get past the header.
//!
//! `cargo +nightly fuzz run worker_frames -- -rss_limit_mb=512 -malloc_limit_mb=256`
#![no_main]

use libfuzzer_sys::fuzz_target;
use mlserver::runtimes::workers::fuzzing::read_frames;

/// The bytes before the head of a frame: its kind, three unused bytes, the lengths of head and tail around its id.
const HEADER: usize = 24;

fuzz_target!(|bytes: &[u8]| {
    read_frames(bytes);
    let Some((split, rest)) = bytes.split_first_chunk::<2>() else { return };
    if rest.len() < HEADER {
        return;
    }
    let content = rest.len() - HEADER;
    let head = usize::from(u16::from_le_bytes(*split)).min(content);
    let mut frame = rest.to_vec();
    frame[4..8].copy_from_slice(&u32::try_from(head).unwrap().to_le_bytes());
    frame[16..24].copy_from_slice(&((content - head) as u64).to_le_bytes());
    read_frames(&frame);
});
