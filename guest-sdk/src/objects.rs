//! Reads of objects that are not Pods, from the API server, and their replicas.

use serde::de::DeserializeOwned;

use crate::{Error, ObjectRef, Result, WriteId, host};

/// Reads an object of a granted kind with the rights of the plugin's ServiceAccount and waits for the response: as a
/// [`Value`](serde_json::Value), or as a type of yours. `None` if there is no such object. Needs the grant
/// `read.objects`, and shares the budget of [`pods::get_live`](crate::pods::get_live).
///
/// ```
/// # use podium_sdk::{ObjectRef, Result, Value, objects};
/// # fn example() -> Result<()> {
/// let job = ObjectRef::new("batch/v1", "Job", "shop", "migrate");
/// let job: Option<Value> = objects::get(&job)?;
/// let has_succeeded = job.is_some_and(|job| job["status"]["succeeded"] == 1);
/// # Ok(()) }
/// ```
///
/// # Errors
/// Returns an error if the kind is not granted, the object is in another namespace than a namespaced plugin, the budget
/// is used up, or the API server does not answer. Returns a terminal error that names the field if the object is not a
/// `T`, and one for an object of more than 256 KiB.
pub fn get<T: DeserializeOwned>(object: &ObjectRef) -> Result<Option<T>> {
    let refused = |refused| Error::from_refused(format_args!("get {object}"), refused);
    let Some(json) = host::get_object(object).map_err(refused)? else { return Ok(None) };
    let mut json = serde_json::Deserializer::from_str(&json);
    serde_path_to_error::deserialize(&mut json)
        .map(Some)
        .map_err(|error| Error::terminal(format_args!("{object}: {}: {}", error.path(), error.inner())))
}

/// Sets the replicas of an object of a granted kind, such as a Deployment, and changes nothing else of it: a staged
/// write like those of [`writes`](crate::writes). Its result is `Conflict` if another client changes the object
/// meanwhile.
/// Grant: `write.scale`.
///
/// # Errors
/// See [`writes::set_label`](crate::writes::set_label).
pub fn scale(object: &ObjectRef, replicas: u32) -> Result<WriteId> {
    host::scale(object, replicas).map_err(|refused| Error::from_refused(format_args!("scale {object}"), refused))
}
