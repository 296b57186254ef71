//! Files and directories that only the host's user can read and write. Everything here blocks.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "opens and creates the host's own files, whose paths come from the application"
)]

use std::{
    fs::{self, DirBuilder, File, OpenOptions, Permissions},
    io::{self, ErrorKind, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    time::SystemTime,
};

use podium_vocabulary::text;
use rustix::{
    fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, futimens},
    process::geteuid,
};

/// Why a file is not used. The text follows the file's path.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// It cannot be read.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is a directory, a pipe or a device.
    #[error("is not a regular file")]
    NotRegular,
    /// It belongs to another user.
    #[error("belongs to another user")]
    Foreign,
    /// Others can read or write it; its mode.
    #[error("has mode {0:o}, which lets others read or write it")]
    Open(u32),
    /// It is too long; its length in bytes.
    #[error("is {0} bytes long, which is too long")]
    Length(u64),
}

/// Opens a file for reading that is no symbolic link; on a pipe it does not wait.
///
/// # Errors
/// Those of the system.
pub fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)
}

/// Reads a whole file of at most `limit` bytes, and marks it as used. Returns `None` if there is no file.
pub fn read(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, Unusable> {
    let file = match open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let length = length(&file)?;
    if length > limit {
        return Err(Unusable::Length(length));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
    (&file).take(limit).read_to_end(&mut bytes)?;
    touch(&file);
    Ok(Some(bytes))
}

/// Creates a file that only the host's user can read and write. Fails if there is one.
pub fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW).open(path)
}

/// Suffix of a file that [`replace`] is writing.
pub const NEXT: &str = "next";

/// Writes a file as a whole, in place of one of the path; also to the disk if `is_synced`. One call of a path at a
/// time.
///
/// # Errors
/// Those of the disk. Then the file is the one before.
pub fn replace(path: &Path, parts: &[&[u8]], is_synced: bool) -> io::Result<()> {
    let next = path.with_extension(NEXT);
    remove(&next)?;
    let written = create(&next).and_then(|mut file| {
        parts.iter().try_for_each(|part| file.write_all(part))?;
        if is_synced {
            file.sync_all()?;
        }
        fs::rename(&next, path)
    });
    written.inspect_err(|_| {
        let _ = fs::remove_file(&next);
    })
}

/// Removes a file, if there is one.
///
/// # Errors
/// Those of the disk.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A regular file of a directory.
#[derive(Debug)]
pub struct Entry {
    /// Its path.
    pub path: PathBuf,
    /// The time of its last use, see [`touch`].
    pub used: SystemTime,
    /// Its length.
    pub bytes: u64,
}

/// Returns the regular files of a directory.
///
/// # Errors
/// Those of the disk.
pub fn entries(directory: &Path) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = match entry.metadata() {
            // It is gone since.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            metadata => metadata?,
        };
        if metadata.is_file() {
            entries.push(Entry { path: entry.path(), used: metadata.modified()?, bytes: metadata.len() });
        }
    }
    Ok(entries)
}

/// Returns the length of a regular file. Fails if another user owns it, or can read or write it.
fn length(file: &File) -> Result<u64, Unusable> {
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(Unusable::NotRegular);
    }
    if metadata.uid() != geteuid().as_raw() {
        return Err(Unusable::Foreign);
    }
    let mode = metadata.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(Unusable::Open(mode));
    }
    Ok(metadata.len())
}

/// Makes a directory that only the host's user can enter. A directory that is open to others is closed to them; the
/// caller verifies files, which others may have put into it before.
pub fn directory(directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(directory) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        made => return made,
    }
    let metadata = fs::symlink_metadata(directory)?;
    if !metadata.is_dir() || metadata.uid() != geteuid().as_raw() {
        let reason = format!("{} is no directory of this user", text::path(directory));
        return Err(io::Error::new(ErrorKind::PermissionDenied, reason));
    }
    if metadata.mode() & 0o077 != 0 {
        tracing::warn!(directory = text::path(directory), "the directory was open to others; closed to them");
        fs::set_permissions(directory, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Sets the time of the file's last use, by which old files are removed first. If it cannot be set, the file counts as
/// old.
pub fn touch(file: &File) {
    let unchanged = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let _ = futimens(file, &Timestamps { last_access: unchanged, last_modification: now });
}
