//! What a scripted model is started with.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// How a [`ScriptedModel`](crate::ScriptedModel) listens, whom it answers and what it remembers.
#[derive(Clone)]
pub struct ScriptedConfig {
    /// Port on 127.0.0.1; 0 lets the system choose one.
    pub port: u16,
    /// When set, every request but `/` is refused with 401 unless it carries exactly this key.
    pub expect_key: Option<String>,
    /// Pause before each word of a `slow` answer.
    pub word_delay: Duration,
    /// File that gets one JSON line per request, **with** the headers and therefore the keys: it
    /// exists to prove which key arrived. Created readable by its owner only.
    pub log: Option<PathBuf>,
    /// How many of the newest requests stay readable through
    /// [`requests`](crate::ScriptedModel::requests); at least 1.
    pub keep_requests: usize,
}

impl Default for ScriptedConfig {
    fn default() -> Self {
        Self {
            port: 0,
            expect_key: None,
            word_delay: Duration::from_millis(100),
            log: None,
            keep_requests: 200,
        }
    }
}

impl fmt::Debug for ScriptedConfig {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ScriptedConfig")
            .field("port", &self.port)
            .field("expect_key", &self.expect_key.as_ref().map(|_| "(hidden)"))
            .field("word_delay", &self.word_delay)
            .field("log", &self.log)
            .field("keep_requests", &self.keep_requests)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_text_hides_the_key() {
        let config = ScriptedConfig {
            expect_key: Some("sk-very-real".into()),
            ..ScriptedConfig::default()
        };
        let shown = format!("{config:?}");
        assert!(
            shown.contains("(hidden)") && !shown.contains("sk-very-real"),
            "{shown}"
        );
    }
}
