//! Reads of single Pods and of single objects of other kinds from the API server.
//!
//! The result is only returned to the caller: the cache is updated only by the watch. A read that a plugin requests is
//! sent as the plugin's account, like its writes; the host's own reads are sent as the host. Objects of other kinds are
//! never read as the host.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{Request, request};
use podium_engine::ports::{Asker, Live, ObjectAnswer, Sender};
use podium_pods::pod::CachedPod;
use podium_vocabulary::{
    ObjectRef, Prune, Refused,
    authz::{Authorized, ObjectRead},
    json,
    syntax::{dns_label, dns_subdomain, quoted},
};
use serde_json::Value;

use crate::{Api, ApiError, LiveReadOf, plugin_user_agent, resource_path, unserved};

/// The most bytes of an object that a plugin reads, as the API server sends it.
const MAX_OBJECT_BYTES: usize = 256 << 10;

/// Reads Pods and other objects with GET.
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
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        let request = match asker {
            Asker::Plugin => as_plugin(sender, path),
            Asker::Host => as_host(sender, path),
        };
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

    async fn read_object(&self, sender: &Sender, object: &ObjectRef) -> Result<Option<Value>, Refused> {
        if sender.impersonate.is_none() {
            let message = "spec.serviceAccountName is missing: objects are read as this account";
            return Err(Refused::Unavailable(message.to_owned()));
        }
        let ObjectRef { api_version, kind, resource, namespace, name } = object;
        let path = format!("{}/{name}", resource_path(api_version, namespace.as_deref(), resource));
        let request = as_plugin(sender, path).body(Vec::new());
        let request = request.map_err(|error| Refused::Invalid(error.to_string()))?;
        let bytes = match self.api.with_answer_bytes(MAX_OBJECT_BYTES).bytes(request).await {
            Ok(bytes) => bytes,
            Err(ApiError::Status { code: 404, object: Some(_), .. }) => return Ok(None),
            // The path is missing, and not the object.
            Err(ApiError::Status { code: 404, object: None, .. }) => {
                return Err(Refused::Unavailable(unserved(object)));
            }
            Err(ApiError::TooLong(most)) => {
                return Err(Refused::Invalid(format!("object: {object} has more than {most} bytes")));
            }
            Err(error) => return Err(Refused::Unavailable(error.for_guests())),
        };
        let unreadable = || Refused::Unavailable(format!("the API server's answer is not {object}"));
        let mut value = json::value(&bytes).map_err(|_| unreadable())?;
        let text = |path: &str| value.pointer(path).and_then(Value::as_str);
        let is_asked_for = text("/apiVersion") == Some(api_version)
            && text("/kind") == Some(kind)
            && text("/metadata/name") == Some(name)
            && text("/metadata/namespace") == namespace.as_deref();
        if !is_asked_for {
            return Err(unreadable());
        }
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        Ok(Some(value))
    }
}

/// Returns a read for a plugin, as the host's account.
fn as_host(sender: &Sender, path: String) -> request::Builder {
    Request::get(path).header(http::header::USER_AGENT, plugin_user_agent(sender.plugin()))
}

