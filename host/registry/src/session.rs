//! The requests of one operation on one repository: authentication, redirects and errors.
//!
//! A session belongs to one operation and its credentials, so credentials are never used for another operation.

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::Full;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::{
    Client, Credentials, Error,
    allowed::{Endpoint, Purpose},
    answer::{Answer, ask},
    challenge::Challenge,
    error::words,
    reference::Host,
};

/// The most redirects of one request.
const REDIRECTS: usize = 3;
/// The most bytes of a token's answer, and of the token.
const TOKEN: u64 = 64 << 10;
/// The most times that the same credentials are used again, because a token expired.
const RENEWALS: usize = 3;

#[derive(Clone)]
pub(crate) struct Session<'a> {
    client: &'a Client,
    registry: Host,
    own: Endpoint,
    repository: &'a str,
    actions: &'static str,
    /// Those that have not been tried.
    credentials: std::slice::Iter<'a, Credentials>,
    /// Those in use. `None` before the first challenge, and without credentials.
    current: Option<&'a Credentials>,
    /// Whether a request without credentials may get a token: only where there are none.
    may_be_anonymous: bool,
    authorization: Option<HeaderValue>,
    /// Whether the registry accepted a request with this authorization.
    has_worked: bool,
    renewals: usize,
}

/// Where a request goes.
#[derive(Clone)]
pub(crate) struct Target {
    endpoint: Endpoint,
    path: String,
}

impl Target {
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Returns the target with one parameter more.
    pub(crate) fn with_query(mut self, parameter: &str) -> Self {
        self.path.push(if self.path.contains('?') { '&' } else { '?' });
        self.path += parameter;
        self
    }
}

/// A request without what the session adds.
pub(crate) struct Outgoing {
    pub(crate) method: Method,
    pub(crate) accept: Option<&'static str>,
    pub(crate) content_type: Option<&'static str>,
    pub(crate) body: Bytes,
}

impl Outgoing {
    pub(crate) fn get(accept: &'static str) -> Self {
        Self { method: Method::GET, accept: Some(accept), content_type: None, body: Bytes::new() }
    }
}

impl<'a> Session<'a> {
    pub(crate) fn new(
        client: &'a Client,
        registry: &Host,
        repository: &'a str,
        actions: &'static str,
        credentials: &'a [Credentials],
    ) -> Result<Self, Error> {
        Ok(Self {
            client,
            own: client.allowed.registry(registry)?,
            registry: registry.clone(),
            repository,
            actions,
            may_be_anonymous: credentials.is_empty(),
            credentials: credentials.iter(),
            current: None,
            authorization: None,
            has_worked: false,
            renewals: 0,
        })
    }

    /// Returns true if a URL is of the registry itself, or has no host.
    pub(crate) fn is_own(&self, url: &Uri) -> bool {
        let Some(host) = url.authority() else { return true };
        let is_host = |host: Host| host.is(&self.own.host, self.own.plain_http);
        url.scheme_str() == Some(self.own.scheme()) && host.as_str().parse().is_ok_and(is_host)
    }

    /// Returns a target below the repository.
    pub(crate) fn below(&self, path: &str) -> Target {
        Target { endpoint: self.own.clone(), path: format!("/v2/{}/{path}", self.repository) }
    }

    /// Sends a request, with the credentials that the registry asks for, one after another until one is accepted. If
    /// none is, the next request begins with the credentials that worked before: a registry may refuse one path only.
    pub(crate) async fn send(&mut self, target: &Target, outgoing: &Outgoing) -> Result<Answer, Error> {
        let before = self.clone();
        let answer = self.authenticated(target, outgoing).await;
        if answer.as_ref().map_or(true, |answer| answer.status == StatusCode::FORBIDDEN) {
            *self = before;
        }
        answer
    }

    async fn authenticated(&mut self, target: &Target, outgoing: &Outgoing) -> Result<Answer, Error> {
        loop {
            let (answer, is_own) = self.follow(target, outgoing).await?;
            match answer.status {
                StatusCode::UNAUTHORIZED if is_own => {
                    let Some(challenge) = Challenge::from_headers(answer.headers.get_all(header::WWW_AUTHENTICATE))
                    else {
                        return Err(answer.refusal("authentication without a challenge that is understood").await);
                    };
                    let refusal = answer.refusal("authentication").await;
                    self.authenticate(&challenge, refusal).await?;
                }
                // Another Secret may have the right that this one lacks.
                StatusCode::FORBIDDEN if is_own && self.current.is_some() && self.credentials.len() > 0 => {
                    self.authorization = None;
                    self.current = None;
                    self.has_worked = false;
                }
                _ => {
                    self.has_worked |= self.authorization.is_some();
                    return Ok(answer);
                }
            }
        }
    }

