//! The kubeconfig file of one `podium dev`: at the same path each time, so that a KUBECONFIG in another terminal
//! stays valid after a restart, with a separate file for each concurrent `dev`.
//!
//! The process holds a lock on its file. A file without a lock was left by a process that was killed.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use anyhow::{Context, bail};

/// The most concurrent `dev`s in one target directory.
const MAX_FILES: usize = 100;

/// A kubeconfig file that is removed when dropped.
#[derive(Debug)]
pub(super) struct KubeconfigFile {
    path: PathBuf,
    /// The kernel releases the lock when the process ends.
    _locked: File,
}

impl KubeconfigFile {
    /// Writes `text` to the first of `kubeconfig`, `kubeconfig-2`, .. that no other process uses, and removes those
    /// of killed processes.
    pub(super) fn write(directory: &Path, text: &str) -> anyhow::Result<Self> {
        fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
        let mut own = None;
        for index in 1..=MAX_FILES {
            let path = directory.join(if index == 1 { "kubeconfig".to_owned() } else { format!("kubeconfig-{index}") });
            let cannot = || format!("cannot write {}", path.display());
            if own.is_none() {
                let Some(mut file) = lock(&path, true).with_context(cannot)? else { continue };
                file.set_len(0).and_then(|()| file.write_all(text.as_bytes())).with_context(cannot)?;
                own = Some(Self { path, _locked: file });
            } else if lock(&path, false).is_ok_and(|file| file.is_some()) {
                // A file that cannot be removed refers to no server, and is harmless.
                let _ = fs::remove_file(&path);
            }
        }
        match own {
            Some(own) => Ok(own),
            None => bail!("{MAX_FILES} processes use {}", directory.display()),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for KubeconfigFile {
    fn drop(&mut self) {
        // See above.
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns the locked file, or `None` if another process holds its lock, or if the file does not exist and `create` is
/// false.
fn lock(path: &Path, create: bool) -> io::Result<Option<File>> {
    loop {
        let file = match File::options().read(true).write(true).create(create).truncate(false).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !create => return Ok(None),
            Err(error) => return Err(error),
        };
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // The previous owner may have removed it between open and lock; then this file has no name any more.
        match fs::metadata(path) {
            Ok(there) if there.ino() == file.metadata()?.ino() => return Ok(Some(file)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn concurrent_processes_remove_only_their_own_files() {
        let directory = tempfile::tempdir().unwrap();
        let first = KubeconfigFile::write(directory.path(), "first").unwrap();
        let second = KubeconfigFile::write(directory.path(), "second").unwrap();
        assert_ne!(first.path(), second.path());
        assert_eq!(fs::read_to_string(first.path()).unwrap(), "first");
        drop(first);
        assert_eq!(fs::read_to_string(second.path()).unwrap(), "second");
        drop(second);
        assert!(names(directory.path()).is_empty());
    }

    #[test]
    fn the_path_survives_a_restart_and_stale_files_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["kubeconfig", "kubeconfig-2", "kubeconfig-7"] {
            fs::write(directory.path().join(name), "a longer text of a process that was killed").unwrap();
        }
        let file = KubeconfigFile::write(directory.path(), "new").unwrap();
        assert_eq!(names(directory.path()), ["kubeconfig"]);
        assert_eq!(fs::read_to_string(file.path()).unwrap(), "new");
    }
}
