//! `/debug/pprof`: where the process and the guests of a plugin spend their time, in the format of pprof.
//!
//! One profile is taken at a time: each costs processor time, which no tenant pays for. A client that goes away ends
//! its profile.

mod encoding;

use std::{borrow::Cow, io, sync::Arc, time::Duration};

use axum::{
    Extension, Router,
    extract::RawQuery,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use futures::future::BoxFuture;
use percent_encoding::percent_decode_str;
use podium_runtime::Samples;
use podium_vocabulary::text;
use tokio::sync::Semaphore;

use super::server::Deadline;

/// The seconds of a profile without the parameter, as of Go's.
const SECONDS: u64 = 30;
const MOST_SECONDS: u64 = 120;
/// For the names of functions and the answer, after the profile.
const AFTERWARDS: Duration = Duration::from_secs(30);

const INDEX: &str = "/debug/pprof/profile?seconds=30               processor time of the process\n\
    /debug/pprof/guest?plugin=NAME&seconds=30     time of the guests of a plugin, NAMESPACE/NAME or NAME\n\
    /debug/pprof/heap                             not available\n\n\
    Read them with: go tool pprof FILE\n";
const NO_HEAP: &str = "there is no heap profile: the host's memory figures and limits rest on the system's allocator, \
    which records none; /metrics has the memory of the process and of plugins\n";
const BUSY: &str = "another profile is being taken; try again when it has ended\n";
const BAD_SECONDS: &str = "seconds must be a whole number from 1 to 120\n";
const BAD_PARAMETER: &str =
    "the parameters are seconds=NUMBER and, of /debug/pprof/guest only, plugin=NAME; each once\n";
const UNNAMED: &str = "name the plugin: ?plugin=NAMESPACE/NAME, or ?plugin=NAME of a ClusterReconcilePlugin\n";

/// Samples of a time.
#[derive(Debug)]
pub struct Profile {
    /// How often each stack was seen.
    pub samples: Samples,
    /// The time that one sample stands for.
    pub every: Duration,
    /// The time of the profile.
    pub took: Duration,
}

/// Why there is no profile.
#[derive(Debug)]
pub enum Unprofiled {
    /// The plugin is not configured.
    NoPlugin,
    /// The system or the host cannot take it.
    Failed(io::Error),
}

/// The process and the guests that can be sampled. Dropping a future ends its profile.
pub trait Profiles: Send + Sync {
    /// Samples the process.
    fn process(&self, time: Duration) -> BoxFuture<'_, Result<Profile, Unprofiled>>;
    /// Samples the guests of the plugin of this name, `shop/hello` or `hello`.
    fn guests(&self, plugin: String, time: Duration) -> BoxFuture<'_, Result<Profile, Unprofiled>>;
}

/// Returns the routes, for clients that were admitted.
pub(super) fn routes(profiles: Arc<dyn Profiles>) -> Router {
    let one = Arc::new(Semaphore::new(1));
    let [of_process, of_guests] = [(profiles.clone(), one.clone()), (profiles, one)];
    let process = move |Extension(deadline): Extension<Deadline>, RawQuery(query): RawQuery| async move {
        match parameters(query.as_deref().unwrap_or_default()) {
            Ok((time, None)) => taken(of_process, None, time, &deadline).await,
            Ok((_, Some(_))) => refused(StatusCode::BAD_REQUEST, BAD_PARAMETER),
            Err(refusal) => refused(StatusCode::BAD_REQUEST, refusal),
        }
    };
    let guests = move |Extension(deadline): Extension<Deadline>, RawQuery(query): RawQuery| async move {
        match parameters(query.as_deref().unwrap_or_default()) {
            Ok((time, Some(plugin))) => taken(of_guests, Some(plugin.into_owned()), time, &deadline).await,
            Ok((_, None)) => refused(StatusCode::BAD_REQUEST, UNNAMED),
            Err(refusal) => refused(StatusCode::BAD_REQUEST, refusal),
        }
    };
    Router::new()
        .route("/debug/pprof/", get(|| async { INDEX }))
        .route("/debug/pprof/profile", get(process))
        .route("/debug/pprof/guest", get(guests))
        .route("/debug/pprof/heap", get(|| async { refused(StatusCode::NOT_IMPLEMENTED, NO_HEAP) }))
}

/// Returns the time and the plugin that a query names.
fn parameters(query: &str) -> Result<(Duration, Option<Cow<'_, str>>), &'static str> {
    let mut time = None;
    let mut plugin = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("seconds", value)) if time.is_none() => {
                let seconds = value.parse().ok().filter(|seconds| (1..=MOST_SECONDS).contains(seconds));
                time = Some(seconds.ok_or(BAD_SECONDS)?);
            }
            Some(("plugin", value)) if plugin.is_none() => {
                plugin = Some(percent_decode_str(value).decode_utf8().map_err(|_| UNNAMED)?);
            }
            _ => return Err(BAD_PARAMETER),
        }
    }
    Ok((Duration::from_secs(time.unwrap_or(SECONDS)), plugin))
}

/// Returns a profile of a plugin, or of the process, unless another one is being taken.
async fn taken(
    (profiles, one): (Arc<dyn Profiles>, Arc<Semaphore>),
    plugin: Option<String>,
    time: Duration,
    deadline: &Deadline,
) -> Response {
    let Ok(_turn) = one.try_acquire() else { return refused(StatusCode::CONFLICT, BUSY) };
    deadline.extend(time + AFTERWARDS);
    let subject = plugin.as_deref().map_or_else(|| "the process".to_owned(), |plugin| format!("plugin {plugin}"));
    let subject = text::line(&subject);
    let profile = match plugin {
        Some(plugin) => profiles.guests(plugin, time).await,
        None => profiles.process(time).await,
    };
    match profile {
        Ok(profile) => {
            let samples: u64 = profile.samples.stacks().map(|(_, count)| count).sum();
            let comment = match samples {
                0 => format!("{subject}: no samples, because nothing of it ran"),
                _ => subject,
            };
            let headers = [
                (header::CONTENT_TYPE.as_str(), "application/octet-stream".to_owned()),
                (SAMPLES_HEADER, samples.to_string()),
            ];
            (headers, encoding::encoded(&profile, comment)).into_response()
        }
        Err(Unprofiled::NoPlugin) => refused(StatusCode::NOT_FOUND, &format!("no {subject} is configured\n")),
        Err(Unprofiled::Failed(error)) => {
            let (status, why) = match error.kind() {
                io::ErrorKind::ResourceBusy => (StatusCode::CONFLICT, BUSY.to_owned()),
                io::ErrorKind::Unsupported => {
                    (StatusCode::NOT_IMPLEMENTED, "this build of the host cannot take this profile\n".to_owned())
                }
                _ => (StatusCode::INTERNAL_SERVER_ERROR, format!("the profile cannot be taken: {error}\n")),
            };
            refused(status, &why)
        }
    }
}

/// The header with the number of samples of a profile.
pub const SAMPLES_HEADER: &str = "podium-samples";

fn refused(status: StatusCode, why: &str) -> Response {
    (status, why.to_owned()).into_response()
}

#[cfg(test)]
mod tests;
