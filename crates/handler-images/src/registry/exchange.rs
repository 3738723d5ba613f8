//! Requests to one registry about one repository: tokens fetched when asked for, failures told by kind.

use super::auth::{Challenge, Login, challenge};
use super::is_loopback;
use crate::digest::Digest;
use crate::manifest::ACCEPT;
use crate::name::Name;
use handler_engine::images::ImageError;
use reqwest::header::{ACCEPT as ACCEPT_HEADER, RANGE, WWW_AUTHENTICATE};
use reqwest::{Response, StatusCode};
use serde::Deserialize;
use std::time::Duration;
use tokio::sync::Mutex;

/// Longest answer of a token service, bytes.
const MAX_TOKEN: u64 = 1 << 20;
/// How often a request is tried, and the first wait in between (doubled each time).
const TRIES: u32 = 5;
const FIRST_WAIT: Duration = Duration::from_millis(300);

/// One repository of one registry.
#[derive(Debug)]
pub(crate) struct Registry {
    client: reqwest::Client,
    base: String,
    name: Name,
    login: Option<Login>,
    /// What goes into `Authorization`, once it was asked for.
    authorization: Mutex<Option<Authorization>>,
}

#[derive(Clone)]
enum Authorization {
    Basic,
    Token(String),
}

impl std::fmt::Debug for Authorization {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authorization")
    }
}

#[derive(Deserialize)]
struct TokenAnswer {
    token: Option<String>,
    access_token: Option<String>,
}

impl Registry {
    pub(super) fn new(
        client: reqwest::Client,
        scheme: &str,
        name: Name,
        login: Option<Login>,
    ) -> Self {
        Self {
            base: format!("{scheme}://{}/v2/{}", name.api(), name.repository),
            client,
            name,
            login,
            authorization: Mutex::new(None),
        }
    }

    /// A manifest or index by tag or digest.
    pub(crate) async fn manifest(&self, reference: &str, most: u64) -> Result<Vec<u8>, ImageError> {
        let url = format!("{}/manifests/{reference}", self.base);
        let bytes = self.small(&url, most).await?;
        self.check(reference, bytes)
    }

    /// A short blob.
    pub(crate) async fn small_blob(
        &self,
        digest: &Digest,
        most: u64,
    ) -> Result<Vec<u8>, ImageError> {
        let url = format!("{}/blobs/{digest}", self.base);
        let bytes = self.small(&url, most).await?;
        self.check(&digest.to_string(), bytes)
    }

    /// A blob from byte `from` on: the answer's status says whether the registry starts there (206) or anew (200).
    pub(crate) async fn blob(&self, digest: &Digest, from: u64) -> Result<Response, ImageError> {
        let url = format!("{}/blobs/{digest}", self.base);
        self.get(&url, (from > 0).then_some(from)).await
    }

    fn check(&self, reference: &str, bytes: Vec<u8>) -> Result<Vec<u8>, ImageError> {
        match Digest::try_from(reference.to_owned()) {
            Ok(digest) if Digest::of(&bytes) != digest => Err(ImageError::Failed(format!(
                "{} sent something else than {digest}",
                self.name.host
            ))),
            _ => Ok(bytes),
        }
    }