    /// Sends a request and follows redirects. Also returns whether the last answer is the registry's own.
    async fn follow(&self, target: &Target, outgoing: &Outgoing) -> Result<(Answer, bool), Error> {
        let mut target = target.clone();
        for redirects in 0..=REDIRECTS {
            let is_own = target.endpoint.is(&self.own);
            let authorization = self.authorization.clone().filter(|_| is_own);
            let mut answer = ask(self.client, &target.endpoint, request(&target, outgoing, authorization)?).await?;
            answer.redirected = redirects > 0;
            match answer.status.as_u16() {
                301 | 302 | 303 | 307 | 308 if outgoing.method == Method::GET || outgoing.method == Method::HEAD => {
                    let next = self.location(&target, &answer);
                    target = next.map_err(|error| answer.shown("a redirect", error))?;
                }
                _ => return Ok((answer, is_own)),
            }
        }
        Err(Error::Forbidden(format!("registry {} redirects more than {REDIRECTS} times", self.registry)))
    }

    /// Returns the target that an answer names, if the registry may name it.
    pub(crate) fn location(&self, from: &Target, answer: &Answer) -> Result<Target, Error> {
        let location = answer.headers.get(header::LOCATION).and_then(|location| location.to_str().ok());
        let location = location.ok_or_else(|| Error::Invalid("an answer without a Location".to_owned()))?;
        if location.starts_with('/') && !location.starts_with("//") {
            return Ok(Target { endpoint: from.endpoint.clone(), path: location.to_owned() });
        }
        let uri = uri(location)?;
        let endpoint =
            self.client.allowed.hop(&self.registry, &from.endpoint, &uri, Purpose::Redirect(self.repository))?;
        Ok(Target { endpoint, path: path(&uri) })
    }

    /// Prepares the next attempt, or returns `refusal` if there is none.
    async fn authenticate(&mut self, challenge: &Challenge, refusal: Error) -> Result<(), Error> {
        if self.has_worked && self.renewals < RENEWALS {
            // A token that was accepted before has expired.
            self.renewals += 1;
        } else if self.may_be_anonymous {
            self.may_be_anonymous = false;
        } else {
            self.current = Some(self.credentials.next().ok_or(refusal)?);
        }
        self.has_worked = false;
        self.authorization = match (challenge, self.current) {
            (Challenge::Basic, Some(credentials)) if credentials.token().is_none() => Some(of_user(credentials)?),
            (Challenge::Basic, Some(_)) if self.credentials.len() > 0 => None,
            (Challenge::Basic, Some(_)) => {
                let message = "asks for a name and a password, and the credentials are an identity token";
                return Err(Error::Denied(format!("registry {} {message}", self.registry)));
            }
            (Challenge::Basic, None) => {
                let message = format!("registry {} asks for credentials, and there are none for it", self.registry);
                return Err(Error::Denied(message));
            }
            (Challenge::Bearer { realm, service, scope }, credentials) => {
                let scopes = self.scopes(scope.as_deref().unwrap_or_default());
                match self.token(realm, service.as_deref(), &scopes, credentials).await {
                    Ok(token) => Some(token),
                    // The next credentials may be accepted; the next challenge asks for them.
                    Err(Error::Denied(_)) if self.credentials.len() > 0 => None,
                    Err(error) => return Err(error),
                }
            }
        };
        Ok(())
    }

    /// Returns the scopes of a token: the repositories that the challenge names, which a registry may know by other
    /// names than its clients, or this one; with this operation's actions, whichever actions the challenge names.
    fn scopes(&self, challenged: &str) -> Vec<String> {
        let repositories = challenged.split_whitespace().filter_map(|scope| scope.rsplit_once(':'));
        let repositories = repositories.map(|(repository, _)| repository);
        let of_repository = |name: &&str| name.starts_with("repository:") || name.starts_with("repository(");
        let mut all: Vec<_> = repositories.filter(of_repository).map(str::to_owned).collect();
        if all.is_empty() {
            all.push(format!("repository:{}", self.repository));
        }
        all.into_iter().map(|repository| format!("{repository}:{}", self.actions)).collect()
    }

