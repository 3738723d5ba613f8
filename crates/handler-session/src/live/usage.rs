//! What a turn used, as its agent says in the answer to the prompt.

use serde_json::{Map, Value, json};

/// Fields of ACP's `usage`; what an agent leaves out stays out.
const FIELDS: [&str; 6] = [
    "inputTokens",
    "outputTokens",
    "totalTokens",
    "cachedReadTokens",
    "cachedWriteTokens",
    "thoughtTokens",
];

/// Where Gemini CLI tells it instead (observed with 0.46), and which fields those are.
const QUOTA: &str = "/_meta/quota/token_count";
const QUOTA_FIELDS: [(&str, &str); 2] = [
    ("input_tokens", "inputTokens"),
    ("output_tokens", "outputTokens"),
];

/// The counts in an answer to `session/prompt`; none when it has none.
pub(super) fn of_answer(result: &Value) -> Option<Value> {
    let mut counts = Map::new();
    for field in FIELDS {
        if let Some(count) = result["usage"][field].as_u64() {
            counts.insert(field.to_owned(), json!(count));
        }
    }
    if counts.is_empty() {
        let quota = result.pointer(QUOTA)?;
        for (theirs, field) in QUOTA_FIELDS {
            if let Some(count) = quota[theirs].as_u64() {
                counts.insert(field.to_owned(), json!(count));
            }
        }
    }
    (!counts.is_empty()).then(|| Value::Object(counts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_taken_as_agents_tell_them() {
        for (answer, expected) in [
            (
                json!({"stopReason": "end_turn", "usage": {"inputTokens": 200, "outputTokens": 40, "x": "y", "totalTokens": 240}}),
                Some(json!({"inputTokens": 200, "outputTokens": 40, "totalTokens": 240})),
            ),
            (
                json!({"stopReason": "end_turn", "_meta": {"quota": {"token_count": {"input_tokens": 200, "output_tokens": 40}}}}),
                Some(json!({"inputTokens": 200, "outputTokens": 40})),
            ),
            (
                json!({"stopReason": "cancelled", "usage": null, "_meta": {"quota": {"token_count": null}}}),
                None,
            ),
            (
                json!({"stopReason": "end_turn", "usage": {"inputTokens": -1, "outputTokens": "many"}}),
                None,
            ),
            (json!({"stopReason": "end_turn"}), None),
            (json!(7), None),
        ] {
            assert_eq!(of_answer(&answer), expected, "{answer}");
        }
    }
}
