//! Makes the spool durable, off the runtime's thread: flash can take long.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use parallax_decide::observation::Lane;

use super::boot::{Boot, BootId};
use super::cursor::Cursor;
use super::{Spool, Writer, disk, segment};

/// What is to be done.
#[derive(Debug)]
pub struct SyncWork {
    files: Vec<File>,
    folders: Vec<PathBuf>,
    cursors: Vec<(BootId, Cursor)>,
}

/// What came of it, to be given back to the spool.
#[derive(Debug)]
pub struct Synced {
    files: io::Result<()>,
    /// Folders that could not be synced: to be tried again.
    folders: Vec<PathBuf>,
    /// Whether somebody deleted a file that is being written.
    gone: bool,
    cursors: Vec<(BootId, Cursor, io::Result<()>)>,
}

impl SyncWork {
    /// Does it. May take as long as the disk likes.
    #[must_use]
    pub fn run(self) -> Synced {
        let mut gone = false;
        let sync = |file: File| {
            gone |= file.metadata().is_ok_and(|data| data.nlink() == 0);
            disk::fault(disk::Step::Sync).and_then(|()| file.sync_data())
        };
        // One that is gone has nothing left to be made durable.
        let mut left = Vec::new();
        let folder = |path: PathBuf| match disk::sync_folder(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            synced => {
                if synced.is_err() {
                    left.push(path);
                }
                synced
            }
        };
        let cursor = |(boot, cursor): (BootId, Cursor)| {
            let written = cursor.write(true);
            (boot, cursor, written)
        };
        // All are tried; the first error tells.
        let files = self.files.into_iter().map(sync).fold(Ok(()), Result::and);
        let folders = self.folders.into_iter().map(folder).fold(Ok(()), Result::and);
        Synced {
            files: files.and(folders),
            folders: left,
            gone,
            cursors: self.cursors.into_iter().map(cursor).collect(),
        }
    }
}

impl Spool {
    /// Work that makes everything appended so far durable, and writes the cursors that changed;
    /// `None` when there is none. What comes of it goes to [`Self::synced`].
    pub fn sync_work(&mut self) -> Option<SyncWork> {
        let mut files = std::mem::take(&mut self.closed);
        for lane in Lane::ALL {
            if let Some(writer) = self.writers.of_mut(lane)
                && std::mem::take(&mut writer.unsynced)
            {
                // Short of file handles: next time.
                match writer.file.try_clone() {
                    Ok(file) => files.push(file),
                    Err(_) => writer.unsynced = true,
                }
            }
        }
        // What was dropped must be written down as lost before a cursor says that it is done with.
        let cursor = |boot: &Boot| Some((boot.id, boot.cursor().filter(|_| !self.owes_word(boot.id))?));
        let mut cursors: Vec<(BootId, Cursor)> = self.earlier.iter().filter_map(cursor).collect();
        if self.attached {
            cursors.extend(cursor(&self.running));
        }
        let folders = std::mem::take(&mut self.folders);
        let nothing = files.is_empty() && folders.is_empty() && cursors.is_empty();
        (!nothing).then_some(SyncWork { files, folders, cursors })
    }

    /// Takes what came of the work. Segments are deleted here, once a cursor on disk says that they
    /// are done with.
    pub fn synced(&mut self, synced: Synced) {
        if let Err(error) = &synced.files {
            // After a failed fsync the kernel takes the pages for written (fsync(2)): whether they are
            // is found when they are read. Nothing more is written to these files.
            tracing::warn!(folder = %self.root.display(), %error, "the spool cannot be made durable; a new segment is begun, and a power cut would lose the newest observations; {}", super::health::remedy(error));
            self.failed(error);
        }
        if synced.gone {
            tracing::warn!(folder = %self.root.display(), "somebody deleted a segment of the spool that was being written; a new one is begun");
        }
        if synced.gone || synced.files.is_err() {
            // What was written since this work was taken is still to be made durable, each file by itself.
            for lane in Lane::ALL {
                if let Some(Writer { file, unsynced: true, .. }) = self.writers.of_mut(lane).take() {
                    self.closed.push(file);
                }
            }
        }
        for folder in synced.folders {
            if !self.folders.contains(&folder) {
                self.folders.push(folder);
            }
        }
        for (id, cursor, outcome) in synced.cursors {
            if let Some(boot) = self.earlier.iter_mut().chain([&mut self.running]).find(|boot| boot.id == id) {
                match outcome {
                    Ok(()) => boot.cursor_written(Some(cursor.acked)),
                    Err(error) => {
                        tracing::debug!(boot = %id, %error, "a cursor of the spool cannot be written; tried again")
                    }
                }
            }
        }
        self.delete_acknowledged();
    }

    /// Deletes segments that a cursor on disk says are done with.
    fn delete_acknowledged(&mut self) {
        let running = self.running.id;
        for boot in self.earlier.iter_mut().chain([&mut self.running]) {
            for lane in Lane::ALL {
                let up_to = boot.deletable(lane);
                let log = boot.logs.of_mut(lane);
                // The segment being written stays: it has room for the next rows.
                while log.segments.front().is_some_and(|segment| segment.last <= up_to)
                    && !(boot.id == running && log.segments.len() == 1)
                {
                    if let Some(segment) = log.drop_front() {
                        disk::remove_file(&segment::path(&boot.folder, lane, segment.first));
                    }
                }
            }
        }
        self.forget_empty();
    }

    /// Deletes what is done with at once, for want of room. The cursors are written first, but may be
    /// lost in a power cut: then rows are taken for lost that were stored.
    pub(super) fn delete_done(&mut self) {
        let owing: Vec<BootId> =
            self.earlier.iter().map(|boot| boot.id).chain([self.running.id]).filter(|id| self.owes_word(*id)).collect();
        for boot in self.earlier.iter_mut().chain([&mut self.running]) {
            if !owing.contains(&boot.id)
                && let Some(cursor) = boot.cursor()
                && cursor.write(false).is_ok()
            {
                boot.cursor_written(Some(cursor.acked));
            }
        }
        self.delete_acknowledged();
    }

    /// Makes everything durable now, losses included.
    pub fn sync(&mut self) {
        self.write_losses();
        if let Some(work) = self.sync_work() {
            let synced = work.run();
            self.synced(synced);
        }
    }
}
