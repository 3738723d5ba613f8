//! Conversations begun: a session made or found, its agent running, its name known.

use super::Shared;
use super::attach::{Attached, attach};
use super::conversation::{Conversation, Start};
use super::rpc::{Message, RpcError};
use crate::commands::launch::{self, LaunchArgs};
use crate::context::Context;
use handler_types::session::SessionView;
use serde_json::Value;

/// What new conversations are made with, besides the editor's folder.
#[derive(Debug, Clone)]
pub struct Defaults {
    /// Options.
    pub launch: LaunchArgs,
    /// The agent, by id; none: the default one of the project that a conversation's folder is in.
    pub agent: Option<String>,
    /// No agent, whatever the folder.
    pub no_agent: bool,
    /// Where warnings go.
    pub context: Context,
}

/// Opens a conversation as the request says.
///
/// # Errors
/// What the editor is told instead.
pub(super) async fn open(
    shared: &Shared,
    message: &Message,
    start: Start,
) -> Result<Conversation, RpcError> {
    check_folders(&message.params)?;
    let session = match start {
        Start::New => make(shared, &message.params).await?,
        Start::Load | Start::Resume => {
            let id = message
                .session()
                .ok_or_else(|| RpcError::invalid("sessionId is missing"))?;
            shared.client.session(id).await?
        }
    };
    match begin(shared, &session, &message.params, start).await {
        Ok(attached) => Ok(Conversation::new(shared.clone(), &session, attached, start)),
        Err(error) => {
            if start == Start::New {
                // Nobody would know of it. One that cannot be removed now is listed as failed.
                shared.client.delete_session(session.id.as_str()).await.ok();
            }
            Err(error)
        }
    }
}

async fn make(shared: &Shared, params: &Value) -> Result<SessionView, RpcError> {
    let defaults = &shared.defaults;
    let folder = folder(params)?;
    let agent = match defaults.no_agent {
        true => None,
        false => launch::of(&shared.client, defaults.agent.as_deref(), folder).await?,
    };
    let session = defaults
        .launch
        .session(&shared.client, agent, folder, None, &defaults.context);
    let request = session.await?;
    Ok(shared.client.create_session(&request).await?)
}

async fn begin(
    shared: &Shared,
    session: &SessionView,
    params: &Value,
    start: Start,
) -> Result<Attached, RpcError> {
    let after = match start {
        Start::New | Start::Load => 0,
        Start::Resume => session.last_seq,
    };
    let cwd = folder(params)?;
    attach(&shared.client, session.id.as_str(), Some(cwd), after).await
}

fn folder(params: &Value) -> Result<&str, RpcError> {
    params
        .get("cwd")
        .and_then(Value::as_str)
        .filter(|cwd| cwd.starts_with('/'))
        .ok_or_else(|| RpcError::invalid("cwd must be the absolute path of the project's folder"))
}

/// A sandbox sees one folder. What is not shown is not promised.
fn check_folders(params: &Value) -> Result<(), RpcError> {
    let is_empty = |name: &str| {
        params
            .get(name)
            .is_none_or(|list| list.is_null() || list.as_array().is_some_and(Vec::is_empty))
    };
    if is_empty("additionalDirectories") {
        Ok(())
    } else {
        Err(RpcError::invalid(
            "a sandbox sees its project's folder only: open the folder above both, or leave additionalDirectories out",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_folder_must_be_named_and_only_one() {
        assert_eq!(folder(&json!({"cwd": "/p"})), Ok("/p"));
        for params in [
            json!({}),
            json!({"cwd": "p"}),
            json!({"cwd": 7}),
            json!(null),
        ] {
            assert!(folder(&params).is_err(), "{params}");
        }
        assert!(check_folders(&json!({"additionalDirectories": []})).is_ok());
        assert!(check_folders(&json!({"additionalDirectories": null})).is_ok());
        assert!(check_folders(&json!({"additionalDirectories": ["/etc"]})).is_err());
        assert!(check_folders(&json!({"additionalDirectories": "/etc"})).is_err());
    }
}
