//! Frames as bytes; see `docs/worker-protocol.md`. Nothing here does I/O.

use bytes::{Buf, Bytes, BytesMut};

/// The version of the protocol, which both ends must share.
pub(super) const PROTOCOL: u32 = 1;

/// The longest head, in bytes.
pub(super) const MAX_HEAD: usize = 16 << 20;
/// The longest tail, in bytes.
pub(super) const MAX_TAIL: u64 = 4 << 30;

/// Calls that may be open at once on one worker.
pub(super) const SLOTS: usize = 256;
/// The bytes of the shared page: an id for each slot.
pub(super) const PAGE_BYTES: usize = 8 * SLOTS;

const HEADER: usize = 24;

/// Memory for a frame that is arriving grows by this much at a time, so that a declared length costs nothing by itself.
const GROWTH: usize = 4 << 20;

/// What a frame is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
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
}

impl Kind {
    const ALL: [Self; 23] = [
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
    ];

    fn from_byte(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// Bytes that are no frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum FrameError {
    #[error("a frame has the unknown kind {0}")]
    Kind(u8),
    #[error("a frame declares a head of {found} bytes, more than {MAX_HEAD}")]
    Head { found: usize },
    #[error("a frame declares a tail of {found} bytes, more than {MAX_TAIL}")]
    Tail { found: u64 },
}

/// A frame that has arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) id: u64,
    pub(super) head: Bytes,
    pub(super) tail: Bytes,
}

impl Frame {
    /// Takes the next frame out of what has arrived, or `None` until all of it is there.
    ///
    /// # Errors
    ///
    /// Fails on bytes that no worker of this protocol sends; nothing after them can be read.
    pub(super) fn take(buffer: &mut BytesMut) -> Result<Option<Self>, FrameError> {
        let Some(mut header) = buffer.get(..HEADER) else { return Ok(None) };
        let kind = header.get_u8();
        let kind = Kind::from_byte(kind).ok_or(FrameError::Kind(kind))?;
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

/// A frame to be sent: its first part is header and head, the others are the tail.
///
/// A clone is cheap, so that a call can be sent again to another worker.
#[derive(Debug, Clone)]
pub(super) struct Outgoing {
    pub(super) kind: Kind,
    head: Bytes,
    tail: Vec<Bytes>,
}

impl Outgoing {
    /// Makes a frame without a tail.
    ///
    /// # Errors
    ///
    /// Fails when the head is too long.
    pub(super) fn new(kind: Kind, head: impl Into<Bytes>) -> Result<Self, FrameError> {
        Self::with_tail(kind, head, Vec::new())
    }

    /// Makes a frame.
    ///
    /// # Errors
    ///
    /// Fails when the head or the tail is too long.
    pub(super) fn with_tail(kind: Kind, head: impl Into<Bytes>, tail: Vec<Bytes>) -> Result<Self, FrameError> {
        let head = head.into();
        if head.len() > MAX_HEAD {
            return Err(FrameError::Head { found: head.len() });
        }
        let found = tail.iter().map(|part| part.len() as u64).sum();
        if found > MAX_TAIL {
            return Err(FrameError::Tail { found });
        }
        Ok(Self { kind, head, tail })
    }

    /// Makes a frame of its kind alone.
    pub(super) const fn bare(kind: Kind) -> Self {
        Self { kind, head: Bytes::new(), tail: Vec::new() }
    }

    /// Hands the parts over, in order, with the id of the call.
    ///
    /// Short parts are collected in `scratch`, whose content is a part when `put` is given `None`.
    pub(super) fn write(self, id: u64, scratch: &mut BytesMut, mut put: impl FnMut(&mut BytesMut, Bytes)) {
        let size: usize = self.tail.iter().map(Bytes::len).sum();
        scratch.extend_from_slice(&self.header(id, size));
        scratch.extend_from_slice(&self.head);
        for part in self.tail {
            if part.len() <= COPIED {
                scratch.extend_from_slice(&part);
            } else {
                put(scratch, part);
            }
        }
    }

    fn header(&self, id: u64, tail: usize) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        header[0] = self.kind as u8;
        let head = u32::try_from(self.head.len()).expect("checked when the frame was made");
        header[4..8].copy_from_slice(&head.to_le_bytes());
        header[8..16].copy_from_slice(&id.to_le_bytes());
        header[16..24].copy_from_slice(&(tail as u64).to_le_bytes());
        header
    }
}

/// Parts up to this size are copied behind each other rather than sent as a part of their own.
const COPIED: usize = 16 << 10;
