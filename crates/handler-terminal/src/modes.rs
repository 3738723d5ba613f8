//! Modes the emulator below does not know but a viewer's terminal must be put into.

use crate::csi::Csi;

/// Private modes that are on or off, off at first, and change what a viewer's terminal sends or shows.
const PRIVATE: &[u16] = &[12, 1004, 1007, 1015, 1016, 2031];
/// Keyboard settings kept aside by programs.
const MAX_KEYBOARD: usize = 16;

/// The modes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Modes {
    /// Which of [`PRIVATE`] are on, by place.
    private: u16,
    /// Lines do not wrap (mode 7 off).
    pub(crate) no_wrap: bool,
    /// Text is inserted (mode 4).
    pub(crate) insert: bool,
    /// Stack of enhanced keyboard flags (CSI > u).
    keyboard: Vec<u16>,
    /// How other keys are told (CSI > 4 m).
    other_keys: u16,
}

impl Modes {
    /// Takes a control sequence; whether it was about these alone.
    pub(crate) fn take(&mut self, csi: &Csi) -> bool {
        match csi.kind() {
            (b'?', 0, b'h') => self.set_private(csi, true),
            (b'?', 0, b'l') => self.set_private(csi, false),
            (0, 0, b'h') => self.set_public(csi, true),
            (0, 0, b'l') => self.set_public(csi, false),
            (b'>', 0, b'u') => {
                if self.keyboard.len() < MAX_KEYBOARD {
                    self.keyboard.push(csi.param(0, 0));
                }
                true
            }
            (b'<', 0, b'u') => {
                let keep = self.keyboard.len().saturating_sub(csi.param(0, 1).into());
                self.keyboard.truncate(keep);
                true
            }
            (b'=', 0, b'u') => {
                self.keyboard.pop();
                self.keyboard.push(csi.param(0, 0));
                true
            }
            (b'>', 0, b'm') => {
                if csi.param(0, 0) == 4 {
                    self.other_keys = csi.param(1, 0);
                }
                true
            }
            _ => false,
        }
    }

    /// The emulator below gets private modes too: several may stand in one sequence.
    fn set_private(&mut self, csi: &Csi, on: bool) -> bool {
        for param in &csi.params {
            if *param == 7 {
                self.no_wrap = !on;
            }
            if let Some(place) = PRIVATE.iter().position(|p| p == param) {
                let bit = 1 << place;
                self.private = if on {
                    self.private | bit
                } else {
                    self.private & !bit
                };
            }
        }
        false
    }

    fn set_public(&mut self, csi: &Csi, on: bool) -> bool {
        if csi.params.contains(&4) {
            self.insert = on;
        }
        true
    }

    /// Whether text needs care before it is drawn.
    pub(crate) fn touch_text(&self) -> bool {
        self.no_wrap || self.insert
    }

    /// What a soft reset does.
    pub(crate) fn soft_reset(&mut self) {
        self.insert = false;
        self.no_wrap = false;
    }

    /// Bytes that set a terminal with all of these off.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        for (place, mode) in PRIVATE.iter().enumerate() {
            if self.private & (1 << place) != 0 {
                out.extend_from_slice(format!("\x1b[?{mode}h").as_bytes());
            }
        }
        if self.no_wrap {
            out.extend_from_slice(b"\x1b[?7l");
        }
        if self.insert {
            out.extend_from_slice(b"\x1b[4h");
        }
        for flags in &self.keyboard {
            out.extend_from_slice(format!("\x1b[>{flags}u").as_bytes());
        }
        if self.other_keys != 0 {
            out.extend_from_slice(format!("\x1b[>4;{}m", self.other_keys).as_bytes());
        }
    }

    /// Bytes that turn all of these off, whatever they were.
    pub(crate) fn write_off(out: &mut Vec<u8>) {
        for mode in PRIVATE {
            out.extend_from_slice(format!("\x1b[?{mode}l").as_bytes());
        }
        out.extend_from_slice(b"\x1b[?7h\x1b[4l\x1b[<16u\x1b[>4m");
    }
}
