//! Reads files that another process may have put there: only regular files, up to a limit, without blocking on a
//! pipe.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// Why a file was not read. The message follows the file's path.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The operating system's error.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
    /// A directory, a device or a pipe, or a symbolic link to one.
    #[error("is not a regular file")]
    NotRegular,
    /// Longer than the caller's limit.
    #[error("is {bytes} bytes long; at most {limit} are read")]
    TooLarge {
        /// The file's length.
        bytes: u64,
        /// The caller's limit.
        limit: u64,
    },
}

/// Reads a regular file of at most `limit` bytes. Symbolic links are followed. The size is checked before anything is
/// read, and again while it is read, because the file may grow.
///
/// # Errors
/// See [`FileError`].
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>, FileError> {
    let file = open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(FileError::NotRegular);
    }
    let too_large = |bytes| FileError::TooLarge { bytes, limit };
    if metadata.len() > limit {
        return Err(too_large(metadata.len()));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default());
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 {
        read if read > limit => Err(too_large(read)),
        _ => Ok(bytes),
    }
}

/// Opening a pipe for reading would wait for a writer; with `O_NONBLOCK` it does not. Regular files ignore the flag.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink, process::Command, sync::mpsc, thread, time::Duration};

    use super::*;

    #[test]
    fn only_a_regular_file_within_the_limit_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        fs::write(path("file"), "12345").unwrap();
        symlink(path("file"), path("link")).unwrap();
        symlink("/dev/zero", path("endless")).unwrap();
        assert!(Command::new("mkfifo").arg(path("pipe")).status().unwrap().success());
        // More than the machine's memory, so a test would notice if it were read or allocated.
        const SPARSE: u64 = 8 << 40;
        File::create(path("sparse")).unwrap().set_len(SPARSE).unwrap();

        assert_eq!(read(&path("file"), 5).unwrap(), b"12345");
        assert_eq!(read(&path("link"), 5).unwrap(), b"12345");
        assert!(matches!(read(&path("file"), 4), Err(FileError::TooLarge { bytes: 5, limit: 4 })));
        assert!(matches!(read(&path("sparse"), 1 << 20), Err(FileError::TooLarge { bytes: SPARSE, .. })));
        for special in ["endless", "pipe", ""] {
            let (path, (sender, answer)) = (path(special), mpsc::channel());
            // In its own thread, because opening a pipe waits for a writer that never comes.
            thread::spawn(move || sender.send(read(&path, 5)));
            let answer = answer.recv_timeout(Duration::from_secs(30));
            assert!(matches!(answer, Ok(Err(FileError::NotRegular))), "{special:?}: {answer:?}");
        }
        assert!(matches!(read(&path("none"), 5), Err(FileError::Io(_))));
    }
}
