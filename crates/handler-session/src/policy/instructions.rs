//! P9: an agent's instructions stand before the first prompt of a conversation, in its first text block.
//!
//! The agent program reads them as the beginning of what it is asked, whatever program it is; viewers and the log
//! have the prompt as it was written.

use serde_json::{Value, json};

/// The prompt's blocks with the instructions, a blank line between them and the text.
#[must_use]
pub fn before(instructions: &str, mut blocks: Vec<Value>) -> Vec<Value> {
    let text = blocks.iter_mut().find(|block| block["type"] == "text");
    match text.filter(|block| block["text"].is_string()) {
        Some(block) => {
            let asked = block["text"].as_str().unwrap_or_default();
            block["text"] = json!(format!("{instructions}\n\n{asked}"));
        }
        None => blocks.insert(0, json!({"type": "text", "text": instructions})),
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_come_before_the_first_text_whatever_else_is_in_the_prompt() {
        let text = |text: &str| json!({"type": "text", "text": text});
        let image = json!({"type": "image", "data": "aGk=", "mimeType": "image/png"});
        let noted = json!({"type": "text", "text": "do", "annotations": {"priority": 1}});
        for (given, gives) in [
            (vec![text("do")], vec![text("be\n\ndo")]),
            (
                vec![image.clone(), text("a"), text("b")],
                vec![image.clone(), text("be\n\na"), text("b")],
            ),
            (vec![image.clone()], vec![text("be"), image]),
            (vec![], vec![text("be")]),
            (
                vec![noted],
                vec![json!({"type": "text", "text": "be\n\ndo", "annotations": {"priority": 1}})],
            ),
        ] {
            assert_eq!(before("be", given), gives);
        }
    }
}
