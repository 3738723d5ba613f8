//! The messages the daemon writes itself, as JSON text without a line end.

use super::envelope::RawId;
use super::raw::{RawObject, to_raw};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Key of the sequence number in `params._meta`.
pub const META_SEQ: &str = "handler.dev/seq";
/// Key of the sequence number after which a viewer wants events, in `params._meta` of `session/load`.
pub const META_AFTER_SEQ: &str = "handler.dev/afterSeq";

#[derive(Serialize)]
struct Wire<'a, P: Serialize + ?Sized> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<&'a P>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a P>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a P>,
}

fn text<P: Serialize + ?Sized>(wire: &Wire<'_, P>) -> Vec<u8> {
    serde_json::to_vec(wire).expect("plain data always serializes")
}

const fn wire<'a, P: Serialize + ?Sized>() -> Wire<'a, P> {
    Wire {
        jsonrpc: "2.0",
        id: None,
        method: None,
        params: None,
        result: None,
        error: None,
    }
}

/// A request with an id of the daemon's own.
pub fn request<P: Serialize + ?Sized>(id: u64, method: &str, params: Option<&P>) -> Vec<u8> {
    let id = RawId::from_number(id).to_raw();
    text(&Wire {
        id: Some(&id),
        method: Some(method),
        params,
        ..wire()
    })
}

/// A request with any id.
pub fn request_as<P: Serialize + ?Sized>(id: &RawId, method: &str, params: &P) -> Vec<u8> {
    let id = id.to_raw();
    text(&Wire {
        id: Some(&id),
        method: Some(method),
        params: Some(params),
        ..wire()
    })
}

/// A notification.
pub fn notification<P: Serialize + ?Sized>(method: &str, params: Option<&P>) -> Vec<u8> {
    text(&Wire {
        method: Some(method),
        params,
        ..wire()
    })
}

/// A response with a result.
pub fn result<P: Serialize + ?Sized>(id: &RawId, result: &P) -> Vec<u8> {
    let id = id.to_raw();
    text(&Wire {
        id: Some(&id),
        result: Some(result),
        ..wire()
    })
}

/// A response with an error; `policy` names the policy step that refused.
#[must_use]
pub fn error(id: Option<&RawId>, code: i32, message: &str, policy: Option<&str>) -> Vec<u8> {
    let mut error = json!({"code": code, "message": message});
    if let Some(step) = policy {
        error["data"] = json!({"policy": step});
    }
    let id = id.map_or_else(|| to_raw(&Value::Null), RawId::to_raw);
    text(&Wire {
        id: Some(&id),
        error: Some(&error),
        ..wire()
    })
}

/// A `session/update` for viewers with its sequence number, from the agent's own `params` when there are
/// any: everything but `sessionId` and the number stays as it came.
pub fn update<U: Serialize + ?Sized>(
    session: &str,
    update: &U,
    params: Option<RawObject>,
    seq: Option<u64>,
) -> Vec<u8> {
    let mut params = params.unwrap_or_else(|| {
        let mut made = RawObject::default();
        made.put("sessionId", session);
        made.put("update", update);
        made
    });
    params.put("sessionId", session);
    let mut meta = params.object("_meta").unwrap_or_default();
    match seq {
        Some(seq) => meta.put(META_SEQ, &seq),
        // The key is the daemon's; an agent must not make a viewer believe in a number.
        None => meta.remove(META_SEQ),
    }
    if meta.is_empty() {
        params.remove("_meta");
    } else {
        params.put("_meta", &meta);
    }
    notification("session/update", Some(&params))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(bytes: &[u8]) -> &str {
        std::str::from_utf8(bytes).expect("text")
    }

    #[test]
    fn an_update_keeps_unknown_members_and_gets_its_number() {
        let params = RawObject::parse(
            br#"{"sessionId":"old","update":{"sessionUpdate":"new_kind","x":1.50},"_meta":{"handler.dev/seq":99,"v":null},"more":[ ]}"#,
        )
        .expect("params");
        assert_eq!(
            shown(&update("s", &Value::Null, Some(params.clone()), Some(4))),
            r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"new_kind","x":1.50},"_meta":{"handler.dev/seq":4,"v":null},"more":[ ]}}"#
        );
        assert_eq!(
            shown(&update("s", &Value::Null, Some(params), None)),
            r#"{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"new_kind","x":1.50},"_meta":{"v":null},"more":[ ]}}"#
        );
    }

    #[test]
    fn an_error_names_its_policy_step() {
        assert_eq!(
            shown(&error(None, -32001, "no", Some("P2"))),
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"no","data":{"policy":"P2"}}}"#
        );
    }
}