    /// Short enough to be asked for again as a whole when it breaks off.
    async fn small(&self, url: &str, most: u64) -> Result<Vec<u8>, ImageError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let answer = self.get(url, None).await?;
            match self.body(answer, most).await {
                Err(ImageError::Unavailable(_)) if tries < TRIES => {
                    tokio::time::sleep(FIRST_WAIT).await;
                }
                result => return result,
            }
        }
    }

    async fn body(&self, mut answer: Response, most: u64) -> Result<Vec<u8>, ImageError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = answer.chunk().await.map_err(|error| self.broken(error))? {
            if bytes.len() as u64 + chunk.len() as u64 > most {
                return Err(ImageError::Failed(format!(
                    "{} sent far more than belongs there",
                    self.name.host
                )));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    /// Asks until there is an answer: again after short waits when the network or the registry stumbles.
    async fn get(&self, url: &str, from: Option<u64>) -> Result<Response, ImageError> {
        let mut wait = FIRST_WAIT;
        let mut asked_for_token = false;
        let mut tries = 0;
        loop {
            tries += 1;
            let result = self.once(url, from).await;
            let failure = match result {
                Ok(answer) if answer.status().is_success() => return Ok(answer),
                Ok(answer) if answer.status() == StatusCode::UNAUTHORIZED && !asked_for_token => {
                    asked_for_token = true;
                    self.authorize(&answer).await?;
                    continue;
                }
                Ok(answer)
                    if answer.status().is_server_error()
                        || answer.status() == StatusCode::TOO_MANY_REQUESTS =>
                {
                    self.refusal(answer.status())
                }
                Ok(answer) => return Err(self.refusal(answer.status())),
                Err(error) => self.broken(error),
            };
            if tries >= TRIES {
                return Err(failure);
            }
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
    }

    async fn once(&self, url: &str, from: Option<u64>) -> reqwest::Result<Response> {
        let mut request = self.client.get(url).header(ACCEPT_HEADER, ACCEPT);
        if let Some(from) = from {
            request = request.header(RANGE, format!("bytes={from}-"));
        }
        match (self.authorization.lock().await.clone(), &self.login) {
            (Some(Authorization::Token(token)), _) => request = request.bearer_auth(token),
            (Some(Authorization::Basic), Some(login)) => {
                request = request.basic_auth(&login.user, Some(&login.password));
            }
            _ => {}
        }
        request.send().await
    }

    /// Does what a 401 asks for.
    async fn authorize(&self, answer: &Response) -> Result<(), ImageError> {
        let headers = answer.headers().get_all(WWW_AUTHENTICATE).iter();
        let wanted = headers
            .filter_map(|header| header.to_str().ok())
            .find_map(challenge);
        let authorization = match wanted {
            Some(Challenge::Bearer {
                realm,
                service,
                scope,
            }) => Authorization::Token(self.token(&realm, service, scope).await?),
            Some(Challenge::Basic) if self.login.is_some() => Authorization::Basic,
            _ => return Err(self.refusal(StatusCode::UNAUTHORIZED)),
        };
        *self.authorization.lock().await = Some(authorization);
        Ok(())
    }

    async fn token(
        &self,
        realm: &str,
        service: Option<String>,
        scope: Option<String>,
    ) -> Result<String, ImageError> {
        let crooked = || {
            ImageError::Failed(format!(
                "{} asks for a token in a crooked way",
                self.name.host
            ))
        };
        let mut url = reqwest::Url::parse(realm).map_err(|_| crooked())?;
        let near = is_loopback(self.name.api()) && url.host_str().is_some_and(is_loopback);
        if url.scheme() != "https" && !near {
            return Err(ImageError::Failed(format!(
                "{} wants a token to be fetched without encryption",
                self.name.host
            )));
        }
        let own = || format!("repository:{}:pull", self.name.repository);
        url.query_pairs_mut()
            .append_pair("scope", &scope.unwrap_or_else(own));
        if let Some(service) = service {
            url.query_pairs_mut().append_pair("service", &service);
        }
        let mut request = self.client.get(url);
        if let Some(login) = &self.login {
            request = request.basic_auth(&login.user, Some(&login.password));
        }
        let answer = request.send().await.map_err(|error| self.broken(error))?;
        if !answer.status().is_success() {
            return Err(self.refusal(answer.status()));
        }
        let bytes = self.body(answer, MAX_TOKEN).await?;
        // Not the parser's words: they may quote the token.
        let tokens: TokenAnswer = serde_json::from_slice(&bytes).map_err(|_| crooked())?;
        tokens
            .token
            .or(tokens.access_token)
            .filter(|token| !token.is_empty())
            .ok_or_else(crooked)
    }

    fn shown(&self) -> String {
        let tag = self.name.tag.as_ref().map(|tag| format!(":{tag}"));
        format!(
            "{}/{}{}",
            self.name.host,
            self.name.repository,
            tag.unwrap_or_default()
        )
    }

    /// What a status means for the one who asked.
    fn refusal(&self, status: StatusCode) -> ImageError {
        let (host, image) = (&self.name.host, self.shown());
        match status {
            StatusCode::NOT_FOUND => ImageError::Invalid(format!(
                "{host} has no image {image} (or only for those who may see it)"
            )),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if self.login.is_some() => {
                ImageError::Unavailable(format!("{host} does not let this login have {image}"))
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ImageError::Unavailable(format!(
                "{host} gives {image} only to those who log in: run `podman login {host}` or `docker login {host}`, then pull again"
            )),
            StatusCode::TOO_MANY_REQUESTS => ImageError::Unavailable(format!(
                "{host} gives no more images for now (too many were asked for); wait, or log in"
            )),
            status => ImageError::Unavailable(format!("{host} answered {status}; try again later")),
        }
    }

    /// A broken exchange, without the address: it may carry a token.
    pub(crate) fn broken(&self, error: reqwest::Error) -> ImageError {
        let error = error.without_url();
        let mut text = error.to_string();
        let mut cause = std::error::Error::source(&error);
        while let Some(inner) = cause {
            text = format!("{text}: {inner}");
            cause = inner.source();
        }
        ImageError::Unavailable(format!("{}: {text}", self.name.host))
    }
}
