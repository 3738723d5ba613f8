//! Reading: lines that fit, from a place on.

use super::{files, line};
use handler_types::SandboxId;
use handler_types::audit::{AuditRecord, AuditWhat};
use handler_types::egress::EgressDecision;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader, Seek as _, SeekFrom};
use std::path::Path;

/// Which lines are wanted.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Only behind this number.
    pub after: u64,
    /// Not before, milliseconds since the epoch.
    pub since: Option<i64>,
    /// Before, milliseconds since the epoch.
    pub until: Option<i64>,
    /// Only about this sandbox or session (its whole id).
    pub about: Option<String>,
    /// Only events with this decision.
    pub decision: Option<EgressDecision>,
    /// Only about hosts with this text in them, lower case.
    pub host: Option<String>,
    /// Only the last so many; else the first.
    pub last: bool,
    /// At most so many.
    pub most: usize,
}

/// Where reading goes on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Place {
    /// Number of the file's first line.
    file: u64,
    /// Bytes of it that were read.
    offset: u64,
}

impl Wanted {
    fn fits(&self, record: &AuditRecord) -> bool {
        record.seq > self.after
            && self.since.is_none_or(|since| record.t >= since)
            && self.until.is_none_or(|until| record.t < until)
            && self.about.as_ref().is_none_or(|id| is_about(record, id))
            && self.decision.is_none_or(|wanted| {
                matches!(&record.what, AuditWhat::Egress { event } if event.decision == wanted)
            })
            && self.host.as_ref().is_none_or(|host| names(record, host))
    }
}

fn is_about(record: &AuditRecord, id: &str) -> bool {
    let (sandbox, session) = match &record.what {
        AuditWhat::Egress { event } => (Some(event.sandbox.as_str()), event.session.as_ref()),
        AuditWhat::Policy { change } => {
            let sandbox = change.sandbox.as_ref().map(SandboxId::as_str);
            (sandbox, change.session.as_ref())
        }
        // What is missing may be about any.
        AuditWhat::Gap { .. } => return true,
        _ => return false,
    };
    sandbox == Some(id) || session.is_some_and(|session| session.as_str() == id)
}

fn names(record: &AuditRecord, host: &str) -> bool {
    match &record.what {
        AuditWhat::Egress { event } => event.host.to_ascii_lowercase().contains(host),
        AuditWhat::Policy { change } => change
            .added
            .iter()
            .chain(&change.removed)
            .any(|entry| entry.to_string().contains(host)),
        _ => false,
    }
}

/// Lines that fit behind a place (none: all), and where the next look goes on. A line that says nothing is left out.
///
/// # Errors
/// The disk's.
pub fn read(
    folder: &Path,
    wanted: &Wanted,
    from: Option<Place>,
) -> io::Result<(Vec<AuditRecord>, Place)> {
    let all = files::list(folder)?;
    let begin = match from {
        Some(place) => all.partition_point(|first| *first < place.file),
        // The last file that begins at or before the first line wanted.
        None => all
            .partition_point(|first| *first <= wanted.after.saturating_add(1))
            .saturating_sub(1),
    };
    let mut found = VecDeque::new();
    let mut place = from.unwrap_or_default();
    for first in &all[begin.min(all.len())..] {
        let offset = if place.file == *first {
            place.offset
        } else {
            0
        };
        place = Place {
            file: *first,
            offset,
        };
        if read_file(folder, wanted, &mut place, &mut found)? {
            break;
        }
    }
    Ok((found.into(), place))
}

/// Reads a file on; whether there is enough.
fn read_file(
    folder: &Path,
    wanted: &Wanted,
    place: &mut Place,
    found: &mut VecDeque<AuditRecord>,
) -> io::Result<bool> {
    let mut file = match File::open(files::path(folder, place.file)) {
        Ok(file) => file,
        // Retired meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    file.seek(SeekFrom::Start(place.offset))?;
    let mut reader = BufReader::new(file);
    let mut text = Vec::new();
    loop {
        if !wanted.last && found.len() >= wanted.most {
            return Ok(true);
        }
        let read = line::next(&mut reader, &mut text)?;
        let Some(whole) = line::whole(&text) else {
            return Ok(false);
        };
        place.offset += read as u64;
        let Some(record) = line::parse(whole).filter(|record| wanted.fits(record)) else {
            continue;
        };
        if wanted.last && found.len() >= wanted.most.max(1) {
            found.pop_front();
        }
        found.push_back(record);
    }
}
