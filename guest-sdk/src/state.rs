//! A small key-value store of the plugin, shared by all its runs, with compare-and-swap.
//!
//! Puts take effect at once and survive a panic. Values may be lost (with the host, or if the plugin exceeds its
//! quota, oldest first): data that must last belongs on the object. A value that cannot be deserialized as `T`,
//! because an older build of the plugin wrote it, counts as lost.
//!
//! Values are stored as JSON, which names its fields: a build with another type finds fields missing instead of
//! misinterpreting bytes. Fields that a new build adds need `#[serde(default)]` if old values should stay readable; a
//! field whose meaning changes needs a new name, or the value a new key.

use serde::{Serialize, de::DeserializeOwned};

use crate::{CallError, Error, Result, ResultExt, host, log};

/// The attempts of [`update`] before it leaves the rest to a retry of the run.
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

/// Why the host refused to put or remove a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum PutError {
    Conflict(Option<Entry<Vec<u8>>>),
    Other(CallError),
}

/// Returns the value of a key.
///
/// # Errors
/// Returns an error if the run's budget is used up. The same applies to all functions below.
pub fn get<T: DeserializeOwned>(key: &str) -> Result<Option<T>> {
    Ok(entry(key)?.map(|entry| entry.value))
}

/// Returns the value of a key with its version, for [`put_if`].
///
/// # Errors
/// See [`get`].
pub fn entry<T: DeserializeOwned>(key: &str) -> Result<Option<Entry<T>>> {
    Ok(host::state_get(key).map_err(refused("state::get", key))?.and_then(|entry| typed(key, entry)))
}

/// Stores a value regardless of the present one.
///
/// # Errors
/// See [`get`]. Also returns an error if the value has no JSON form, such as a map whose keys are structs, or exceeds
/// the plugin's quota.
pub fn put<T: Serialize>(key: &str, value: &T) -> Result<()> {
    match host::state_put(key, &json(value)?, None) {
        Ok(_) => Ok(()),
        Err(error) => Err(failed("state::put", key, error)),
    }
}

/// Stores a value if the present version is `expected`; 0 stands for an absent key. Returns false if it is not; then
/// read the [`entry`] again, or use [`update`].
///
/// # Errors
/// See [`put`].
pub fn put_if<T: Serialize>(key: &str, value: &T, expected: u64) -> Result<bool> {
    swapped("state::put", key, host::state_put(key, &json(value)?, Some(expected)).map(drop))
}

/// Computes a new value from the present one and stores it. `change` may be called more than once, if other runs
/// change the value at the same time. Returns the new value.
///
/// # Errors
/// See [`put`]. Also returns an error if other runs changed the value at every attempt.
pub fn update<T: Serialize + DeserializeOwned>(key: &str, mut change: impl FnMut(Option<T>) -> T) -> Result<T> {
    let mut raw = host::state_get(key).map_err(refused("state::get", key))?;
    for _ in 0..UPDATE_ATTEMPTS {
        // The version is that of the stored bytes, even if they are not a `T`.
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

/// Removes a key regardless of its value.
///
/// # Errors
/// See [`get`].
pub fn remove(key: &str) -> Result<()> {
    host::state_remove(key, None).map_err(|error| failed("state::remove", key, error))
}

/// Removes a key if the present version is `expected`. Returns false if it is not.
///
/// # Errors
/// See [`get`].
pub fn remove_if(key: &str, expected: u64) -> Result<bool> {
    swapped("state::remove", key, host::state_remove(key, Some(expected)))
}

/// Encodes a value. The error is terminal, because a retry on the same data would fail as well.
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
    move |refused| Error::from_refused(format_args!("{call} {key:?}"), refused)
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