/// Returns a read that a plugin requests, as its account if it has one.
fn as_plugin(sender: &Sender, path: String) -> request::Builder {
    let request = as_host(sender, path).extension(LiveReadOf(sender.plugin().to_owned()));
    match &sender.impersonate {
        Some(account) => request.header("impersonate-user", account),
        None => request,
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

    fn object<'a>(&'a self, sender: &'a Sender, read: &'a Authorized<ObjectRead>) -> ObjectAnswer<'a> {
        Box::pin(self.read_object(sender, &read.get().0))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::Response;
    use http_body_util::Full;
    use kube::client::Body;
    use podium_vocabulary::{Grants, ObjectGrant, Prune, Scope, authz::authorize};
    use serde_json::json;

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

    fn object_read() -> Authorized<ObjectRead> {
        let [api_version, kind, resource] = ["apps/v1", "Deployment", "deployments"].map(str::to_owned);
        let grant = ObjectGrant { api_version, kind, resource };
        let ObjectGrant { api_version, kind, resource } = grant.clone();
        let grants = Grants { read_objects: vec![grant], ..Grants::default() };
        let namespace = Some("shop".to_owned());
        let object = ObjectRef { api_version, kind, resource, namespace, name: "web".to_owned() };
        authorize(&Scope::Namespace("shop".into()), &grants, ObjectRead(object)).unwrap()
    }

    /// Reads an object of a server that answers this.
    async fn object(status: u16, body: String) -> Result<Option<Value>, Refused> {
        let service = tower::service_fn(move |request: Request<Body>| {
            assert_eq!(request.uri().path(), "/apis/apps/v1/namespaces/shop/deployments/web");
            assert_eq!(request.headers()["impersonate-user"], "system:serviceaccount:shop:a");
            let body = Full::new(Bytes::from(body.clone()));
            async move { Response::builder().status(status).body(body) }
        });
        let api = Api::new(kube::Client::new(service, "default"), Duration::from_secs(5));
        LivePods::new(api, Prune::NOTHING).object(&sender(), &object_read()).await
    }

    fn web() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "namespace": "shop", "name": "web" },
            "status": { "readyReplicas": 2 },
        })
    }

    #[tokio::test]
    async fn an_object_is_returned_without_managed_fields_and_a_missing_one_is_none() {
        let mut whole = web();
        whole["metadata"]["managedFields"] = json!([{ "manager": "kubectl" }]);
        assert_eq!(object(200, whole.to_string()).await, Ok(Some(web())));
        let missing = json!({ "kind": "Status", "code": 404, "reason": "NotFound", "details": { "name": "web" } });
        assert_eq!(object(404, missing.to_string()).await, Ok(None));
    }

    #[tokio::test]
    async fn an_answer_that_is_not_the_object_is_unavailable() {
        let other = |path: &str, value: &str| {
            let mut object = web();
            *object.pointer_mut(path).unwrap() = value.into();
            (200, object.to_string())
        };
        let unserved = json!({ "kind": "Status", "code": 404, "reason": "NotFound", "details": {} }).to_string();
        let cluster = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": "web" } });
        for (status, body) in [
            other("/kind", "Secret"),
            other("/apiVersion", "v1"),
            other("/metadata/name", "other"),
            other("/metadata/namespace", "bank"),
            (200, cluster.to_string()),
            (200, "[]".to_owned()),
            (200, "no json".to_owned()),
            (403, String::new()),
            (404, unserved),
            (500, String::new()),
        ] {
            let answer = object(status, body.clone()).await;
            assert!(matches!(answer, Err(Refused::Unavailable(_))), "{status} {body}: {answer:?}");
        }
    }

    #[tokio::test]
    async fn an_object_beyond_the_bound_is_invalid_with_the_number() {
        let of_bytes = |bytes: usize| {
            let mut object = web();
            object["data"] = "".into();
            object["data"] = "x".repeat(bytes - object.to_string().len()).into();
            object.to_string()
        };
        assert!(object(200, of_bytes(256 << 10)).await.unwrap().is_some());
        let refused = object(200, of_bytes((256 << 10) + 1)).await;
        let expected = "object: apps/v1 Deployment shop/web has more than 262144 bytes";
        assert_eq!(refused, Err(Refused::Invalid(expected.to_owned())));
    }

    #[tokio::test]
    async fn an_object_is_never_read_as_the_host() {
        let service = tower::service_fn(|_: Request<Body>| async move {
            Response::builder().status(200).body(Full::new(Bytes::from(web().to_string())))
        });
        let api = Api::new(kube::Client::new(service, "default"), Duration::from_secs(5));
        let without = Sender { impersonate: None, ..sender() };
        let answer = LivePods::new(api, Prune::NOTHING).object(&without, &object_read()).await;
        assert!(matches!(answer, Err(Refused::Unavailable(why)) if why.contains("serviceAccountName")));
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
