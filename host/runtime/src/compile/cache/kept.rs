//! Files of the host beside the directory of compiled code, trusted only if their MAC is right, as compiled code is.

use std::io;

use podium_engine::private_file;
use podium_vocabulary::text;
use ring::hmac;

use super::{Cache, MAC_BYTES, Unusable};

/// Unlike the beginning of a file of compiled code, so that neither is taken for the other.
const MAGIC: &[u8] = b"podium\0k";
const MAX_BYTES: u64 = 64 << 20;

impl Cache {
    /// Stores bytes, which replace those of the name. One call of a name at a time.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn keep(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.directory.with_file_name(name);
        let mac = hmac::sign(&self.key, &authenticated(name, bytes));
        private_file::replace(&path, &[bytes, mac.as_ref()], true)
    }

    /// Removes the bytes of the name, if there are any.
    ///
    /// # Errors
    /// Those of the disk.
    pub fn forget(&self, name: &str) -> io::Result<()> {
        private_file::remove(&self.directory.with_file_name(name))
    }

    /// Returns the bytes that this host stored under the name, if it did.
    ///
    /// # Errors
    /// Returns the path with the reason why the file cannot be used.
    pub fn kept(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        let path = self.directory.with_file_name(name);
        let unusable = |unusable: Unusable| format!("{} {unusable}", text::path(&path));
        let read = private_file::read(&path, MAX_BYTES).map_err(|error| unusable(error.into()))?;
        let Some(mut bytes) = read else { return Ok(None) };
        let end = bytes.len().checked_sub(MAC_BYTES);
        let mac = bytes.split_off(end.ok_or_else(|| unusable(Unusable::Length(bytes.len() as u64)))?);
        let verified = hmac::verify(&self.key, &authenticated(name, &bytes), &mac);
        verified.map_err(|_| unusable(Unusable::NotAuthentic))?;
        Ok(Some(bytes))
    }
}

fn authenticated(name: &str, bytes: &[u8]) -> Vec<u8> {
    [MAGIC, name.as_bytes(), b"\0", bytes].concat()
}
