//! The hosts that receive credentials.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use podium_registry::{Credentials, Error};

use super::*;

const ALICE: &str = "Basic YWxpY2U6YQ==";

fn alice() -> Credentials {
    Credentials::new("alice", "a")
}

/// Serves the component to whoever has this authorization, and else answers with the challenge.
async fn guarded(authorization: &'static str, challenge: impl Into<String>) -> Server {
    let challenge = challenge.into();
    Server::start(move |asked| {
        if asked.headers.get("authorization").map(String::as_str) != Some(authorization) {
            return Reply::status(401).with("WWW-Authenticate", challenge.clone());
        }
        let manifest = manifest(WASM.len(), &Digest::sha256(WASM));
        if asked.path.contains("/manifests/") { Reply::ok(manifest) } else { Reply::ok(WASM) }
    })
    .await
}

#[tokio::test]
async fn a_token_is_of_the_repositories_that_the_challenge_names() {
    for (scope, expected) in [
        ("", "scope=repository%3Ateam%2Fplugin%3Apull"),
        (",scope=\"\"", "scope=repository%3Ateam%2Fplugin%3Apull"),
        (",scope=\"registry:catalog:* nonsense\"", "scope=repository%3Ateam%2Fplugin%3Apull"),
        // A front that maps names. More rights than this operation needs are not asked for.
        (",scope=\"repository:mirror/team/plugin:pull\"", "scope=repository%3Amirror%2Fteam%2Fplugin%3Apull"),
        (",scope=\"repository:mirror/p:pull,push,delete\"", "scope=repository%3Amirror%2Fp%3Apull"),
        (",scope=\"repository(plugin):a.test:5000/p:*\"", "scope=repository%28plugin%29%3Aa%2Etest%3A5000%2Fp%3Apull"),
        (
            ",scope=\"registry:catalog:* repository:a:pull  repository:b&c=d:pull\"",
            "scope=repository%3Aa%3Apull&scope=repository%3Ab%26c%3Dd%3Apull",
        ),
    ] {
        let server = Server::start(move |asked| {
            if asked.path.starts_with("/token") {
                return Reply::ok(r#"{"token":"t0k"}"#);
            }
            if asked.headers.get("authorization").map(String::as_str) != Some("Bearer t0k") {
                let challenge = format!("Bearer realm=\"http://{}/token\"{scope}", asked.headers["host"]);
                return Reply::status(401).with("WWW-Authenticate", challenge);
            }
            let manifest = manifest(WASM.len(), &Digest::sha256(WASM));
            if asked.path.contains("/manifests/") { Reply::ok(manifest) } else { Reply::ok(WASM) }
        })
        .await;
        let client = client(vec![entry("registry.test", &server)]);
        assert!(client.pull(&reference(&server), &[alice()], &LIMITS).await.is_ok());
        let asked = server.asked();
        let token = asked.iter().find(|asked| asked.path.starts_with("/token")).unwrap();
        assert_eq!(token.path, format!("/token?{expected}"), "{scope}");
    }
}

#[tokio::test]
async fn a_token_is_asked_for_with_the_users_name_and_these_actions_only() {
    let tokens = Server::start(|_| Reply::ok(r#"{"token":"t0k"}"#)).await;
    let realm = format!("http://tokens.test:{}", tokens.address.port());
    let challenge = format!("Bearer realm=\"{realm}/token?a=b\",service=\"s r\",scope=\"repository:other:push\"");
    let server = guarded("Bearer t0k", challenge).await;
    let host = format!("tokens.test:{}", tokens.address.port()).parse().unwrap();
    let own = Registry { hops: Hops::Listed(vec![host]), ..entry("registry.test", &server) };
    let client = client(vec![own]);
    assert!(client.pull(&reference(&server), &[alice()], &LIMITS).await.is_ok());
    let [asked] = &tokens.asked()[..] else { panic!("{:?}", tokens.asked()) };
    assert_eq!(asked.headers["authorization"], ALICE);
    assert_eq!(asked.path, "/token?a=b&service=s%20r&scope=repository%3Aother%3Apull");
    // Without credentials the token is anonymous.
    assert!(client.pull(&reference(&server), &[], &LIMITS).await.is_ok());
    assert!(!tokens.asked()[1].headers.contains_key("authorization"));
}

#[tokio::test]
async fn an_identity_token_is_exchanged_at_the_realm_and_sent_nowhere_else() {
    let server = Server::start(|asked| {
        if asked.path.starts_with("/token") {
            let is_exchange = asked.method == "POST" && asked.path == "/token";
            return if is_exchange { Reply::ok(r#"{"access_token":"t0k"}"#) } else { Reply::status(401) };
        }
        if asked.headers.get("authorization").map(String::as_str) != Some("Bearer t0k") {
            let realm = format!("Bearer realm=\"http://{}/token\",service=\"s r\"", asked.headers["host"]);
            return Reply::status(401).with("WWW-Authenticate", realm);
        }
        let manifest = manifest(WASM.len(), &Digest::sha256(WASM));
        if asked.path.contains("/manifests/") { Reply::ok(manifest) } else { Reply::ok(WASM) }
    })
    .await;
    let client = client(vec![entry("registry.test", &server)]);
    let identity = [Credentials::identity_token("id&t=k")];
    assert!(client.pull(&reference(&server), &identity, &LIMITS).await.is_ok());
    let asked = server.asked();
    let [exchange] = &asked.iter().filter(|asked| asked.method == "POST").collect::<Vec<_>>()[..] else { panic!() };
    assert_eq!(exchange.headers["content-type"], "application/x-www-form-urlencoded");
    assert_eq!(
        String::from_utf8_lossy(&exchange.body),
        "grant_type=refresh_token&client_id=podium&service=s%20r&scope=repository%3Ateam%2Fplugin%3Apull\
         &refresh_token=id%26t%3Dk"
    );
    assert!(asked.iter().all(|asked| !format!("{:?} {}", asked.headers, asked.path).contains("id%26t")), "{asked:?}");
    // Where a password is asked for, the token is none.
    let basic = guarded(ALICE, "Basic realm=\"x\"").await;
    let client = super::client(vec![entry("registry.test", &basic)]);
    let error = client.pull(&reference(&basic), &identity, &LIMITS).await.unwrap_err();
    assert!(matches!(&error, Error::Denied(message) if message.contains("identity token")), "{error:?}");
    assert!(basic.asked().iter().all(|asked| !asked.headers.contains_key("authorization")));
}

#[tokio::test]
async fn a_realm_on_a_foreign_host_gets_nothing() {
    let foreign = Server::start(|_| Reply::ok(r#"{"token":"t0k"}"#)).await;
    let port = foreign.address.port();
    for realm in [
        format!("http://foreign.test:{port}/token"),
        format!("http://127.0.0.1:{port}/token"),
        format!("https://foreign.test:{port}/token"),
        format!("http://user@foreign.test:{port}/token"),
        "/token".to_owned(),
        String::new(),
    ] {
        let server = guarded("Bearer t0k", format!("Bearer realm=\"{realm}\"")).await;
        // Also where the foreign host is a registry of the list.
        let registries = vec![entry("registry.test", &server), entry("foreign.test", &foreign)];
        let pulled = client(registries).pull(&reference(&server), &[alice()], &LIMITS).await;
        assert!(matches!(pulled, Err(Error::Forbidden(_) | Error::Invalid(_))), "{realm}: {pulled:?}");
    }
    assert!(foreign.asked().is_empty(), "{:?}", foreign.asked());
}

#[tokio::test]
async fn a_realm_does_not_pass_the_credentials_on() {
    let foreign = Server::start(|_| Reply::ok(r#"{"token":"t0k"}"#)).await;
    let to = format!("http://foreign.test:{}/token", foreign.address.port());
    let tokens = Server::start(move |_| Reply::redirect(to.clone())).await;
    let host: Host = format!("tokens.test:{}", tokens.address.port()).parse().unwrap();
    let server = guarded("Bearer t0k", format!("Bearer realm=\"http://{host}/token\"")).await;
    let own = Registry { hops: Hops::Listed(vec![host]), ..entry("registry.test", &server) };
    let pulled =
        client(vec![own, entry("foreign.test", &foreign)]).pull(&reference(&server), &[alice()], &LIMITS).await;
    assert!(matches!(pulled, Err(Error::Invalid(_))), "{pulled:?}");
    assert!(foreign.asked().is_empty());
}

#[tokio::test]
async fn credentials_are_tried_in_order_until_one_is_accepted() {
    let server = guarded(ALICE, "Basic realm=\"x\"").await;
    let client = client(vec![entry("registry.test", &server)]);
    let others = [Credentials::new("bob", "b"), alice(), Credentials::new("carol", "c")];
    assert!(client.pull(&reference(&server), &others, &LIMITS).await.is_ok());
    let sent: Vec<_> = server.asked().iter().map(|asked| asked.headers.get("authorization").cloned()).collect();
    let expected = [None, Some("Basic Ym9iOmI="), Some(ALICE), Some(ALICE)];
    assert_eq!(sent, expected.map(|header| header.map(str::to_owned)));
}

#[tokio::test]
async fn refused_credentials_are_denied_and_not_left_out() {
    let server = guarded(ALICE, "Basic realm=\"x\"").await;
    let client = client(vec![entry("registry.test", &server)]);
    for credentials in [vec![], vec![Credentials::new("bob", "b")]] {
        let error = client.pull(&reference(&server), &credentials, &LIMITS).await.unwrap_err();
        assert!(matches!(error, Error::Denied(_)) && !error.may_succeed_later(), "{error:?}");
    }
    assert_eq!(server.asked().len(), 1 + 2);
    // One operation leaves nothing for the next.
    assert!(client.pull(&reference(&server), &[alice()], &LIMITS).await.is_ok());
    assert!(matches!(client.pull(&reference(&server), &[], &LIMITS).await, Err(Error::Denied(_))));
}

#[tokio::test]
async fn a_registry_that_always_asks_ends_with_denied() {
    let server = Server::start(|_| Reply::status(401).with("WWW-Authenticate", "Basic")).await;
    let client = client(vec![entry("registry.test", &server)]);
    let many = vec![alice(), Credentials::new("bob", "b")];
    assert!(matches!(client.pull(&reference(&server), &many, &LIMITS).await, Err(Error::Denied(_))));
    assert_eq!(server.asked().len(), 3);
    let server = Server::start(|_| Reply::status(401)).await;
    assert!(matches!(pull(&server).await, Err(Error::Denied(_))));
}

#[tokio::test]
async fn a_token_that_expired_is_renewed_and_not_for_ever() {
    let count = Arc::new(AtomicU32::new(0));
    let server = Server::start({
        let count = count.clone();
        move |asked| {
            if asked.path.starts_with("/token") {
                let number = count.fetch_add(1, Ordering::SeqCst);
                return Reply::ok(format!(r#"{{"access_token":"t{number}"}}"#));
            }
            // The first token is good for the manifest only.
            let is_blob = asked.path.contains("/blobs/");
            match (asked.headers.get("authorization").map(String::as_str), is_blob) {
                (Some("Bearer t0"), false) => Reply::ok(manifest(WASM.len(), &Digest::sha256(WASM))),
                (Some("Bearer t1"), true) => Reply::ok(WASM),
                _ => {
                    let realm = format!("Bearer realm=\"http://{}/token\"", asked.headers["host"]);
                    Reply::status(401).with("WWW-Authenticate", realm)
                }
            }
        }
    })
    .await;
    assert!(pull(&server).await.is_ok());
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_token_without_bound_or_with_line_breaks_is_refused() {
    for (reply, is_large) in [
        (Reply::endless(), true),
        (Reply::ok(r#"{"token":"a\r\nX: y"}"#), false),
        (Reply::ok(r#"{"token":""}"#), false),
        (Reply::ok("x"), false),
    ] {
        let server = Server::start(move |asked| {
            let realm = format!("Bearer realm=\"http://{}/token\"", asked.headers["host"]);
            if asked.path.starts_with("/token") {
                reply.clone()
            } else {
                Reply::status(401).with("WWW-Authenticate", realm)
            }
        })
        .await;
        let error = pull(&server).await.unwrap_err();
        assert_eq!(matches!(error, Error::TooLarge(_)), is_large, "{error:?}");
        assert!(is_large || matches!(error, Error::Invalid(_)), "{error:?}");
        assert!(server.written() < UNDER_WAY);
    }
}
