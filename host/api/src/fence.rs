//! The end of the host's right to write: a request that changes something is sent only while the right lasts, and ends
//! with it.
//!
//! A request that the API server has received and not read yet takes effect when the server goes on, also after that
//! end. It ends with its connection in most cases, but not in all of them.

use std::{sync::Arc, time::Duration};

use http::{HeaderValue, Request, Uri, header::USER_AGENT, uri::PathAndQuery};
use podium_vocabulary::Tenant;
use tokio::time::Instant;

use crate::{ApiError, Deadline, user_agent};

/// The longest time in which the API server may execute a write.
const SERVER_TIMEOUT: Duration = Duration::from_secs(5);
/// The least time in which a write is begun.
const LEAST: Duration = Duration::from_millis(500);

/// The right to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Permit {
    /// How long it lasts.
    pub left: Duration,
    /// The number of the term, which the User-Agent of each write names.
    pub term: u64,
}

/// Returns the right to write for a tenant at this moment, or for any one without a tenant; `None` without the right.
pub type Fence = Arc<dyn Fn(Option<&Tenant>) -> Option<Permit> + Send + Sync>;

/// Returns a write as it may be sent now, and the time at which it ends.
///
/// # Errors
/// Returns an error if it must not be sent.
pub(super) fn pass(
    permit: Option<Permit>,
    mut request: Request<Vec<u8>>,
    deadline: Deadline,
) -> Result<(Request<Vec<u8>>, Deadline), ApiError> {
    let not_sent = |message: String| ApiError::Transport { sent: false, message };
    let Some(Permit { left, term }) = permit.filter(|permit| permit.left >= LEAST) else {
        return Err(not_sent("not sent: this host does not hold the Lease, or will not for long enough".to_owned()));
    };
    let timeout = left.min(SERVER_TIMEOUT).as_millis();
    *request.uri_mut() = with_timeout(request.uri(), timeout).map_err(|error| not_sent(error.to_string()))?;
    let agent = request.headers().get(USER_AGENT).and_then(|agent| agent.to_str().ok());
    let agent = format!("{} term/{term}", agent.map_or_else(user_agent, str::to_owned));
    let agent = HeaderValue::try_from(agent).map_err(|error| not_sent(error.to_string()))?;
    request.headers_mut().insert(USER_AGENT, agent);
    let at = deadline.at.min(Instant::now() + left);
    Ok((request, Deadline { at, within: deadline.within.min(left) }))
}

fn with_timeout(uri: &Uri, millis: u128) -> Result<Uri, http::Error> {
    let others = uri.query().into_iter().flat_map(|query| query.split('&')).filter(|of| !of.starts_with("timeout="));
    let query: String = others.flat_map(|other| [other, "&"]).collect();
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(format!("{}?{query}timeout={millis}ms", uri.path()))?);
    Ok(Uri::from_parts(parts)?)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http::Response;
    use http_body_util::Full;
    use kube::client::Body;
    use parking_lot::Mutex;
    use tower::service_fn;

    use super::*;
    use crate::Api;

    /// The URI and the User-Agent of each request that was sent.
    type Sent = Arc<Mutex<Vec<(String, String)>>>;

    fn server(answers: bool) -> (Api, Sent) {
        let sent = Sent::default();
        let seen = sent.clone();
        let service = service_fn(move |request: Request<Body>| {
            let agent = request.headers().get(USER_AGENT).map(|agent| agent.to_str().unwrap().to_owned());
            seen.lock().push((request.uri().to_string(), agent.unwrap_or_default()));
            async move {
                if !answers {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"{}"))))
            }
        });
        (Api::new(kube::Client::new(service, "default"), Duration::from_secs(8)), sent)
    }

    fn request(method: &str, uri: &str) -> Request<Vec<u8>> {
        Request::builder().method(method).uri(uri).body(Vec::new()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_is_sent_only_while_the_right_lasts_and_no_longer_than_it() {
        let (api, sent) = server(true);
        let began = Instant::now();
        let fenced = api.fenced_by(Arc::new(move |_| {
            let left = Duration::from_secs(7).checked_sub(began.elapsed())?;
            Some(Permit { left, term: 3 })
        }));
        let mut of_plugin = request("PATCH", "/a?fieldManager=b&timeout=7s&force=true");
        of_plugin.headers_mut().insert(USER_AGENT, HeaderValue::from_static("host plugin/shop/a"));
        fenced.bytes(of_plugin).await.unwrap();
        let expected =
            ("/a?fieldManager=b&force=true&timeout=5000ms".to_owned(), "host plugin/shop/a term/3".to_owned());
        assert_eq!(std::mem::take(&mut *sent.lock()), [expected]);

        tokio::time::sleep(Duration::from_secs(4)).await;
        for method in ["PUT", "POST", "DELETE", "PATCH"] {
            fenced.bytes(request(method, "/a")).await.unwrap();
            let expected = ("/a?timeout=3000ms".to_owned(), format!("{} term/3", user_agent()));
            assert_eq!(std::mem::take(&mut *sent.lock()), [expected], "{method}");
        }
        tokio::time::sleep(Duration::from_millis(2_501)).await;
        for wait in [0, 499, 3_600_000] {
            tokio::time::sleep(Duration::from_millis(wait)).await;
            for method in ["PUT", "POST", "DELETE", "PATCH"] {
                let error = fenced.bytes(request(method, "/a?timeout=7s")).await.unwrap_err();
                assert!(matches!(error, ApiError::Transport { sent: false, .. }), "{error}");
            }
        }
        assert_eq!(*sent.lock(), [], "nothing reached the API server");
        fenced.bytes(request("GET", "/a")).await.unwrap();
        assert_eq!(*sent.lock(), [("/a".to_owned(), String::new())], "reads go on");
    }

    #[tokio::test(start_paused = true)]
    async fn the_right_is_asked_for_the_tenant_of_the_write() {
        let (api, sent) = server(true);
        let shop = || Tenant::Namespace("shop".into());
        let fenced = api.fenced_by(Arc::new(move |tenant| {
            let left = Duration::from_secs(5);
            (tenant.is_none_or(|tenant| *tenant == shop())).then_some(Permit { left, term: 1 })
        }));
        fenced.bytes(request("PATCH", "/a")).await.unwrap();
        fenced.for_tenant(shop()).bytes(request("PATCH", "/b")).await.unwrap();
        let error = fenced.for_tenant(Tenant::Cluster).bytes(request("PATCH", "/c")).await.unwrap_err();
        assert!(matches!(error, ApiError::Transport { sent: false, .. }), "{error}");
        assert_eq!(sent.lock().len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_under_way_ends_with_the_right() {
        let (api, sent) = server(false);
        let began = Instant::now();
        let fenced = api.fenced_by(Arc::new(|_| Some(Permit { left: Duration::from_secs(2), term: 1 })));
        let error = fenced.bytes(request("PATCH", "/a")).await.unwrap_err();
        assert_eq!((error, began.elapsed()), (ApiError::Timeout(Duration::from_secs(2)), Duration::from_secs(2)));
        assert_eq!(sent.lock().len(), 1);
    }
}
