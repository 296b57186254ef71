//! Reads of single Pods from the API server.
//!
//! The result is only returned to the caller: the cache is updated only by the watch. A read that a plugin requests is
//! sent as the plugin's account, like its writes; the host's own reads are sent as the host.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::Request;
use podium_engine::ports::{Asker, Live, Sender};
use podium_pods::pod::CachedPod;
use podium_vocabulary::{
    Prune, Refused,
    syntax::{dns_label, dns_subdomain, quoted},
};

use crate::{Api, ApiError, LiveReadOf, plugin_user_agent};

/// Reads Pods with GET.
#[derive(Clone)]
pub struct LivePods {
    api: Api,
    prune: Prune,
}

impl LivePods {
    /// Returns a reader of Pods. Each read takes at most the deadline of `api`. `prune` is the cache's, so fields
    /// that the cache does not store are not read here either.
    #[must_use]
    pub fn new(api: Api, prune: Prune) -> Self {
        Self { api, prune }
    }

    async fn read(
        &self,
        asker: Asker,
        sender: &Sender,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<CachedPod>>, Refused> {
        // Guests choose both values, and both become part of a path.
        let invalid = |what: &str, text: &str, reason| Refused::Invalid(format!("{what} {} {reason}", quoted(text)));
        dns_label(namespace).map_err(|reason| invalid("namespace", namespace, reason))?;
        dns_subdomain(name).map_err(|reason| invalid("pod name", name, reason))?;
        let mut request = Request::get(format!("/api/v1/namespaces/{namespace}/pods/{name}"))
            .header(http::header::USER_AGENT, plugin_user_agent(sender.plugin()));
        if asker == Asker::Plugin {
            request = request.extension(LiveReadOf(sender.plugin().to_owned()));
            if let Some(account) = &sender.impersonate {
                request = request.header("impersonate-user", account);
            }
        }
        let request = request.body(Vec::new()).map_err(|error| Refused::Invalid(error.to_string()))?;
        let bytes = match self.api.bytes(request).await {
            Ok(bytes) => bytes,
            Err(ApiError::Status { code: 404, .. }) => return Ok(None),
            Err(error) => return Err(Refused::Unavailable(error.for_guests())),
        };
        let unreadable =
            || Refused::Unavailable("the API server's answer is not the pod that was asked for".to_owned());
        let pod = CachedPod::unshared(&bytes, &self.prune).map_err(|_| unreadable())?;
        if (&*pod.key.namespace, &*pod.key.name) != (namespace, name) {
            return Err(unreadable());
        }
        Ok(Some(Arc::new(pod)))
    }
}

impl Live for LivePods {
    fn get<'a>(
        &'a self,
        asker: Asker,
        sender: &'a Sender,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Option<Arc<CachedPod>>, Refused>> {
        Box::pin(self.read(asker, sender, namespace, name))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::Response;
    use http_body_util::Full;
    use kube::client::Body;
    use podium_vocabulary::Prune;

    use super::*;

    fn sender() -> Sender {
        Sender { manager: "podium/shop/hello".to_owned(), impersonate: Some("system:serviceaccount:shop:a".to_owned()) }
    }

    fn answering(status: u16, body: &'static str) -> LivePods {
        let service = tower::service_fn(move |request: Request<Body>| async move {
            assert_eq!(request.uri().path(), "/api/v1/namespaces/shop/pods/cart-0");
            let agent = request.headers()[http::header::USER_AGENT].to_str().unwrap();
            assert!(agent.starts_with("podium-host/") && agent.contains(" plugin/shop/"), "{agent}");
            Response::builder().status(status).body(Full::new(Bytes::from_static(body.as_bytes())))
        });
        let api = Api::new(kube::Client::new(service, "default"), Duration::from_secs(5));
        LivePods::new(api, Prune::annotations(["secret"]))
    }

    #[tokio::test]
    async fn pruned_annotations_are_pruned_from_a_live_read_too() {
        let body = "{\"metadata\":{\"namespace\":\"shop\",\"name\":\"cart-0\",\"uid\":\"u\",\
            \"resourceVersion\":\"7\",\"managedFields\":[{\"manager\":\"kubelet\"}],\
            \"annotations\":{\"secret\":\"x\",\"note\":\"y\"}},\"later\":1}";
        let pod = answering(200, body).get(Asker::Plugin, &sender(), "shop", "cart-0").await.unwrap().unwrap();
        let full = pod.section_bytes(podium_wire::Section::Full).into_owned();
        let expected = "{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"namespace\":\"shop\",\
            \"name\":\"cart-0\",\"uid\":\"u\",\"resourceVersion\":\"7\",\"annotations\":{\"note\":\"y\"}},\"later\":1}";
        assert_eq!(str::from_utf8(&full), Ok(expected));
        assert_eq!(pod.annotations().unwrap().len(), 1);
    }

