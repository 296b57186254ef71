//! `/statusz` and `/flagz` in the form of Kubernetes' components, and `/debug/log-level`, which shows the log filter
//! and changes it while the host runs.
//!
//! Source of the form: KEP-4827 and KEP-4828.

use std::{fmt::Write, sync::Arc};

use axum::{
    Router,
    extract::DefaultBodyLimit,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use podium_vocabulary::text;
use podium_wire::Timestamp;
use tokio::time::Instant;

use crate::telemetry::{COMMIT, Levels, VERSION};

/// The most bytes of a log filter.
const MOST_BYTES: usize = 4 << 10;

/// The process that the pages describe.
#[derive(Debug)]
pub struct Process {
    /// Each flag with its value, as `name=value`, by name.
    pub flags: Vec<String>,
    /// `None` if the log filter cannot be changed.
    pub levels: Option<Arc<Levels>>,
    /// The start in epoch milliseconds.
    pub started_millis: u64,
    /// The start.
    pub began: Instant,
}

/// Returns the routes, for clients that were admitted.
pub(super) fn routes(process: Arc<Process>) -> Router {
    let [of_status, of_flags, of_levels] = [process.clone(), process.clone(), process.clone()];
    let show = move || async move { shown(of_levels.levels.as_deref()) };
    let change = move |filter: String| async move { changed(process.levels.as_deref(), filter.trim()) };
    Router::new()
        .route("/statusz", get(move || async move { page("statusz", &of_status.status()) }))
        .route("/flagz", get(move || async move { page("flagz", &of_flags.flags()) }))
        .route("/debug/log-level", get(show).put(change).layer(DefaultBodyLimit::max(MOST_BYTES)))
}

impl Process {
    fn status(&self) -> String {
        let up = self.began.elapsed().as_secs();
        let hours = up / 3_600;
        let minutes = up / 60 % 60;
        let seconds = up % 60;
        let started = Timestamp(i64::try_from(self.started_millis).unwrap_or(i64::MAX));
        format!(
            "Started: {started}\nUp: {hours} hr {minutes:02} min {seconds:02} sec\nBinary version: {VERSION}\n\
             Commit: {COMMIT}\nPaths: /debug /flagz /metrics /statusz\n"
        )
    }

    fn flags(&self) -> String {
        self.flags.iter().fold(String::new(), |mut lines, flag| {
            // Text never fails.
            let _ = writeln!(lines, "{}", text::line(flag));
            lines
        })
    }
}

fn page(name: &str, body: &str) -> Response {
    let text = format!(
        "\npodium-host {name}\nWarning: This endpoint is not meant to be machine parseable, has no formatting \
         compatibility guarantees and is for debugging purposes only.\n\n{body}"
    );
    ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
}

fn shown(levels: Option<&Levels>) -> Response {
    match levels {
        Some(levels) => (StatusCode::OK, levels.filter() + "\n").into_response(),
        None => {
            (StatusCode::NOT_FOUND, "the logs of this process have no filter that can be changed\n").into_response()
        }
    }
}

fn changed(levels: Option<&Levels>, filter: &str) -> Response {
    let Some(levels) = levels else { return shown(None) };
    match levels.set(filter) {
        Ok(()) => shown(Some(levels)),
        Err(error) => (StatusCode::BAD_REQUEST, text::line(&error.to_string()) + "\n").into_response(),
    }
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, http::Request};
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;

    async fn answer(method: &str, path: &str, body: String) -> (StatusCode, String) {
        let flags = vec!["log-level=info".to_owned(), "strict=\u{1b}true".to_owned()];
        let process = Process { flags, levels: None, started_millis: 1_000, began: Instant::now() };
        let request = Request::builder().method(method).uri(path).body(Body::from(body)).unwrap();
        let answer = routes(Arc::new(process)).oneshot(request).await.unwrap();
        let status = answer.status();
        (status, String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().into()).unwrap())
    }

    #[tokio::test]
    async fn pages_have_the_form_of_kubernetes_components() {
        let (_, flags) = answer("GET", "/flagz", String::new()).await;
        assert!(flags.starts_with("\npodium-host flagz\nWarning: This endpoint"), "{flags}");
        assert!(flags.ends_with("only.\n\nlog-level=info\nstrict=\\u001btrue\n"), "{flags}");
        let (_, status) = answer("GET", "/statusz", String::new()).await;
        assert!(status.contains("\n\nStarted: 1970-01-01T00:00:01Z\nUp: 0 hr 00 min 00 sec\n"), "{status}");
    }

    #[tokio::test]
    async fn a_filter_that_is_too_long_or_cannot_be_changed_is_refused() {
        assert_eq!(answer("PUT", "/debug/log-level", "x".repeat(5_000)).await.0, StatusCode::PAYLOAD_TOO_LARGE);
        assert_eq!(answer("PUT", "/debug/log-level", "info".to_owned()).await.0, StatusCode::NOT_FOUND);
    }
}
