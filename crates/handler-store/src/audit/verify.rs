//! Checking: every line refers to the one before it, and nothing went without being told.

use super::{files, line};
use handler_types::audit::{AuditBreak, AuditVerdict, AuditWhat};
use std::fs::File;
use std::io::{self, BufReader};
use std::path::Path;

/// What is known while the chain is followed.
struct Chain {
    verdict: AuditVerdict,
    /// What the next line must refer to; none before the first.
    prev: Option<String>,
    /// What the first line kept refers to, when it is not the first of all.
    begins: Option<(u64, String)>,
    /// A line told of the removal of what was before.
    is_told: bool,
    /// Lines behind this one are not looked at: they are being written.
    until: u64,
}

impl Chain {
    fn new(until: Option<u64>) -> Self {
        Self {
            verdict: AuditVerdict {
                head: line::zero(),
                ..AuditVerdict::default()
            },
            prev: None,
            begins: None,
            is_told: false,
            until: until.unwrap_or(u64::MAX),
        }
    }
}

/// Follows the chain over all files. `last` is the line that was written last, where that is known; what a writer
/// adds meanwhile is not looked at.
///
/// # Errors
/// The disk's.
pub fn verify(folder: &Path, last: Option<(u64, &str)>) -> io::Result<AuditVerdict> {
    let mut chain = Chain::new(last.map(|last| last.0));
    for first in files::list(folder)? {
        chain.verdict.files += 1;
        let name = files::name(first);
        let broken = |(line, reason): (u64, &str)| AuditBreak {
            file: name.clone(),
            line,
            reason: reason.to_owned(),
        };
        let file = File::open(files::path(folder, first))?;
        if let Some(found) = chain.file(BufReader::new(file), first)? {
            chain.verdict.broken = Some(broken(found));
            return Ok(chain.verdict);
        }
    }
    chain.settle(last);
    Ok(chain.verdict)
}

impl Chain {
    /// Follows one file; the first line that is wrong.
    fn file(
        &mut self,
        mut reader: impl io::BufRead,
        first: u64,
    ) -> io::Result<Option<(u64, &'static str)>> {
        let (mut text, mut number) = (Vec::new(), 0);
        while self.verdict.last < self.until && line::next(&mut reader, &mut text)? > 0 {
            number += 1;
            if let Err(reason) = self.line(&text, (number == 1).then_some(first)) {
                return Ok(Some((number, reason)));
            }
        }
        Ok(None)
    }

    fn line(&mut self, text: &[u8], named: Option<u64>) -> Result<(), &'static str> {
        let whole = line::whole(text).ok_or("it is cut off")?;
        let record = line::parse(whole).ok_or("it cannot be read")?;
        if named.is_some_and(|first| first != record.seq) {
            return Err("the file's name is not that of its first line");
        }
        match &self.prev {
            Some(prev) if *prev != record.prev => {
                return Err("the line before it is not the one that was written there");
            }
            Some(_) if record.seq != self.verdict.last.saturating_add(1) => {
                return Err("its number does not follow");
            }
            Some(_) => {}
            None => {
                self.verdict.first = record.seq;
                let is_first = record.seq == 1 && record.prev == line::zero();
                self.begins =
                    (!is_first).then(|| (record.seq.saturating_sub(1), record.prev.clone()));
            }
        }
        match &record.what {
            AuditWhat::Retired { through, hash } => {
                let told = Some((*through, hash.clone()));
                self.is_told |= told == self.begins;
            }
            AuditWhat::Gap { missed, .. } => {
                self.verdict.missed = self.verdict.missed.saturating_add(*missed);
            }
            _ => {}
        }
        self.verdict.records += 1;
        self.verdict.last = record.seq;
        self.verdict.head = line::hash(whole);
        self.prev = Some(self.verdict.head.clone());
        Ok(())
    }

    /// Both ends of the chain.
    fn settle(&mut self, last: Option<(u64, &str)>) {
        let reason = if self.begins.is_some() && !self.is_told {
            "lines before the first one are gone, and no line tells of it"
        } else if last
            .is_some_and(|(seq, hash)| (seq, hash) != (self.verdict.last, &self.verdict.head))
        {
            "lines at the end are not those that the daemon wrote last"
        } else {
            self.verdict.ok = true;
            return;
        };
        self.verdict.broken = Some(AuditBreak {
            file: String::new(),
            line: 0,
            reason: reason.to_owned(),
        });
    }
}
