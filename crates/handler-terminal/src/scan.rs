//! Cuts a terminal's output into whole units: runs of text, single controls, escape and control sequences, strings.
//!
//! Invariant: what does not end yet is kept here and nowhere else, at most [`MAX_STRING`] bytes of it, so that
//! [`Scanner::pending`] followed by the rest of the stream means the same to another terminal.

/// Longest string sequence (title, working folder, state) that is understood, bytes. Longer ones are skipped.
const MAX_STRING: usize = 64 * 1024;
/// Longest control sequence that is understood, bytes.
const MAX_CSI: usize = 512;

const ESC: u8 = 0x1b;
const CAN: u8 = 0x18;
const SUB: u8 = 0x1a;
const BEL: u8 = 0x07;

/// A whole unit of the stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unit<'a> {
    /// Text with simple controls in it, but neither shifts nor escapes.
    Run(&'a [u8]),
    /// A control within a sequence, or a shift.
    Control(u8),
    /// An escape sequence, from ESC on.
    Escape(&'a [u8]),
    /// A control sequence, from ESC on.
    Csi(&'a [u8]),
    /// An operating system command: what is between its introducer and its end.
    Osc(&'a [u8]),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    #[default]
    Ground,
    /// Within a character of several bytes.
    Character,
    Escape,
    Csi,
    Osc,
    /// Device control and other strings nobody here reads.
    Other,
}

/// The cutter.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    state: State,
    /// The unit under way, from its first byte on.
    unit: Vec<u8>,
    is_too_long: bool,
}

impl Scanner {
    /// Bytes of the unit that has not ended.
    pub(crate) fn pending(&self) -> &[u8] {
        &self.unit
    }

    /// Cuts `bytes`, giving each whole unit to `take`.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], mut take: impl FnMut(Unit<'_>)) {
        while let Some(&first) = bytes.first() {
            if self.state == State::Ground {
                bytes = self.ground(bytes, &mut take);
            } else {
                // A byte that cuts a character short belongs to what follows.
                let is_taken = self.step(first, &mut take);
                bytes = &bytes[usize::from(is_taken)..];
            }
        }
    }

    /// Takes a run of text; returns what follows it.
    fn ground<'a>(&mut self, bytes: &'a [u8], take: &mut impl FnMut(Unit<'_>)) -> &'a [u8] {
        let end = memchr::memchr3(ESC, 0x0e, 0x0f, bytes).unwrap_or(bytes.len());
        let run = &bytes[..end];
        let whole = whole_characters(run, end < bytes.len());
        if whole > 0 {
            take(Unit::Run(&run[..whole]));
        }
        if whole < end {
            self.unit.extend_from_slice(&run[whole..]);
            self.state = State::Character;
            return &bytes[end..];
        }
        match bytes.get(end) {
            Some(&ESC) => self.begin(),
            Some(&shift) => take(Unit::Control(shift)),
            None => return &[],
        }
        &bytes[end + 1..]
    }

    fn begin(&mut self) {
        self.unit.clear();
        self.unit.push(ESC);
        self.is_too_long = false;
        self.state = State::Escape;
    }

    fn leave(&mut self) {
        self.unit.clear();
        self.state = State::Ground;
    }

    /// Takes a byte outside of text; whether it was used up.
    fn step(&mut self, byte: u8, take: &mut impl FnMut(Unit<'_>)) -> bool {
        match self.state {
            State::Ground => return false,
            State::Character => return self.character(byte, take),
            State::Escape => self.escape(byte, take),
            State::Csi => self.csi(byte, take),
            State::Osc | State::Other => self.string(byte, take),
        }
        true
    }

    fn character(&mut self, byte: u8, take: &mut impl FnMut(Unit<'_>)) -> bool {
        let goes_on = byte & 0xc0 == 0x80;
        if goes_on {
            self.unit.push(byte);
            let so_far = std::str::from_utf8(&self.unit);
            if so_far.is_err_and(|error| error.error_len().is_none()) {
                return true;
            }
        }
        // Whole, or broken: the emulator shows nothing for it then.
        take(Unit::Run(&self.unit));
        self.leave();
        goes_on
    }

    fn escape(&mut self, byte: u8, take: &mut impl FnMut(Unit<'_>)) {
        let is_first = self.unit.len() == 1;
        match byte {
            ESC => self.begin(),
            CAN | SUB => self.leave(),
            0..=0x1f => take(Unit::Control(byte)),
            0x20..=0x2f if self.unit.len() < 8 => self.unit.push(byte),
            b'[' if is_first => self.enter(byte, State::Csi),
            b']' if is_first => self.enter(byte, State::Osc),
            b'P' | b'X' | b'^' | b'_' if is_first => self.enter(byte, State::Other),
            0x30..=0x7e => {
                self.unit.push(byte);
                take(Unit::Escape(&self.unit));
                self.leave();
            }
            0x7f => {}
            _ => self.leave(),
        }
    }

    fn enter(&mut self, byte: u8, state: State) {
        self.unit.push(byte);
        self.state = state;
    }

    fn csi(&mut self, byte: u8, take: &mut impl FnMut(Unit<'_>)) {
        match byte {
            ESC => self.begin(),
            CAN | SUB => self.leave(),
            0..=0x1f => take(Unit::Control(byte)),
            0x20..=0x3f => self.keep(byte, MAX_CSI),
            0x40..=0x7e => {
                self.unit.push(byte);
                if !self.is_too_long {
                    take(Unit::Csi(&self.unit));
                }
                self.leave();
            }
            _ => {}
        }
    }

    fn keep(&mut self, byte: u8, limit: usize) {
        if self.unit.len() < limit {
            self.unit.push(byte);
        } else {
            self.is_too_long = true;
        }
    }

    fn string(&mut self, byte: u8, take: &mut impl FnMut(Unit<'_>)) {
        let is_osc = self.state == State::Osc;
        match byte {
            CAN | SUB => self.leave(),
            ESC => {
                self.end_osc(take);
                self.begin();
            }
            BEL if is_osc => {
                self.end_osc(take);
                self.leave();
            }
            _ if is_osc => self.keep(byte, MAX_STRING),
            _ => {}
        }
    }

    fn end_osc(&mut self, take: &mut impl FnMut(Unit<'_>)) {
        if self.state == State::Osc && !self.is_too_long {
            take(Unit::Osc(&self.unit[2..]));
        }
    }
}

/// How much of a run can be drawn: all of it but a character that may still go on behind its end.
fn whole_characters(run: &[u8], is_followed: bool) -> usize {
    if is_followed {
        return run.len();
    }
    // The last character starts within the last four bytes.
    let from = run.len().saturating_sub(4);
    let Some(start) = run[from..].iter().rposition(|b| b & 0xc0 != 0x80) else {
        return run.len();
    };
    let start = from + start;
    match std::str::from_utf8(&run[start..]) {
        Err(error) if error.error_len().is_none() => start,
        _ => run.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn units(pieces: &[&[u8]]) -> Vec<String> {
        let mut scanner = Scanner::default();
        let mut all = Vec::new();
        for piece in pieces {
            scanner.feed(piece, |unit| all.push(format!("{unit:?}")));
        }
        all.push(format!("{:?}", scanner.pending()));
        all
    }

    #[test]
    fn what_is_cut_anywhere_comes_whole() {
        let stream =
            "a\u{1b}[1;2Hü\u{1b}]0;t\u{7}\u{1b}Pq#\u{1b}\\🎉\u{1b}(0\u{e}q\u{f}".as_bytes();
        let whole = units(&[stream]);
        for cut in 0..stream.len() {
            let (a, b) = stream.split_at(cut);
            let mut cut_units = units(&[a, b]);
            // Text may come in two pieces; nothing else may.
            cut_units.retain(|u| !u.starts_with("Run"));
            let rest: Vec<_> = whole.iter().filter(|u| !u.starts_with("Run")).collect();
            assert_eq!(cut_units.iter().collect::<Vec<_>>(), rest, "cut at {cut}");
        }
    }

    #[test]
    fn a_string_without_end_is_not_kept_for_ever() {
        let mut scanner = Scanner::default();
        scanner.feed(b"\x1b]0;", |_| panic!("not whole"));
        for _ in 0..1000 {
            scanner.feed(&[b'x'; 1000], |_| panic!("not whole"));
        }
        assert!(scanner.pending().len() <= MAX_STRING);
        let mut seen = Vec::new();
        scanner.feed(b"\x07after", |u| seen.push(format!("{u:?}")));
        assert_eq!(seen, [format!("{:?}", Unit::Run(b"after"))]);
    }

    #[test]
    fn a_broken_character_does_not_swallow_what_follows() {
        let seen = units(&[b"\xe2\x82", b"x\xe2", b"\x1b[m"]);
        assert!(seen.iter().any(|u| u.contains("120")), "{seen:?}");
        assert!(seen.iter().any(|u| u.starts_with("Csi")), "{seen:?}");
    }
}
