//! Effects carried out, in order. Nothing here decides.

use super::Owner;
use crate::acp::build;
use crate::disk::DiskError;
use crate::live::{Effect, Input, UpdateEffect, record};

impl Owner {
    /// Writes an input down, takes it in and carries out what follows.
    pub(super) fn input(&mut self, input: Input) -> Result<(), DiskError> {
        self.disk.note_input(self.line_offset, &input)?;
        self.run_input(input)
    }

    /// Takes in an input that is written down already.
    pub(super) fn run_input(&mut self, input: Input) -> Result<(), DiskError> {
        let mut effects = Vec::new();
        self.state.on_input(input, &mut effects);
        self.carry_out(effects)
    }

    /// Takes in one line of the agent.
    pub(super) fn line(&mut self, line: &[u8], offset: u64) -> Result<(), DiskError> {
        let mut effects = Vec::new();
        self.state.on_line(line, offset, &mut effects);
        self.carry_out(effects)?;
        self.line_offset = offset;
        Ok(())
    }

    fn carry_out(&mut self, effects: Vec<Effect>) -> Result<(), DiskError> {
        self.is_dirty = true;
        for effect in effects {
            match effect {
                Effect::Send(bytes) => {
                    self.disk.send(&bytes)?;
                    self.link.input.send_replace(self.disk.stdin());
                }
                Effect::Update(update) => self.update(update)?,
                Effect::Record(event) => {
                    self.disk.append(event)?;
                }
                Effect::Reply { viewer, frame } => self.roster.reply(viewer, frame),
                Effect::Show { frame, except } => self.roster.show(&frame.into(), except),
                Effect::Changed | Effect::Ready => self.is_changed = true,
                Effect::Ended { reason } => self.ended = Some(reason),
                Effect::Dropped(why) => {
                    tracing::debug!(session = %self.config.id, why, "a message was not passed on");
                }
            }
        }
        Ok(())
    }

    fn update(&mut self, effect: UpdateEffect) -> Result<(), DiskError> {
        let UpdateEffect {
            update,
            params,
            is_logged,
            offset,
            except,
        } = effect;
        let shown = params.is_none().then(|| update.clone());
        let seq = match is_logged {
            true => Some(self.disk.append(record::update(update, offset))?),
            false => None,
        };
        if self.roster.count() > 0 {
            let frame = build::update(self.state.session(), &shown, params, seq);
            self.roster.update(&frame.into(), except);
        }
        Ok(())
    }
}
