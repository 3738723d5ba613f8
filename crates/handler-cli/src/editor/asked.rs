//! What agents have asked the editor: their ids are unique in one conversation only, so the editor sees others.

use super::rpc::Message;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc::Sender;

/// Questions without an answer.
#[derive(Default)]
pub(super) struct Asked {
    questions: Mutex<Questions>,
}

#[derive(Default)]
struct Questions {
    next: u64,
    open: HashMap<String, Question>,
}

struct Question {
    conversation: String,
    /// Of the agent's request.
    id: Value,
    to: Sender<Message>,
}

impl Asked {
    /// Notes a request of a conversation and gives it the id that the editor sees.
    pub(super) fn ask(&self, conversation: &str, message: &mut Message, to: &Sender<Message>) {
        let mut questions = self.lock();
        questions.next += 1;
        let id = format!("{conversation}-{}", questions.next);
        let question = Question {
            conversation: conversation.to_owned(),
            id: message.id.replace(json!(id)).unwrap_or_default(),
            to: to.clone(),
        };
        questions.open.insert(id, question);
    }

    /// Whose an answer is; it has the agent's id then. None: nobody waits for it.
    pub(super) fn answer(&self, message: &mut Message) -> Option<Sender<Message>> {
        let id = message.id.as_ref()?.as_str()?;
        let question = self.lock().open.remove(id)?;
        message.id = Some(question.id);
        Some(question.to)
    }

    /// Takes back a question that somebody else has answered; gives the id the editor knows.
    pub(super) fn withdraw(&self, conversation: &str, id: &Value) -> Option<String> {
        let mut questions = self.lock();
        let is_it =
            |question: &Question| question.conversation == conversation && question.id == *id;
        let name = questions
            .open
            .iter()
            .find(|(_, question)| is_it(question))?
            .0
            .clone();
        questions.open.remove(&name);
        Some(name)
    }

    /// Takes back all questions of a conversation whose connection is gone.
    pub(super) fn withdraw_all(&self, conversation: &str) -> Vec<String> {
        let mut questions = self.lock();
        let (gone, open) = std::mem::take(&mut questions.open)
            .into_iter()
            .partition(|(_, question)| question.conversation == conversation);
        questions.open = open;
        let gone: HashMap<String, Question> = gone;
        gone.into_keys().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Questions> {
        self.questions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc;

    fn request(id: u64) -> Message {
        let text = format!(r#"{{"id":{id},"method":"session/request_permission","params":{{}}}}"#);
        Message::parse(text.as_bytes()).expect("request")
    }

    fn answer(id: &Value) -> Message {
        Message::parse(json!({"id": id, "result": {}}).to_string().as_bytes()).expect("answer")
    }

    #[test]
    fn equal_ids_of_two_conversations_find_their_own_agents_once() {
        let asked = Asked::default();
        let (one, two) = (mpsc::channel(1).0, mpsc::channel(1).0);
        let (mut first, mut second) = (request(5), request(5));
        asked.ask("s_1", &mut first, &one);
        asked.ask("s_2", &mut second, &two);
        let (first, second) = (first.id.expect("id"), second.id.expect("id"));
        assert_ne!(first, second);
        let mut reply = answer(&second);
        assert!(asked.answer(&mut reply).expect("waits").same_channel(&two));
        assert_eq!(reply.id, Some(json!(5)));
        assert!(asked.answer(&mut answer(&second)).is_none(), "only once");
        assert!(
            asked.answer(&mut answer(&json!(5))).is_none(),
            "the agent's own id is no answer"
        );
        assert!(
            asked
                .answer(&mut answer(&first))
                .expect("waits")
                .same_channel(&one)
        );
    }

    #[test]
    fn what_was_answered_elsewhere_is_withdrawn() {
        let asked = Asked::default();
        let to = mpsc::channel(1).0;
        let (mut one, mut two, mut other) = (request(1), request(2), request(1));
        asked.ask("s_1", &mut one, &to);
        asked.ask("s_1", &mut two, &to);
        asked.ask("s_2", &mut other, &to);
        let name = asked.withdraw("s_1", &json!(1)).expect("is open");
        assert_eq!(json!(name), one.id.expect("id"));
        assert_eq!(asked.withdraw("s_1", &json!(1)), None);
        assert_eq!(asked.withdraw_all("s_1").len(), 1);
        assert!(
            asked.withdraw("s_2", &json!(1)).is_some(),
            "another's stays"
        );
    }
}
