//! Finding stand-ins and values in bytes and swapping them, whole or in pieces. Pure.
//!
//! Invariant: the result does not depend on where the bytes were split, and has exactly the length of
//! the input. At most `longest needle - 1` bytes are held back, and only if they could begin one.

use crate::settings::{Rules, Secret};
use crate::target::Target;
use bytes::Bytes;
use memchr::memmem;
use std::fmt;
use std::sync::Arc;

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
    longest: usize,
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
        let longest = list
            .iter()
            .map(|needle| rules.secrets[needle.secret].phantom.len())
            .max()
            .unwrap_or(0);
        Self {
            rules,
            list,
            longest,
        }
    }

    /// Whether there is nothing to look for.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The same, finding leaks only: for bytes that must not be changed.
    pub(crate) fn only_leaks(mut self) -> Self {
        self.list.retain(|needle| needle.role == Role::Leak);
        Self::new(self.rules, self.list)
    }

    /// Swaps in a whole text; `None` if nothing was found. Secrets found are added to `found`.
    pub(crate) fn rewrite(
        &self,
        text: &[u8],
        found: &mut Vec<usize>,
    ) -> Result<Option<Vec<u8>>, Leak> {
        if !self.occurs_in(text) {
            return Ok(None);
        }
        let mut copy = text.to_vec();
        self.swap(&mut copy, true, found)?;
        Ok(Some(copy))
    }

    fn occurs_in(&self, text: &[u8]) -> bool {
        self.list
            .iter()
            .any(|needle| memmem::find(text, self.sought(*needle)).is_some())
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

    /// Swaps in place, leftmost first and the longest of two at one place. Gives the position from
    /// which bytes must wait for more; with `last` nothing waits.
    fn swap(&self, buf: &mut [u8], last: bool, found: &mut Vec<usize>) -> Result<usize, Leak> {
        let finders: Vec<_> = self
            .list
            .iter()
            .map(|needle| memmem::Finder::new(self.sought(*needle)))
            .collect();
        let mut next: Vec<Option<usize>> = finders.iter().map(|finder| finder.find(buf)).collect();
        let mut from = 0;
        let mut waits = self.begins_at(buf, from, last);
        loop {
            let best = next
                .iter()
                .enumerate()
                .filter_map(|(index, at)| at.map(|at| (at, index)))
                .min_by_key(|(at, index)| (*at, usize::MAX - finders[*index].needle().len()));
            let Some((at, index)) = best.filter(|(at, _)| *at < waits) else {
                return Ok(waits);
            };
            let needle = self.list[index];
            let Some(replacement) = self.replacement(needle) else {
                return Err(Leak(needle.secret));
            };
            from = at + replacement.len();
            buf[at..from].copy_from_slice(replacement);
            if !found.contains(&needle.secret) {
                found.push(needle.secret);
            }
            for (finder, at) in finders.iter().zip(&mut next) {
                if at.is_some_and(|at| at < from) {
                    *at = finder.find(&buf[from..]).map(|more| from + more);
                }
            }
            if waits < from {
                waits = self.begins_at(buf, from, last);
            }
        }
    }

    /// The first position, not before `from`, whose rest is the beginning of a needle.
    fn begins_at(&self, buf: &[u8], from: usize, last: bool) -> usize {
        if last || self.longest == 0 {
            return buf.len();
        }
        let first = from.max(buf.len().saturating_sub(self.longest - 1));
        (first..buf.len())
            .find(|at| {
                let rest = &buf[*at..];
                self.list.iter().any(|needle| {
                    let sought = self.sought(*needle);
                    rest.len() < sought.len() && sought.starts_with(rest)
                })
            })
            .unwrap_or(buf.len())
    }
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
    held: Vec<u8>,
}

impl Scanner {
    /// Nothing held yet.
    pub(crate) fn new(needles: Needles) -> Self {
        Self {
            needles,
            held: Vec::new(),
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
        if self.held.is_empty() && !self.needles.occurs_in(&chunk) {
            // The usual case: nothing is copied.
            let waits = self.needles.begins_at(&chunk, 0, false);
            self.held.extend_from_slice(&chunk[waits..]);
            chunk.truncate(waits);
            return Ok(chunk);
        }
        let mut buf = std::mem::take(&mut self.held);
        buf.extend_from_slice(&chunk);
        let waits = self.needles.swap(&mut buf, false, found)?;
        self.held.extend_from_slice(&buf[waits..]);
        buf.truncate(waits);
        Ok(Bytes::from(buf))
    }

    /// Gives out the rest: nothing more comes.
    pub(crate) fn finish(&mut self, found: &mut Vec<usize>) -> Result<Bytes, Leak> {
        let mut buf = std::mem::take(&mut self.held);
        if !buf.is_empty() {
            self.needles.swap(&mut buf, true, found)?;
        }
        Ok(Bytes::from(buf))
    }
}

impl fmt::Debug for Scanner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scanner")
            .field("held", &self.held.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
