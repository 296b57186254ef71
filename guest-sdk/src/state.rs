//! A small memory of the plugin, shared by all its runs, with compare-and-swap.
//!
//! It acts at once and survives a panic. It is a memo that may vanish (with the host, or when the plugin exceeds its
//! share, oldest first): what must last belongs on the object. So also a value that cannot be read as `T` any more,
//! because an older build of the plugin wrote it, counts as vanished.
//!
//! Values are stored as JSON, which names its fields: a build with another type finds them missing, not their bytes
//! read as something else. Fields that a new build adds need `#[serde(default)]`, if the value is to outlive the swap;
//! a field that keeps its name and type but changes its meaning needs a new name, or the value a new key.

use serde::{Serialize, de::DeserializeOwned};

use crate::{CallError, Error, Result, ResultExt, host, log};

/// How often [`update`] tries before it leaves the rest to a retry of the run.
const UPDATE_ATTEMPTS: u32 = 16;

/// A value and its version.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry<T> {
    /// The value.
    pub value: T,
    /// Grows with every put to the key; never 0.
    pub version: u64,
}

/// Why the host did not put or remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PutError {
    Conflict(Option<Entry<Vec<u8>>>),
    Other(CallError),
}

/// The value of a key.
///
/// # Errors
/// Where the run's budget is used up; so for all below.
pub fn get<T: DeserializeOwned>(key: &str) -> Result<Option<T>> {
    Ok(entry(key)?.map(|entry| entry.value))
}

/// The value of a key with its version, for [`put_if`].
///
/// # Errors
/// As [`get`].
pub fn entry<T: DeserializeOwned>(key: &str) -> Result<Option<Entry<T>>> {
    Ok(host::state_get(key).map_err(refused("state::get", key))?.and_then(|entry| typed(key, entry)))
}

/// Puts a value, whatever was there.
///
/// # Errors
/// As [`get`]; and where the value is none of JSON, such as a map whose keys are structs, or exceeds the plugin's
/// share.
pub fn put<T: Serialize>(key: &str, value: &T) -> Result<()> {
    match host::state_put(key, &json(value)?, None) {
        Ok(_) => Ok(()),
        Err(error) => Err(failed("state::put", key, error)),
    }
}

/// Puts a value if the version there is still `expected`; 0 stands for an absent key. Returns whether it did; if not,
/// read the [`entry`] again, or let [`update`] do so.
///
/// # Errors
/// As [`put`].
pub fn put_if<T: Serialize>(key: &str, value: &T, expected: u64) -> Result<bool> {
    swapped("state::put", key, host::state_put(key, &json(value)?, Some(expected)).map(drop))
}

/// Makes a new value from the old one, also when other runs do the same at the same time: `change` may be called more
/// than once. Returns the new value.
///
/// # Errors
/// As [`put`]; and where other runs were faster again and again.
pub fn update<T: Serialize + DeserializeOwned>(key: &str, mut change: impl FnMut(Option<T>) -> T) -> Result<T> {
    let mut raw = host::state_get(key).map_err(refused("state::get", key))?;
    for _ in 0..UPDATE_ATTEMPTS {
        // The version is that of the bytes there, also where they are no `T` any more.
        let version = raw.as_ref().map_or(0, |entry| entry.version);
        let value = change(raw.and_then(|entry| typed(key, entry)).map(|entry| entry.value));
        match host::state_put(key, &json(&value)?, Some(version)) {
            Ok(_) => return Ok(value),
            Err(PutError::Conflict(there)) => raw = there,
            Err(error) => return Err(failed("state::put", key, error)),
        }
    }
    Err(Error::retry(format_args!("state::update {key:?}: other runs were faster {UPDATE_ATTEMPTS} times")))
}

/// Removes a key, whatever is there.
///
/// # Errors
/// As [`get`].
pub fn remove(key: &str) -> Result<()> {
    host::state_remove(key, None).map_err(|error| failed("state::remove", key, error))
}

/// Removes a key if the version there is still `expected`. Returns whether it did.
///
/// # Errors
/// As [`get`].
pub fn remove_if(key: &str, expected: u64) -> Result<bool> {
    swapped("state::remove", key, host::state_remove(key, Some(expected)))
}

/// A value that cannot be encoded now cannot be by running again on the same data.
fn json<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value).terminal("state: the value cannot be stored as JSON")
}

fn typed<T: DeserializeOwned>(key: &str, entry: Entry<Vec<u8>>) -> Option<Entry<T>> {
    match serde_json::from_slice(&entry.value) {
        Ok(value) => Some(Entry { value, version: entry.version }),
        Err(error) => {
            log::debug(
                "a value of the state is of another type and counts as absent",
                &[("key", &key), ("error", &error)],
            );
            None
        }
    }
}

fn refused(call: &str, key: &str) -> impl FnOnce(CallError) -> Error {
    move |refused| Error::from_refused(format_args!("{call} {key:?}"), "state", refused)
}

fn swapped(call: &str, key: &str, swapped: Result<(), PutError>) -> Result<bool> {
    match swapped {
        Ok(()) => Ok(true),
        Err(PutError::Conflict(_)) => Ok(false),
        Err(error) => Err(failed(call, key, error)),
    }
}

fn failed(call: &str, key: &str, error: PutError) -> Error {
    match error {
        PutError::Other(reason) => refused(call, key)(reason),
        PutError::Conflict(_) => Error::retry(format_args!("{call} {key:?}: changed at the same time")),
    }
}