    #[tokio::test]
    async fn an_existing_pod_is_returned_and_a_missing_one_is_none() {
        let body = r#"{"metadata":{"namespace":"shop","name":"cart-0","uid":"u","resourceVersion":"7"}}"#;
        let pod = answering(200, body).get(Asker::Plugin, &sender(), "shop", "cart-0").await.unwrap().unwrap();
        assert_eq!((&*pod.key.uid, pod.revision.0), ("u", 7));
        assert_eq!(answering(404, "").get(Asker::Plugin, &sender(), "shop", "cart-0").await, Ok(None));
    }

    #[tokio::test]
    async fn a_plugin_reads_as_its_account_and_the_host_as_itself() {
        let service = tower::service_fn(|request: Request<Body>| async move {
            let user = request.headers().get("impersonate-user").map_or("host", |user| user.to_str().unwrap());
            let body = format!(
                r#"{{"metadata":{{"namespace":"shop","name":"cart-0","uid":"{user}","resourceVersion":"7"}}}}"#
            );
            Response::builder().status(200).body(Full::new(Bytes::from(body)))
        });
        let live =
            LivePods::new(Api::new(kube::Client::new(service, "default"), Duration::from_secs(5)), Prune::NOTHING);
        let without = Sender { impersonate: None, ..sender() };
        for (asker, sender, user) in [
            (Asker::Plugin, &sender(), "system:serviceaccount:shop:a"),
            (Asker::Plugin, &without, "host"),
            (Asker::Host, &sender(), "host"),
        ] {
            let pod = live.get(asker, sender, "shop", "cart-0").await.unwrap().unwrap();
            assert_eq!(&*pod.key.uid, user, "{asker:?}");
        }
    }

    #[tokio::test]
    async fn a_refusal_or_the_answer_of_another_pod_is_unavailable() {
        let other = r#"{"metadata":{"namespace":"shop","name":"till-0","uid":"u","resourceVersion":"7"}}"#;
        for (status, body) in [(403, ""), (500, ""), (200, "{}"), (200, "no json"), (200, other)] {
            let answer = answering(status, body).get(Asker::Plugin, &sender(), "shop", "cart-0").await;
            assert!(matches!(answer, Err(Refused::Unavailable(_))), "{status} {body}: {answer:?}");
        }
    }

    #[tokio::test]
    async fn names_that_would_leave_the_path_are_refused_before_a_request() {
        let long = "a".repeat(254);
        for name in ["", "..", ".", "a/b", "../x", "a%2fb", "A", "a?b", "a#b", "a b", "\u{e9}", "-a", "a.", &long] {
            let live = answering(200, "");
            assert!(
                matches!(live.get(Asker::Plugin, &sender(), "shop", name).await, Err(Refused::Invalid(_))),
                "{name}"
            );
            assert!(
                matches!(live.get(Asker::Plugin, &sender(), name, "cart-0").await, Err(Refused::Invalid(_))),
                "{name}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_hold_of_one_plugins_live_reads_affects_no_other_reads() {
        let body = r#"{"kind":"Status","code":429,"details":{"retryAfterSeconds":60}}"#;
        let live = answering(429, body);
        let live = LivePods { api: live.api.with_backpressure(), ..live };
        let other = Sender { manager: "podium/shop/other".to_owned(), impersonate: None };
        let held = Err(Refused::Unavailable("not sent: the API server asked to wait 60 s".to_owned()));
        let answered = Err(Refused::Unavailable("the API server answered 429".to_owned()));
        assert_eq!(live.get(Asker::Plugin, &sender(), "shop", "cart-0").await, answered);
        assert_eq!(live.get(Asker::Plugin, &sender(), "shop", "cart-0").await, held);
        assert_eq!(live.api.held(None), None, "every plugin without an account is held for what shop/hello reads");
        assert_eq!(live.get(Asker::Plugin, &other, "shop", "cart-0").await, answered);
        assert_eq!(live.get(Asker::Host, &sender(), "shop", "cart-0").await, answered);
        // The host's own reads belong to its account, like the writes of plugins without an account.
        assert_eq!(live.api.held(None), Some(Duration::from_secs(60)));
        assert_eq!(live.get(Asker::Host, &other, "shop", "cart-0").await, held);
    }
}
