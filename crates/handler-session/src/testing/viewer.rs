//! A viewer for tests: speaks ACP to a session and waits for what it expects.

use crate::attach::{ViewerEvent, ViewerReceiver, ViewerSender};
use crate::core::SessionHandle;
use bytes::Bytes;
use serde_json::{Value, json};
use std::time::Duration;

/// One attached viewer.
#[derive(Debug)]
pub struct TestViewer {
    sender: ViewerSender,
    receiver: ViewerReceiver,
    next_id: u64,
    /// Everything received so far.
    pub seen: Vec<Value>,
}

impl TestViewer {
    /// Attaches without saying anything.
    ///
    /// # Panics
    /// When the session has ended.
    pub async fn attach(session: &SessionHandle) -> Self {
        let (sender, receiver) = session.attach().await.expect("the session takes viewers");
        Self {
            sender,
            receiver,
            next_id: 0,
            seen: Vec::new(),
        }
    }

    /// Attaches and loads the events after `after_seq`.
    ///
    /// # Panics
    /// When that fails.
    pub async fn load(session: &SessionHandle, scope: &str, after_seq: u64) -> Self {
        let mut viewer = Self::attach(session).await;
        let id = session.state().borrow().acp_session_id.clone();
        let answer = viewer
            .call(
                "session/load",
                json!({"sessionId": id, "cwd": scope, "mcpServers": [],
                "_meta": {"handler.dev/afterSeq": after_seq}}),
            )
            .await;
        assert!(answer.get("result").is_some(), "load failed: {answer}");
        viewer
    }

    /// Sends text as it is.
    ///
    /// # Panics
    /// When the session has ended.
    pub async fn raw(&self, text: impl Into<Bytes>) {
        self.sender
            .send(text.into())
            .await
            .expect("the session listens");
    }

    /// Sends a request; gives its id.
    pub async fn request(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.raw(message.to_string()).await;
        id
    }

    /// Sends a request and waits for its answer.
    pub async fn call(&mut self, method: &str, params: Value) -> Value {
        let id = self.request(method, params).await;
        self.answer_to(id).await
    }

    /// Waits for the answer to a request.
    pub async fn answer_to(&mut self, id: u64) -> Value {
        self.until("an answer", move |m| {
            m.get("method").is_none() && m["id"] == json!(id)
        })
        .await
    }

    /// Waits for the next message or the close.
    ///
    /// # Panics
    /// After 20 s.
    pub async fn next(&mut self) -> ViewerEvent {
        let event = tokio::time::timeout(Duration::from_secs(20), self.receiver.next()).await;
        let event = event.expect("the viewer got nothing for 20 s");
        if let ViewerEvent::Frame(frame) = &event {
            self.seen
                .push(serde_json::from_slice(frame).expect("viewers get JSON"));
        }
        event
    }

    /// Waits for a message that fits.
    ///
    /// # Panics
    /// After 20 s without any message, or when the viewer is closed.
    pub async fn until(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        loop {
            match self.next().await {
                ViewerEvent::Frame(_) => {
                    let message = self.seen.last().cloned().unwrap_or_default();
                    if fits(&message) {
                        return message;
                    }
                }
                ViewerEvent::Close { code, reason } => {
                    panic!(
                        "closed with {code} {reason} while waiting for {what}; seen {:#?}",
                        self.seen
                    )
                }
            }
        }
    }

    /// Waits for a notification or request of this method.
    pub async fn method(&mut self, method: &str) -> Value {
        self.until(method, |message| message["method"] == method)
            .await
    }

    /// Waits for the close.
    pub async fn closed(&mut self) -> (u16, String) {
        loop {
            if let ViewerEvent::Close { code, reason } = self.next().await {
                return (code, reason);
            }
        }
    }

    /// Sequence numbers of the updates seen.
    #[must_use]
    pub fn seqs(&self) -> Vec<u64> {
        self.seen
            .iter()
            .filter_map(|message| message["params"]["_meta"]["handler.dev/seq"].as_u64())
            .collect()
    }

    /// Texts of the updates of one kind.
    #[must_use]
    pub fn texts(&self, kind: &str) -> Vec<String> {
        self.seen
            .iter()
            .map(|message| &message["params"]["update"])
            .filter(|update| update["sessionUpdate"] == kind)
            .filter_map(|update| update["content"]["text"].as_str().map(ToOwned::to_owned))
            .collect()
    }
}

impl TestViewer {
    /// The result of the last answer seen.
    #[must_use]
    pub fn answer_to_last(&self) -> Value {
        let answers = self
            .seen
            .iter()
            .rev()
            .filter(|message| message.get("method").is_none());
        answers
            .map(|message| message["result"].clone())
            .next()
            .unwrap_or_default()
    }
}
