//! What the task holds of the disk: the writer, once it could be opened, and what could not be written.

use super::Last;
use super::numbers::{Numbers, Place};
use handler_base::clock::now_ms;
use handler_store::audit::{AuditError, AuditSizes, AuditWriter};
use handler_types::audit::{AuditWhat, GapPlace, PolicyChange};
use handler_types::egress::EgressEvent;
use std::path::PathBuf;

#[derive(Debug)]
pub(super) struct Disk {
    folder: PathBuf,
    writer: Option<AuditWriter>,
    numbers: Numbers,
    /// Lines that could not be written since the last that was.
    lost: u64,
}

impl Disk {
    pub(super) fn new(folder: PathBuf) -> Self {
        Self {
            folder,
            writer: None,
            numbers: Numbers::default(),
            lost: 0,
        }
    }

    /// The last line.
    pub(super) fn last(&self) -> Last {
        let (seq, hash) = self.writer.as_ref()?.last();
        Some((seq, hash.to_owned()))
    }

    /// Writes events and a change; what cannot be written is counted and told by the next line that can.
    pub(super) fn write(&mut self, events: Vec<EgressEvent>, change: Option<Box<PolicyChange>>) {
        if let Err(error) = self.ready() {
            self.lose(events.len() as u64 + u64::from(change.is_some()), &error);
            return;
        }
        let mut lines = Vec::new();
        if self.lost > 0 {
            lines.push(gap(self.lost, GapPlace::Disk));
        }
        let told = lines.len();
        for event in events {
            match self.numbers.take(&event) {
                Place::Known => continue,
                Place::Next(0) => {}
                Place::Next(missed) => lines.push(gap(missed, GapPlace::Filter)),
            }
            lines.push(AuditWhat::Egress { event });
        }
        let durable = change.is_some();
        lines.extend(change.map(|change| AuditWhat::Policy { change }));
        self.append(lines, told, durable);
    }

    /// `told` lines in front say what was lost before.
    fn append(&mut self, lines: Vec<AuditWhat>, told: usize, durable: bool) {
        let Some(writer) = &mut self.writer else {
            return;
        };
        let count = lines.len();
        match writer.append(now_ms(), lines, durable) {
            Ok(()) => self.lost = 0,
            Err((written, error)) => {
                if written >= told {
                    self.lost = 0;
                }
                self.lose((count - written.max(told).min(count)) as u64, &error);
            }
        }
    }

    fn lose(&mut self, count: u64, error: &AuditError) {
        self.lost += count;
        let chain = crate::http::problem::chain(error);
        tracing::error!(error = chain, lost = self.lost, "the audit log");
    }

    fn ready(&mut self) -> Result<(), AuditError> {
        if self.writer.is_some() {
            return Ok(());
        }
        let mut writer = AuditWriter::open(&self.folder, AuditSizes::default())?;
        self.numbers = Numbers::behind(writer.last_event());
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let started = vec![AuditWhat::Started { version }];
        writer
            .append(now_ms(), started, false)
            .map_err(|(_, error)| error)?;
        self.writer = Some(writer);
        Ok(())
    }
}

fn gap(missed: u64, place: GapPlace) -> AuditWhat {
    AuditWhat::Gap { missed, place }
}
