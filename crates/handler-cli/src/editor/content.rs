//! Prompts as the session's agent can read them. An editor is told what agents can do before it is known which one
//! will be asked, so what this one lacks is written in another way, or refused.

use super::rpc::RpcError;
use serde_json::{Value, json};

/// Changes the blocks of a prompt for an agent with these `agentCapabilities`.
///
/// # Errors
/// For an image or sound that the agent cannot take.
pub(super) fn adapt(params: &mut Value, capabilities: &Value) -> Result<(), RpcError> {
    let takes = |what: &str| {
        capabilities.pointer(&format!("/promptCapabilities/{what}")) == Some(&Value::Bool(true))
    };
    let Some(blocks) = params.get_mut("prompt").and_then(Value::as_array_mut) else {
        return Ok(());
    };
    for block in blocks {
        let kind = block
            .get("type")
            .and_then(Value::as_str)
            .unwrap_or_default();
        match kind {
            "resource" if !takes("embeddedContext") => *block = as_text(block),
            "image" | "audio" if !takes(kind) => {
                return Err(RpcError::invalid(format!(
                    "this agent takes no {kind} in a prompt; put the file into the folder and name it"
                )));
            }
            _ => {}
        }
    }
    Ok(())
}

/// An embedded file as text, or as a link when it is no text.
fn as_text(block: &Value) -> Value {
    let uri = block
        .pointer("/resource/uri")
        .and_then(Value::as_str)
        .unwrap_or_default();
    match block.pointer("/resource/text").and_then(Value::as_str) {
        Some(text) => json!({"type": "text",
            "text": format!("<context ref=\"{uri}\">\n{text}\n</context>")}),
        None => {
            let name = uri.rsplit('/').next().unwrap_or(uri);
            json!({"type": "resource_link", "uri": uri, "name": name})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adapted(block: Value, capabilities: &Value) -> Result<Value, RpcError> {
        let mut params = json!({"sessionId": "s", "prompt": [block]});
        adapt(&mut params, capabilities)?;
        Ok(params["prompt"][0].clone())
    }

    #[test]
    fn an_agent_gets_what_it_can_read() {
        let nothing = json!({});
        let all = json!({"promptCapabilities": {"embeddedContext": true, "image": true}});
        let file =
            json!({"type": "resource", "resource": {"uri": "file:///p/a.txt", "text": "hello"}});
        let bytes =
            json!({"type": "resource", "resource": {"uri": "file:///p/a.bin", "blob": "AA=="}});
        let image = json!({"type": "image", "data": "AA==", "mimeType": "image/png"});
        let text = json!({"type": "text", "text": "x"});
        for block in [&file, &bytes, &image, &text] {
            assert_eq!(adapted(block.clone(), &all).as_ref(), Ok(block));
        }
        assert_eq!(adapted(text.clone(), &nothing), Ok(text));
        let written = adapted(file, &nothing).expect("text");
        assert_eq!(
            written["text"],
            "<context ref=\"file:///p/a.txt\">\nhello\n</context>"
        );
        let link = adapted(bytes, &nothing).expect("link");
        assert_eq!(
            (&link["type"], &link["name"]),
            (&json!("resource_link"), &json!("a.bin"))
        );
        assert!(adapted(image, &nothing).is_err());
        assert!(
            adapt(&mut json!({"prompt": "x"}), &nothing).is_ok(),
            "the daemon says what is wrong"
        );
    }
}
