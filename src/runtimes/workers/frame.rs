//! The encoding of frames; see `docs/worker-protocol.md`. No I/O happens here.

use bytes::{Buf, Bytes, BytesMut};

/// The version of the protocol, which must be the same at both ends.
pub(super) const PROTOCOL: u32 = 2;

/// The longest head, in bytes.
pub(super) const MAX_HEAD: usize = 16 << 20;
/// The longest tail, in bytes.
pub(super) const MAX_TAIL: u64 = 4 << 30;

/// Calls that may be open at once on one worker.
pub(super) const SLOTS: usize = 256;
/// The bytes of the shared page: an id for each slot.
pub(super) const PAGE_BYTES: usize = 8 * SLOTS;

const HEADER: usize = 24;

/// The buffer for an incoming frame grows by this many bytes at a time, so that a declared length alone allocates nothing.
const GROWTH: usize = 4 << 20;

/// Chunks of a tail up to this size, in bytes, are copied into one buffer rather than sent as a slice of their own.
const COPY_LIMIT: usize = 16 << 10;

/// The kinds of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum FrameKind {
    Hello = 1,
    Load = 2,
    Unload = 3,
    Predict = 4,
    Stream = 5,
    Call = 6,
    Item = 7,
    End = 8,
    Credit = 9,
    Cancel = 10,
    Ping = 11,
    Stop = 12,
    Scrape = 13,
    StepAnswer = 14,
    Ready = 64,
    Loaded = 65,
    Done = 66,
    Answer = 67,
    Reply = 68,
    Error = 69,
    Yielded = 70,
    Pong = 71,
    Metrics = 72,
    Exposition = 73,
    Step = 74,
    Chunk = 75,
}

impl FrameKind {
    const ALL: [Self; 26] = [
        Self::Hello,
        Self::Load,
        Self::Unload,
        Self::Predict,
        Self::Stream,
        Self::Call,
        Self::Item,
        Self::End,
        Self::Credit,
        Self::Cancel,
        Self::Ping,
        Self::Stop,
        Self::Scrape,
        Self::StepAnswer,
        Self::Ready,
        Self::Loaded,
        Self::Done,
        Self::Answer,
        Self::Reply,
        Self::Error,
        Self::Yielded,
        Self::Pong,
        Self::Metrics,
        Self::Exposition,
        Self::Step,
        Self::Chunk,
    ];

    /// Reports whether such a frame of a worker ends its call, if the call may have several.
    pub(super) const fn is_final(self) -> bool {
        matches!(self, Self::End | Self::Done | Self::Reply | Self::Error)
    }

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// Why bytes are not a valid frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum FrameError {
    #[error("unknown frame kind {0}")]
    Kind(u8),
    #[error("frame head of {found} bytes exceeds the limit of {MAX_HEAD}")]
    Head { found: usize },
    #[error("frame tail of {found} bytes exceeds the limit of {MAX_TAIL}")]
    Tail { found: u64 },
}

/// A received frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: FrameKind,
    pub(super) id: u64,
    pub(super) head: Bytes,
    pub(super) tail: Bytes,
}

impl Frame {
    /// Takes the next frame from `buffer`, or returns `None` if it is not complete yet.
    ///
    /// # Errors
    ///
    /// Fails on bytes that violate the protocol; nothing after them can be read.
    pub(super) fn take(buffer: &mut BytesMut) -> Result<Option<Self>, FrameError> {
        let Some(mut header) = buffer.get(..HEADER) else { return Ok(None) };
        let kind = header.get_u8();
        let kind = FrameKind::from_byte(kind).ok_or(FrameError::Kind(kind))?;
        header.advance(3);
        let head = usize::try_from(header.get_u32_le()).unwrap_or(usize::MAX);
        if head > MAX_HEAD {
            return Err(FrameError::Head { found: head });
        }
        let id = header.get_u64_le();
        let found = header.get_u64_le();
        let tail = usize::try_from(found).ok().filter(|_| found <= MAX_TAIL).ok_or(FrameError::Tail { found })?;
        let size = HEADER + head + tail;
        if buffer.len() < size {
            let missing = size - buffer.len();
            if buffer.capacity() - buffer.len() < missing {
                buffer.reserve(missing.min(GROWTH.max(buffer.len())));
            }
            return Ok(None);
        }
        let mut frame = buffer.split_to(size).freeze();
        frame.advance(HEADER);
        let head = frame.split_to(head);
        Ok(Some(Self { kind, id, head, tail: frame }))
    }
}

/// A frame to send. Clones are cheap, so that a call can be sent again to another worker.
#[derive(Debug, Clone)]
pub(super) struct OutgoingFrame {
    pub(super) kind: FrameKind,
    head: Bytes,
    tail: Vec<Bytes>,
}

impl OutgoingFrame {
    /// Creates a frame without a tail.
    ///
    /// # Errors
    ///
    /// Fails if the head is too long.
    pub(super) fn new(kind: FrameKind, head: impl Into<Bytes>) -> Result<Self, FrameError> {
        Self::with_tail(kind, head, Vec::new())
    }

    /// Creates a frame whose tail is the concatenation of some chunks.
    ///
    /// # Errors
    ///
    /// Fails if the head or the tail is too long.
    pub(super) fn with_tail(kind: FrameKind, head: impl Into<Bytes>, tail: Vec<Bytes>) -> Result<Self, FrameError> {
        let head = head.into();
        if head.len() > MAX_HEAD {
            return Err(FrameError::Head { found: head.len() });
        }
        let found = tail.iter().map(|chunk| chunk.len() as u64).sum();
        if found > MAX_TAIL {
            return Err(FrameError::Tail { found });
        }
        Ok(Self { kind, head, tail })
    }

    /// Creates a frame with an empty head and an empty tail.
    pub(super) const fn empty(kind: FrameKind) -> Self {
        Self { kind, head: Bytes::new(), tail: Vec::new() }
    }

    /// Encodes the frame with the id of its call.
    ///
    /// Header, head and short chunks are appended to `scratch`. `put` gets each long chunk of the tail; the content of
    /// `scratch` at that time comes before the chunk.
    pub(super) fn write(self, id: u64, scratch: &mut BytesMut, mut put: impl FnMut(&mut BytesMut, Bytes)) {
        let size: usize = self.tail.iter().map(Bytes::len).sum();
        scratch.extend_from_slice(&self.header(id, size));
        scratch.extend_from_slice(&self.head);
        for chunk in self.tail {
            if chunk.len() <= COPY_LIMIT {
                scratch.extend_from_slice(&chunk);
            } else {
                put(scratch, chunk);
            }
        }
    }

    fn header(&self, id: u64, tail: usize) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        header[0] = self.kind as u8;
        let head = u32::try_from(self.head.len()).expect("checked when the frame was created");
        header[4..8].copy_from_slice(&head.to_le_bytes());
        header[8..16].copy_from_slice(&id.to_le_bytes());
        header[16..24].copy_from_slice(&(tail as u64).to_le_bytes());
        header
    }
}
