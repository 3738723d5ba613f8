//! A content coding undone, and done again around what is swapped in between.

use crate::coding::{Coding, Corrupt, Decoded, Decoder, Encoder};
use crate::share::Part;
use bytes::Bytes;

/// The way of a body from its coding to text and, if wanted, back.
#[derive(Debug)]
pub(crate) struct Recode {
    decoder: Decoder,
    again: bool,
    encoder: Option<Encoder>,
    _room: Part,
}

/// What comes out of the coding.
#[derive(Debug)]
pub(crate) enum Step {
    /// Text to be swapped.
    Text(Bytes),
    /// Nothing until more bytes come.
    Hungry,
    /// No more text.
    End,
}

impl Recode {
    /// With `again` the coding is done again. The room is given back at the end.
    pub(crate) fn new(coding: Coding, again: bool, room: Part) -> Self {
        Self {
            decoder: Decoder::new(coding),
            again,
            encoder: None,
            _room: room,
        }
    }

    /// Puts coded bytes in.
    pub(crate) fn push(&mut self, data: &Bytes) {
        self.decoder.push(data);
    }

    /// Tells that no more coded bytes come.
    pub(crate) fn close(&mut self) {
        self.decoder.close();
    }

    /// Takes text out.
    pub(crate) fn step(&mut self) -> Result<Step, Corrupt> {
        let decoded = self.decoder.step()?;
        if self.again && self.encoder.is_none() && self.decoder.has_begun() {
            self.encoder = Some(Encoder::new(self.decoder.coding())?);
        }
        Ok(match decoded {
            Decoded::Text(text) => Step::Text(text),
            Decoded::Hungry => Step::Hungry,
            Decoded::End => Step::End,
        })
    }

    /// Text that was swapped, as it goes on; `last` ends it.
    pub(crate) fn pass(&mut self, text: Bytes, last: bool) -> Result<Bytes, Corrupt> {
        let Some(encoder) = &mut self.encoder else {
            return Ok(text);
        };
        let coded = encoder.push(&text)?;
        match self.encoder.take_if(|_| last) {
            None => Ok(coded),
            Some(encoder) => Ok([coded, encoder.finish()?].concat().into()),
        }
    }

    /// Everything that waits in the coding, so that it can be read now.
    pub(crate) fn flush(&mut self) -> Result<Bytes, Corrupt> {
        match &mut self.encoder {
            Some(encoder) => encoder.flush(),
            None => Ok(Bytes::new()),
        }
    }
}

#[cfg(test)]
mod tests;
