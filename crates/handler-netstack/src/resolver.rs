//! What the filter said of names, for a moment: a program asks for each name twice or more at once.

use crate::{filter, limits};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use tokio::time::Instant;

/// Most words remembered; more are asked for again.
const MOST: usize = 1024;

/// The filter's words.
#[derive(Debug, Default)]
pub(crate) struct Resolver {
    words: RefCell<HashMap<String, (bool, Instant)>>,
}

impl Resolver {
    /// Whether a name is listed; none: the filter cannot be asked.
    pub(crate) async fn is_listed(&self, socket: &Path, name: &str) -> Option<bool> {
        let known = self.words.borrow().get(name).copied();
        if let Some((listed, at)) = known
            && at.elapsed() < limits::WORD
        {
            return Some(listed);
        }
        let listed = filter::is_listed(socket, name).await.ok()?;
        let mut words = self.words.borrow_mut();
        if words.len() >= MOST {
            words.retain(|_, (_, at)| at.elapsed() < limits::WORD);
        }
        if words.len() < MOST {
            words.insert(name.to_owned(), (listed, Instant::now()));
        }
        Some(listed)
    }
}