    /// Gets a token from the realm.
    async fn token(
        &self,
        realm: &str,
        service: Option<&str>,
        scopes: &[String],
        credentials: Option<&Credentials>,
    ) -> Result<HeaderValue, Error> {
        let uri = uri(realm)?;
        let endpoint = self.client.allowed.hop(&self.registry, &self.own, &uri, Purpose::Token)?;
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let mut query = service.map(|service| format!("service={}&", encoded(service))).unwrap_or_default();
        let mut target = Target { endpoint: endpoint.clone(), path: path(&uri) };
        let mut outgoing = Outgoing::get("application/json");
        let mut authorization = None;
        if let Some(token) = credentials.and_then(Credentials::token) {
            // As docker exchanges it; realms need a name of the client.
            query += &format!("scope={}", encoded(&scopes.join(" ")));
            let form = format!("grant_type=refresh_token&client_id=podium&{query}&refresh_token={}", encoded(token));
            let content_type = Some("application/x-www-form-urlencoded");
            outgoing = Outgoing { method: Method::POST, content_type, body: form.into(), ..outgoing };
        } else {
            authorization = credentials.map(of_user).transpose()?;
            let scopes: Vec<_> = scopes.iter().map(|scope| format!("scope={}", encoded(scope))).collect();
            query += &scopes.join("&");
            target = target.with_query(&query);
        }
        let request = request(&target, &outgoing, authorization)?;
        // Redirects are not followed: only the realm gets the credentials.
        let mut answer = ask(self.client, &endpoint, request).await?;
        if answer.status != StatusCode::OK {
            return Err(answer.refusal("token").await);
        }
        #[derive(serde::Deserialize)]
        struct Body {
            token: Option<String>,
            access_token: Option<String>,
        }
        let body = answer.bytes(TOKEN, "the token").await?;
        let body: Body =
            serde_json::from_slice(&body).map_err(|_| Error::Invalid("the token is not JSON".to_owned()))?;
        let token = body.token.filter(|token| !token.is_empty()).or(body.access_token).unwrap_or_default();
        header("Bearer", &token)
    }
}

fn of_user(credentials: &Credentials) -> Result<HeaderValue, Error> {
    basic(format!("{}:{}", credentials.username(), credentials.password()))
}

/// Returns the header of a name and a password with a colon between.
pub(crate) fn basic(user: impl AsRef<[u8]>) -> Result<HeaderValue, Error> {
    header("Basic", &BASE64_STANDARD.encode(user))
}

fn header(scheme: &str, value: &str) -> Result<HeaderValue, Error> {
    let header = HeaderValue::from_str(&format!("{scheme} {value}")).ok().filter(|_| !value.is_empty());
    let mut header = header.ok_or_else(|| Error::Invalid("the token is empty or no text of a header".to_owned()))?;
    header.set_sensitive(true);
    Ok(header)
}

fn uri(text: &str) -> Result<Uri, Error> {
    text.parse().map_err(|_| Error::Invalid(format!("{} is not a URL", words(text))))
}

fn path(uri: &Uri) -> String {
    uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string)
}

/// Makes the request for the wire. No cookies, and no Referer, which may contain a signed URL.
fn request(
    target: &Target,
    outgoing: &Outgoing,
    authorization: Option<HeaderValue>,
) -> Result<Request<Full<Bytes>>, Error> {
    let host = HeaderValue::from_str(&target.endpoint.host.to_string());
    let host = host.map_err(|_| Error::Invalid("the host is no text of a header".to_owned()))?;
    let mut request = Request::builder()
        .method(outgoing.method.clone())
        .uri(&target.path)
        .header(header::HOST, host)
        .header(header::USER_AGENT, concat!("podium/", env!("CARGO_PKG_VERSION")))
        .header(header::CONNECTION, "close")
        .header(header::ACCEPT_ENCODING, "identity");
    if let Some(accept) = outgoing.accept {
        request = request.header(header::ACCEPT, accept);
    }
    if let Some(content_type) = outgoing.content_type {
        request = request.header(header::CONTENT_TYPE, content_type);
    }
    if let Some(authorization) = authorization {
        request = request.header(header::AUTHORIZATION, authorization);
    }
    let request = request.body(Full::new(outgoing.body.clone()));
    request.map_err(|_| Error::Invalid(format!("{} is not the path of a URL", words(&target.path))))
}
