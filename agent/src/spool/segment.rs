//! One segment file: frames, each with its length and checksum.

use std::fs::File;
use std::io::{self, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use super::disk::sync_folder;

/// Largest payload of a frame, in bytes. An observation has a few hundred; a length above this is
/// damage, and must not make us reserve memory.
pub const FRAME_BYTES_MAX: usize = 64 << 10;

/// Length and checksum.
const HEAD: usize = 8;

/// Sequence number and time before the observation.
const PREFIX: usize = 16;

/// One stored observation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Its number within its boot.
    pub sequence: u64,
    /// When its probe ended, in ms of the boot-time clock.
    pub ended_ms: u64,
    /// The encoded observation, without number and age.
    pub observation: Vec<u8>,
}

/// What is known of a segment file.
#[derive(Debug)]
pub struct Segment {
    /// The file.
    pub path: PathBuf,
    /// Its first sequence number.
    pub first: u64,
    /// Its last sequence number; `first - 1` while it is empty.
    pub last: u64,
    /// Bytes of whole frames in it.
    pub bytes: u64,
}

/// Why a frame was not appended.
#[derive(Debug)]
pub struct NotAppended {
    /// What the disk said.
    pub error: io::Error,
    /// Half of the frame stays behind: nothing may be appended to this file any more.
    pub torn: bool,
}

/// A row as a frame.
///
/// # Errors
/// When it is larger than [`FRAME_BYTES_MAX`].
pub fn frame(row: &Row) -> io::Result<Vec<u8>> {
    let length = PREFIX + row.observation.len();
    if length > FRAME_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("an observation of {length} bytes")));
    }
    let mut payload = Vec::with_capacity(length);
    payload.extend(row.sequence.to_le_bytes());
    payload.extend(row.ended_ms.to_le_bytes());
    payload.extend(&row.observation);
    let mut frame = Vec::with_capacity(HEAD + length);
    // Fits: checked against FRAME_BYTES_MAX above.
    frame.extend(u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    frame.extend(crc32c::crc32c(&payload).to_le_bytes());
    frame.extend(payload);
    Ok(frame)
}

impl Segment {
    /// Makes a new, empty segment file, open for appending.
    ///
    /// # Errors
    /// What the disk said; no file is left behind then.
    pub fn create(folder: &Path, first: u64) -> io::Result<(Self, File)> {
        let path = folder.join(format!("{first:020}.segment"));
        let file = File::options().append(true).create_new(true).open(&path)?;
        sync_folder(folder).inspect_err(|_| remove_file(&path))?;
        Ok((Self { path, first, last: first.saturating_sub(1), bytes: 0 }, file))
    }

    /// Reads a segment of an earlier boot and cuts off a torn tail; `None` when nothing is left.
    ///
    /// # Errors
    /// What the disk said. Nothing is cut off then: what cannot be read now may be whole.
    pub fn recover(path: &Path) -> io::Result<Option<Self>> {
        let size = std::fs::metadata(path)?.len();
        let mut reader = Reader { file: BufReader::new(File::open(path)?), offset: 0, end: size };
        let (mut first, mut last) = (None, 0);
        let damage = loop {
            match reader.next_row() {
                Some(Ok(row)) if row.sequence > last => {
                    first.get_or_insert(row.sequence);
                    last = row.sequence;
                }
                Some(Ok(_)) => break Some("its numbers do not rise".to_owned()),
                Some(Err(error)) if is_damage(&error) => break Some(error.to_string()),
                Some(Err(error)) => return Err(error),
                None => break None,
            }
        };
        let bytes = reader.offset;
        if let Some(damage) = damage {
            tracing::warn!(file = %path.display(), %damage, kept = bytes, cut = size - bytes.min(size), "the end of a segment is cut off");
            File::options().write(true).open(path)?.set_len(bytes)?;
        }
        Ok(first.map(|first| Self { path: path.to_owned(), first, last, bytes }))
    }

    /// Appends a frame whole, or not at all.
    ///
    /// # Errors
    /// What the disk said; what was written of the frame is taken back if the disk lets us.
    pub fn append(&mut self, file: &mut File, frame: &[u8], sequence: u64) -> Result<(), NotAppended> {
        if let Err(error) = file.write_all(frame) {
            let taken_back = file.set_len(self.bytes);
            if let Err(also) = &taken_back {
                tracing::warn!(file = %self.path.display(), error = %also, "half a frame stays in the spool; reading stops there");
            }
            return Err(NotAppended { error, torn: taken_back.is_err() });
        }
        self.bytes += frame.len() as u64;
        self.last = sequence;
        Ok(())
    }

    /// Reads from an offset where a frame begins.
    ///
    /// # Errors
    /// What the disk said.
    pub fn reader(&self, offset: u64) -> io::Result<Reader> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(offset))?;
        Ok(Reader { file: BufReader::new(file), offset, end: self.bytes })
    }

    /// Deletes the file.
    pub fn remove(self) {
        remove_file(&self.path);
    }
}

/// Whether a frame itself is wrong, or cut short; anything else is the disk's trouble.
fn is_damage(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

/// Deletes a file; one that cannot be deleted is named, and found again at the next start.
pub fn remove_file(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        tracing::warn!(file = %path.display(), %error, "cannot delete a segment of the spool that is done with");
    }
}

/// Reads frames one after another.
#[derive(Debug)]
pub struct Reader {
    file: BufReader<File>,
    /// Where the next frame begins.
    pub offset: u64,
    end: u64,
}

impl Reader {
    /// The next row; `None` at the end. After an error nothing more can be read.
    pub fn next_row(&mut self) -> Option<io::Result<Row>> {
        if self.offset >= self.end {
            return None;
        }
        let row = self.read_row();
        if let Ok(row) = &row {
            self.offset += (HEAD + PREFIX + row.observation.len()) as u64;
        }
        Some(row)
    }

    fn read_row(&mut self) -> io::Result<Row> {
        let damaged = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let length = self.read_number()? as usize;
        let sum = self.read_number()?;
        if !(PREFIX..=FRAME_BYTES_MAX).contains(&length) {
            return Err(damaged("a frame has an impossible length"));
        }
        let mut payload = vec![0; length];
        self.file.read_exact(&mut payload)?;
        if crc32c::crc32c(&payload) != sum {
            return Err(damaged("a frame's checksum does not fit"));
        }
        let (Some((sequence, rest)), true) = (payload.split_first_chunk::<8>(), length >= PREFIX) else {
            return Err(damaged("a frame is too short"));
        };
        let Some((ended_ms, observation)) = rest.split_first_chunk::<8>() else {
            return Err(damaged("a frame is too short"));
        };
        Ok(Row {
            sequence: u64::from_le_bytes(*sequence),
            ended_ms: u64::from_le_bytes(*ended_ms),
            observation: observation.to_vec(),
        })
    }

    fn read_number(&mut self) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.file.read_exact(&mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }
}
