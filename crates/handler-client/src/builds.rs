//! Images and builds: calls with bodies that stream, and following a build.

use crate::calls::Answer;
use crate::error::ClientError;
use crate::events::EventStream;
use crate::transport::{Client, encode};
use bytes::Bytes;
use handler_types::build::{BuildFrame, BuildView, ContextBuild};
use handler_types::image::ImageView;
use http::Method;
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;

/// Longest frame, bytes.
const MAX_FRAME: usize = 16 * 1024 * 1024;
/// Longest answer to an upload, bytes.
const MAX_ANSWER: usize = 1024 * 1024;

/// The frames of a build that is followed.
pub type BuildFrames = EventStream<BuildFrame>;

impl Client {
    /// One image with its configuration; a reference's slashes stay.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn image(&self, reference: &str, backend: Option<&str>) -> Answer<ImageView> {
        self.call(Method::GET, &image_path(reference, backend), None::<&()>)
            .await
    }

    /// Removes a name, and the image with its last one.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn delete_image(&self, reference: &str, backend: Option<&str>) -> Answer<()> {
        self.call(Method::DELETE, &image_path(reference, backend), None::<&()>)
            .await
    }

    /// Queues a build of a context: a tar archive that streams.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn build_context<B>(&self, request: &ContextBuild, archive: B) -> Answer<BuildView>
    where
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let request =
            serde_json::to_string(request).map_err(|e| ClientError::Unexpected(e.to_string()))?;
        self.upload(&format!("/v1/builds?request={}", encode(&request)), archive)
            .await
    }

    /// Queues the import of a root file system archive that streams.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn import_image<B>(
        &self,
        name: Option<&str>,
        backend: Option<&str>,
        archive: B,
    ) -> Answer<BuildView>
    where
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let mut path = "/v1/images/import".to_owned();
        let named = [("name", name), ("backend", backend)];
        for (at, (key, value)) in named
            .iter()
            .filter_map(|(k, v)| Some((k, (*v)?)))
            .enumerate()
        {
            path.push(if at == 0 { '?' } else { '&' });
            path.push_str(&format!("{key}={}", encode(value)));
        }
        self.upload(&path, archive).await
    }

    async fn upload<B, R: DeserializeOwned>(&self, path: &str, body: B) -> Answer<R>
    where
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let response = self
            .stream_as(Method::POST, path, "application/x-tar", body)
            .await?;
        let bytes = http_body_util::Limited::new(response.into_body(), MAX_ANSWER)
            .collect()
            .await
            .map_err(ClientError::Broken)?
            .to_bytes();
        serde_json::from_slice(&bytes).map_err(|e| ClientError::Unexpected(e.to_string()))
    }

    /// The log of a build from an offset, at most 1 MiB of whole lines.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn build_log(&self, id: &str, offset: u64) -> Answer<String> {
        let path = format!("/v1/builds/{}/log?offset={offset}", encode(id));
        let bytes = self.call_raw(Method::GET, &path, None::<&()>).await?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Follows a build from an offset of its log to its end.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn follow_build(&self, id: &str, offset: u64) -> Answer<BuildFrames> {
        let path = format!("/v1/builds/{}/follow?offset={offset}", encode(id));
        self.follow(&path, MAX_FRAME).await
    }
}

fn image_path(reference: &str, backend: Option<&str>) -> String {
    let reference: Vec<String> = reference.split('/').map(encode).collect();
    let mut path = format!("/v1/images/{}", reference.join("/"));
    if let Some(backend) = backend {
        path.push_str(&format!("?backend={}", encode(backend)));
    }
    path
}
