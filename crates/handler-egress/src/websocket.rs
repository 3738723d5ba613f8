//! WebSocket frames of one direction, swapped as they stream: unmasked, looked through across the
//! fragments of a message, masked again. Pure.
//!
//! Invariant: at most a head, a control frame, and the end of a message that could begin a needle are held.
//! A message in one frame stays one frame of the same length; one in fragments may be cut differently.
//! Extensions are never agreed on, so payloads are plain; what is no frame ends the connection.

mod head;

pub(crate) use head::{Head, Opcode};

use crate::scan::{Leak, Needles, Scanner, wiped};
use bytes::Bytes;
use zeroize::Zeroizing;

/// Longest payload of a control frame.
const LONGEST_CONTROL: u64 = 125;

/// Who sends the frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sender {
    /// Its frames are masked.
    Client,
    /// Its frames are not.
    Server,
}

/// Why a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// These are no frames.
    Malformed,
    /// A phantom was going where it must not.
    Leak(usize),
}

impl From<Leak> for Broken {
    fn from(Leak(secret): Leak) -> Self {
        Self::Leak(secret)
    }
}

/// A message under way.
#[derive(Debug, Clone, Copy)]
struct Message {
    opcode: Opcode,
    /// Whether a fragment of it has been given out.
    begun: bool,
}

/// Where in the frames we are.
#[derive(Debug)]
enum Place {
    /// At a head, of which so much is there.
    Head(Vec<u8>),
    /// In a payload: so much of it is taken in and, for frames given as they are, given out.
    Payload { head: Head, taken: u64, given: u64 },
    /// In a control frame, looked at whole.
    Control(Head, Zeroizing<Vec<u8>>),
    /// Behind a close frame nothing may come.
    Closed,
}

/// Swaps in the frames of one direction.
#[derive(Debug)]
pub(crate) struct Frames {
    sender: Sender,
    scanner: Scanner,
    place: Place,
    message: Option<Message>,
}

impl Frames {
    /// At the beginning.
    pub(crate) fn new(sender: Sender, needles: Needles) -> Self {
        Self {
            sender,
            scanner: Scanner::new(needles),
            place: Place::Head(Vec::new()),
            message: None,
        }
    }

    /// Whether everything given out so far is whole frames.
    pub(crate) fn is_between(&self) -> bool {
        !matches!(self.place, Place::Payload { head, .. } if head.last)
    }

    /// Takes bytes in and adds to `out` what is settled. Secrets found are added to `found`.
    pub(crate) fn push(
        &mut self,
        mut data: &[u8],
        out: &mut Vec<u8>,
        found: &mut Vec<usize>,
    ) -> Result<(), Broken> {
        loop {
            match &mut self.place {
                Place::Closed if data.is_empty() => return Ok(()),
                Place::Closed => return Err(Broken::Malformed),
                Place::Head(bytes) => {
                    let Some(head) = Head::read(bytes, &mut data)? else {
                        return Ok(());
                    };
                    self.begin(head, out)?;
                }
                Place::Payload { head, taken, .. } => {
                    let left = head.length - *taken;
                    if left > 0 && data.is_empty() {
                        return Ok(());
                    }
                    let (piece, rest) = split(data, left);
                    data = rest;
                    self.payload(piece, out, found)?;
                }
                Place::Control(head, payload) => {
                    let left = head.length - payload.len() as u64;
                    if left > 0 && data.is_empty() {
                        return Ok(());
                    }
                    let (piece, rest) = split(data, left);
                    data = rest;
                    payload.extend_from_slice(piece);
                    if piece.len() as u64 == left {
                        self.control(out, found)?;
                    }
                }
            }
        }
    }

