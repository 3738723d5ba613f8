//! `handler sandbox cp` and `files`.

use super::Outcome;
use crate::context::Context;
use crate::exit::Failure;
use bytes::Bytes;
use handler_client::transport::encode;
use handler_types::guest::FileKind;
use http::Method;
use http_body_util::{BodyExt as _, Empty, StreamBody};
use hyper::body::Frame;
use std::io::Write as _;
use tokio::io::AsyncReadExt as _;

fn split(text: &str) -> Option<(&str, &str)> {
    text.split_once(':')
        .filter(|(sandbox, path)| !sandbox.contains('/') && !path.is_empty())
}

/// Copies one file in or out.
///
/// # Errors
/// [`Failure`]; an interrupted copy out leaves no half file.
pub async fn copy(from: &str, to: &str, context: &Context) -> Outcome {
    match (split(from), split(to)) {
        (Some((sandbox, path)), None) => download(sandbox, path, to, context).await,
        (None, Some((sandbox, path))) => upload(from, sandbox, path, context).await,
        _ => Err(Failure::Usage("exactly one side is SANDBOX:PATH".into())),
    }
}

async fn download(sandbox: &str, path: &str, to: &str, context: &Context) -> Outcome {
    let client = context.client()?;
    let address = format!(
        "/v1/sandboxes/{}/files?path={}",
        encode(sandbox),
        encode(path)
    );
    let response = client
        .stream(Method::GET, &address, Empty::<Bytes>::new())
        .await?;
    let mut target = std::path::PathBuf::from(to);
    if target.is_dir() {
        target.push(path.rsplit('/').next().unwrap_or(path));
    }
    let part = target.with_file_name(format!(".handler-{}", handler_base::random::hex(6)));
    let wrap = |e| Failure::local(format!("cannot write {}", target.display()), e);
    let mut file = std::fs::File::create_new(&part).map_err(wrap)?;
    let mut body = response.into_body();
    let result: Result<(), Failure> = async {
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|e| handler_client::ClientError::Broken(Box::new(e)))?;
            if let Some(data) = frame.data_ref() {
                file.write_all(data).map_err(wrap)?;
            }
        }
        std::fs::rename(&part, &target).map_err(wrap)
    }
    .await;
    if result.is_err() {
        std::fs::remove_file(&part).ok();
    }
    result.map(|()| 0)
}

async fn upload(from: &str, sandbox: &str, path: &str, context: &Context) -> Outcome {
    let wrap = |e| Failure::local(format!("cannot read {from}"), e);
    let file = tokio::fs::File::open(from).await.map_err(wrap)?;
    if file.metadata().await.map_err(wrap)?.is_dir() {
        return Err(Failure::Usage(format!(
            "{from} is a folder; copy its files one by one"
        )));
    }
    let pieces = futures::stream::unfold(file, |mut file| async {
        let mut buffer = vec![0; 64 * 1024];
        match file.read(&mut buffer).await {
            Ok(0) => None,
            Ok(count) => {
                buffer.truncate(count);
                Some((Ok(Frame::data(Bytes::from(buffer))), file))
            }
            Err(error) => Some((Err(error), file)),
        }
    });
    let address = format!(
        "/v1/sandboxes/{}/files?path={}&parents=true",
        encode(sandbox),
        encode(path)
    );
    let body = StreamBody::new(Box::pin(pieces));
    let response = context
        .client()?
        .stream(Method::PUT, &address, body)
        .await?;
    let answer = response
        .into_body()
        .collect()
        .await
        .map_err(|e| handler_client::ClientError::Broken(Box::new(e)))?;
    if context.out.json {
        context.out.bytes(&answer.to_bytes());
        context.out.line("");
    }
    Ok(0)
}

/// Lists a folder.
///
/// # Errors
/// [`Failure`].
pub async fn list(at: &str, depth: u32, context: &Context) -> Outcome {
    let (sandbox, path) =
        split(at).ok_or_else(|| Failure::Usage("write SANDBOX:PATH, e.g. box:/tmp".into()))?;
    let listing = context.client()?.list_dir(sandbox, path, depth).await?;
    context.out.show(&listing, |out, listing| {
        let rows: Vec<Vec<String>> = listing
            .entries
            .iter()
            .map(|e| {
                let kind = match e.kind {
                    FileKind::Folder => "d",
                    FileKind::Link => "l",
                    FileKind::File => "-",
                    FileKind::Other => "?",
                };
                vec![
                    format!("{kind}{:04o}", e.mode & 0o7777),
                    e.size.to_string(),
                    e.path.clone(),
                ]
            })
            .collect();
        out.table(&["MODE", "SIZE", "PATH"], &rows);
        if listing.truncated {
            out.note("more entries exist than are listed");
        }
    });
    Ok(0)
}
