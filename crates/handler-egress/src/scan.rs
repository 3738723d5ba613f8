//! Finding stand-ins and values in bytes and swapping them, whole or in pieces. Pure.
//!
//! Invariant: the result does not depend on where the bytes were split. No more is held back than the
//! longest needle with every character escaped, less one byte, and only what could begin a needle.
//! Needles are found escaped, too ([`Form`]); where [`Needles::keeps_length`], the length stays.

use crate::form::{self, Form};
use crate::settings::{Rules, Secret};
use crate::target::Target;
use bytes::Bytes;
use memchr::memmem::Finder;
use std::fmt;
use std::sync::Arc;
use zeroize::Zeroizing;

use search::{Hit, Search, first};

/// What to do where a needle is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// The phantom: its value is put there.
    Give,
    /// The phantom, going where it must not: the request is refused.
    Leak,
    /// The value: the phantom is put there.
    Mask,
}

#[derive(Debug, Clone, Copy)]
struct Needle {
    secret: usize,
    role: Role,
}

/// What to look for, in one direction of one exchange.
#[derive(Clone)]
pub(crate) struct Needles {
    rules: Arc<Rules>,
    list: Vec<Needle>,
    /// One for each, made once.
    finders: Arc<[Finder<'static>]>,
    longest: usize,
    form: Form,
    /// Which ASCII characters some needle has.
    characters: u128,
}

/// A text with needles swapped, as far as that is settled.
struct Swapped {
    /// The settled text.
    text: Zeroizing<Vec<u8>>,
    /// How much of the input it stands for; the rest waits for more.
    settled: usize,
    /// Whether anything was found in it.
    changed: bool,
}

/// A phantom was found where it must not be: position of its secret in the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Leak(pub(crate) usize);

impl Needles {
    /// For a request to `target`. `clear` says that its bytes go out unencrypted: a value is never
    /// given so on the port of https.
    pub(crate) fn for_request(rules: Arc<Rules>, target: &Target, clear: bool) -> Self {
        let gives = |secret: &Secret| secret.is_for(target) && !(clear && target.port == 443);
        let mut list: Vec<Needle> = Vec::with_capacity(rules.secrets.len());
        for (position, secret) in rules.secrets.iter().enumerate() {
            let role = if gives(secret) {
                Role::Give
            } else {
                Role::Leak
            };
            let same =
                |needle: &&mut Needle| rules.secrets[needle.secret].phantom == secret.phantom;
            match list.iter_mut().find(same) {
                // One secret bound twice, with different hosts.
                Some(known) if role == Role::Give && known.role == Role::Leak => {
                    *known = Needle {
                        secret: position,
                        role,
                    };
                }
                Some(_) => {}
                None => list.push(Needle {
                    secret: position,
                    role,
                }),
            }
        }
        Self::new(rules, list)
    }

    /// For a response from `target`: every value, but only if some secret is given to it.
    pub(crate) fn for_response(rules: Arc<Rules>, target: &Target) -> Self {
        let mut list: Vec<Needle> = Vec::new();
        if rules.injects_to(target) {
            for (position, secret) in rules.secrets.iter().enumerate() {
                let same =
                    |needle: &&mut Needle| rules.secrets[needle.secret].value == secret.value;
                match list.iter_mut().find(same) {
                    Some(known) if secret.is_for(target) => known.secret = position,
                    Some(_) => {}
                    None => list.push(Needle {
                        secret: position,
                        role: Role::Mask,
                    }),
                }
            }
        }
        Self::new(rules, list)
    }

    fn new(rules: Arc<Rules>, list: Vec<Needle>) -> Self {
        let mut needles = Self {
            rules,
            list,
            finders: Arc::default(),
            longest: 0,
            form: Form::Loose,
            characters: 0,
        };
        let (mut longest, mut characters) = (0, 0);
        for needle in &needles.list {
            let sought = needles.sought(*needle);
            longest = longest.max(sought.len());
            characters |= sought.iter().fold(0, |all, byte| all | bit(*byte));
        }
        let finder = |needle: &Needle| Finder::new(needles.sought(*needle)).into_owned();
        needles.finders = needles.list.iter().map(finder).collect();
        needles.longest = longest;
        needles.characters = characters;
        needles
    }

    /// The same, in a text of this form.
    pub(crate) fn in_form(mut self, form: Form) -> Self {
        self.form = form;
        self
    }

    /// Whether there is nothing to look for.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether a text has the same length after swapping, whatever is found in it.
    pub(crate) fn keeps_length(&self) -> bool {
        self.list.iter().all(|needle| {
            self.replacement(*needle)
                .is_none_or(|put| self.form.keeps_length(self.sought(*needle), put))
        })
    }