    /// Checks a head, and gives it out if its frame goes on as it is.
    fn begin(&mut self, head: Head, out: &mut Vec<u8>) -> Result<(), Broken> {
        if head.key.is_some() != (self.sender == Sender::Client) {
            return Err(Broken::Malformed);
        }
        if head.opcode.is_control() {
            if !head.last || head.length > LONGEST_CONTROL {
                return Err(Broken::Malformed);
            }
            self.place = Place::Control(head, Zeroizing::default());
            return Ok(());
        }
        let continues = head.opcode == Opcode::Continuation;
        let begun = match self.message {
            None if !continues => false,
            Some(message) if continues => message.begun,
            _ => return Err(Broken::Malformed),
        };
        let opcode = self.message.map_or(head.opcode, |message| message.opcode);
        self.message = Some(Message { opcode, begun });
        if head.last {
            let held = self.scanner.held() as u64;
            let length = head.length.checked_add(held).ok_or(Broken::Malformed)?;
            self.write_head(head, length, out);
        }
        let (taken, given) = (0, 0);
        self.place = Place::Payload { head, taken, given };
        Ok(())
    }

    /// Writes the head of a frame of the message under way, with this length.
    fn write_head(&mut self, head: Head, length: u64, out: &mut Vec<u8>) {
        let Some(message) = &mut self.message else {
            return;
        };
        let opcode = match message.begun {
            true => Opcode::Continuation,
            false => message.opcode,
        };
        message.begun = true;
        Head {
            opcode,
            length,
            ..head
        }
        .write(out);
    }

    /// Swaps a piece of a payload; at the end of the frame, and of the message, goes on.
    fn payload(
        &mut self,
        piece: &[u8],
        out: &mut Vec<u8>,
        found: &mut Vec<usize>,
    ) -> Result<(), Broken> {
        let Place::Payload { head, taken, given } = &mut self.place else {
            return Err(Broken::Malformed);
        };
        let (head, from) = (*head, *given);
        let text = Zeroizing::new(head.masked(piece, *taken));
        *taken += piece.len() as u64;
        let complete = *taken == head.length;
        let settled = self.scanner.push(wiped(text), found)?;
        self.give(head, &settled, from, out);
        if complete && head.last {
            let rest = self.scanner.finish(found)?;
            self.give(head, &rest, from + settled.len() as u64, out);
            self.message = None;
        }
        if complete {
            self.place = Place::Head(Vec::new());
        }
        Ok(())
    }

    /// Gives out a piece of the message: in the frame whose head has gone out, or in one of its own.
    fn give(&mut self, head: Head, text: &Bytes, from: u64, out: &mut Vec<u8>) {
        if text.is_empty() {
            return;
        }
        if head.last {
            out.extend_from_slice(&head.masked(text, from));
            if let Place::Payload { given, .. } = &mut self.place {
                *given = from + text.len() as u64;
            }
        } else {
            self.write_head(head, text.len() as u64, out);
            out.extend_from_slice(&head.masked(text, 0));
        }
    }

    /// A control frame that is there whole.
    fn control(&mut self, out: &mut Vec<u8>, found: &mut Vec<usize>) -> Result<(), Broken> {
        let next = Place::Head(Vec::new());
        let Place::Control(head, payload) = std::mem::replace(&mut self.place, next) else {
            return Err(Broken::Malformed);
        };
        let text = Zeroizing::new(head.masked(&payload, 0));
        let swapped = self.scanner.needles().rewrite(&text, found)?;
        head.write(out);
        out.extend_from_slice(&head.masked(&swapped.unwrap_or(text), 0));
        if head.opcode == Opcode::Close {
            self.place = Place::Closed;
        }
        Ok(())
    }
}

fn split(data: &[u8], left: u64) -> (&[u8], &[u8]) {
    let length = usize::try_from(left).unwrap_or(usize::MAX).min(data.len());
    data.split_at(length)
}

/// A close frame, to be sent to whom `sender` sends to.
pub(crate) fn close_frame(sender: Sender, code: u16) -> Vec<u8> {
    let head = Head {
        last: true,
        opcode: Opcode::Close,
        // The text is no secret and nothing an attacker chose.
        key: (sender == Sender::Client).then_some([0; 4]),
        length: 2,
    };
    let mut out = Vec::new();
    head.write(&mut out);
    out.extend_from_slice(&head.masked(&code.to_be_bytes(), 0));
    out
}

#[cfg(test)]
mod tests;
