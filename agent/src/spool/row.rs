//! One stored row, and its frame in a segment.
//!
//! ```text
//! mark 4 | length of payload 4 | CRC32C of length and payload 4 | payload
//! payload: sequence 8 | end of the probe 8 | flags 1 | the encoded observation, or a loss
//! ```
//!
//! Numbers are little endian. The mark is what reading looks for to go on behind damage.

use super::loss::Loss;

/// Largest payload of a frame, in bytes. An observation has a few hundred, and by its own limits
/// less than eight thousand; a length above this is damage and must not make us reserve memory.
pub(super) const FRAME_BYTES_MAX: usize = 16 << 10;

/// Mark, length and checksum.
pub(super) const HEAD: usize = 12;

/// Sequence number, time and flags before the observation.
pub(super) const PREFIX: usize = 17;

/// Begins every frame. No text and no protobuf field begins so.
pub(super) const MARK: [u8; 4] = [0xf5, b'P', b'x', 0xc1];

const GOOD: u8 = 1;
const LOSS: u8 = 2;

/// One stored row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its number within its boot and lane.
    pub sequence: u64,
    /// When its probe ended, in ms of the boot-time clock.
    pub ended_ms: u64,
    /// Whether it says that something works.
    pub good: bool,
    /// What is stored.
    pub content: Content,
}

/// What a row holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// An encoded observation, without number and age.
    Observation(Vec<u8>),
    /// A record of rows that were dropped.
    Loss(Loss),
}

impl Row {
    /// Bytes of what it holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        match &self.content {
            Content::Observation(bytes) => bytes.len(),
            Content::Loss(_) => Loss::BYTES,
        }
    }

    /// The row as a frame; `None` when it is larger than [`FRAME_BYTES_MAX`].
    #[must_use]
    pub(super) fn frame(&self) -> Option<Vec<u8>> {
        let length = PREFIX + self.bytes();
        if length > FRAME_BYTES_MAX {
            return None;
        }
        let mut flags = if self.good { GOOD } else { 0 };
        let mut frame = Vec::with_capacity(HEAD + length);
        frame.extend(MARK);
        frame.extend(u32::try_from(length).ok()?.to_le_bytes());
        // The checksum comes when what it covers is there.
        frame.extend([0; 4]);
        frame.extend(self.sequence.to_le_bytes());
        frame.extend(self.ended_ms.to_le_bytes());
        match &self.content {
            Content::Observation(bytes) => {
                frame.push(flags);
                frame.extend(bytes);
            }
            Content::Loss(loss) => {
                flags |= LOSS;
                frame.push(flags);
                frame.extend(loss.to_bytes());
            }
        }
        let sum = checksum(&frame)?.to_le_bytes();
        frame.get_mut(8..HEAD)?.copy_from_slice(&sum);
        Some(frame)
    }

    fn from_payload(payload: &[u8]) -> Option<Self> {
        let (sequence, rest) = payload.split_first_chunk::<8>()?;
        let (ended_ms, rest) = rest.split_first_chunk::<8>()?;
        let (flags, body) = rest.split_first()?;
        let content = match flags & LOSS != 0 {
            true => Content::Loss(Loss::from_bytes(body)?),
            false => Content::Observation(body.to_vec()),
        };
        Some(Self {
            sequence: u64::from_le_bytes(*sequence),
            ended_ms: u64::from_le_bytes(*ended_ms),
            good: flags & GOOD != 0,
            content,
        })
    }
}

/// What there is at a place in a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// A row, in a frame of so many bytes.
    Row(Row, usize),
    /// The beginning of a frame that is cut off.
    Cut,
    /// Something else. `tried` bytes were read to find that out.
    Damage { tried: usize },
}

/// Reads the frame that begins with these bytes.
pub(super) fn first(bytes: &[u8]) -> Found {
    let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else {
        let begins = MARK.iter().zip(bytes).all(|(mark, byte)| mark == byte);
        return if begins { Found::Cut } else { Found::Damage { tried: 0 } };
    };
    let [m0, m1, m2, m3, l0, l1, l2, l3, s0, s1, s2, s3] = *head;
    let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    if [m0, m1, m2, m3] != MARK || !(PREFIX..=FRAME_BYTES_MAX).contains(&length) {
        return Found::Damage { tried: 0 };
    }
    let (Some(payload), Some(frame)) = (rest.get(..length), bytes.get(..HEAD + length)) else { return Found::Cut };
    if checksum(frame) != Some(u32::from_le_bytes([s0, s1, s2, s3])) {
        return Found::Damage { tried: length };
    }
    Row::from_payload(payload).map_or(Found::Damage { tried: length }, |row| Found::Row(row, HEAD + length))
}

/// Over everything but the mark and the checksum itself.
fn checksum(frame: &[u8]) -> Option<u32> {
    Some(crc32c::crc32c_append(crc32c::crc32c(frame.get(4..8)?), frame.get(HEAD..)?))
}