    /// Swaps in a whole text; `None` if nothing was found. Secrets found are added to `found`.
    pub(crate) fn rewrite(
        &self,
        text: &[u8],
        found: &mut Vec<usize>,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, Leak> {
        if !self.may_occur_in(text) {
            return Ok(None);
        }
        let swapped = self.swap(text, true, found)?;
        Ok(swapped.changed.then_some(swapped.text))
    }

    /// Cheap: whether a needle, or an escape that matters, is in the text.
    fn may_occur_in(&self, text: &[u8]) -> bool {
        self.has_escapes(text)
            || self
                .finders
                .iter()
                .any(|finder| finder.find(text).is_some())
    }

    fn has_escapes(&self, text: &[u8]) -> bool {
        form::has_escapes(text, |byte| self.characters & bit(byte) != 0)
    }

    fn sought(&self, needle: Needle) -> &[u8] {
        let secret = &self.rules.secrets[needle.secret];
        match needle.role {
            Role::Give | Role::Leak => secret.phantom.as_bytes(),
            Role::Mask => secret.value.as_bytes(),
        }
    }

    fn replacement(&self, needle: Needle) -> Option<&[u8]> {
        let secret = &self.rules.secrets[needle.secret];
        match needle.role {
            Role::Give => Some(secret.value.as_bytes()),
            Role::Mask => Some(secret.phantom.as_bytes()),
            Role::Leak => None,
        }
    }

    /// Swaps leftmost first and the longest of two needles at one place; with `last` nothing waits.
    fn swap(&self, buf: &[u8], last: bool, found: &mut Vec<usize>) -> Result<Swapped, Leak> {
        let search = Search::new(self, buf, last);
        let mut next: Vec<Option<Hit>> = search.all_from(0);
        let mut text = Zeroizing::new(Vec::with_capacity(buf.len()));
        let (mut from, mut settled) = (0, search.begins_at(0));
        let mut changed = false;
        while let Some((hit, index)) = first(&next).filter(|(hit, _)| hit.start < settled) {
            let needle = self.list[index];
            let Some(replacement) = self.replacement(needle) else {
                return Err(Leak(needle.secret));
            };
            text.extend_from_slice(&buf[from..hit.start]);
            let was = &buf[hit.start..hit.end];
            let sought = self.sought(needle);
            self.form
                .replace(was, hit.escaped, sought, replacement, &mut text);
            changed = true;
            from = hit.end;
            if !found.contains(&needle.secret) {
                found.push(needle.secret);
            }
            search.refresh(&mut next, from);
            if settled < from {
                settled = search.begins_at(from);
            }
        }
        text.extend_from_slice(&buf[from..settled]);
        Ok(Swapped {
            text,
            settled,
            changed,
        })
    }
}

fn bit(byte: u8) -> u128 {
    1u128.checked_shl(u32::from(byte)).unwrap_or(0)
}

impl fmt::Debug for Needles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Needles")
            .field("count", &self.list.len())
            .finish_non_exhaustive()
    }
}

/// Swaps in a stream.
pub(crate) struct Scanner {
    needles: Needles,
    held: Zeroizing<Vec<u8>>,
}

impl Scanner {
    /// Nothing held yet.
    pub(crate) fn new(needles: Needles) -> Self {
        Self {
            needles,
            held: Zeroizing::default(),
        }
    }

    /// What is looked for.
    pub(crate) fn needles(&self) -> &Needles {
        &self.needles
    }

    /// Bytes taken in and not yet given out.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    /// Takes bytes in and gives out those that are settled, which may be none.
    pub(crate) fn push(&mut self, mut chunk: Bytes, found: &mut Vec<usize>) -> Result<Bytes, Leak> {
        if self.needles.is_empty() {
            return Ok(chunk);
        }
        if self.held.is_empty() && !self.needles.may_occur_in(&chunk) {
            // The usual case: nothing is copied.
            let waits = Search::new(&self.needles, &chunk, false).begins_at(0);
            self.held.extend_from_slice(&chunk[waits..]);
            chunk.truncate(waits);
            return Ok(chunk);
        }
        let mut buf = std::mem::take(&mut self.held);
        buf.extend_from_slice(&chunk);
        let swapped = self.needles.swap(&buf, false, found)?;
        self.held.extend_from_slice(&buf[swapped.settled..]);
        Ok(wiped(swapped.text))
    }

    /// Gives out the rest: nothing more comes.
    pub(crate) fn finish(&mut self, found: &mut Vec<usize>) -> Result<Bytes, Leak> {
        let buf = std::mem::take(&mut self.held);
        if buf.is_empty() {
            return Ok(Bytes::new());
        }
        Ok(wiped(self.needles.swap(&buf, true, found)?.text))
    }
}

/// Bytes that are wiped when the last that holds them lets go.
pub(crate) fn wiped(text: Zeroizing<Vec<u8>>) -> Bytes {
    if text.is_empty() {
        return Bytes::new();
    }
    Bytes::from_owner(text)
}

impl fmt::Debug for Scanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scanner")
            .field("held", &self.held.len())
            .finish_non_exhaustive()
    }
}

mod search;
#[cfg(test)]
mod tests;
