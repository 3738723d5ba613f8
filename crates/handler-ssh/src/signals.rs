//! Names of signals as SSH has them (RFC 4254 §6.10) and their numbers on Linux.

use russh::Sig;

const NAMES: &[(&str, i32)] = &[
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("CHLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("WINCH", 28),
    ("SYS", 31),
];

/// The signal's number, if it is one that can be sent.
pub(crate) fn number(signal: &Sig) -> Option<i32> {
    let name = match signal {
        Sig::ABRT => "ABRT",
        Sig::ALRM => "ALRM",
        Sig::FPE => "FPE",
        Sig::HUP => "HUP",
        Sig::ILL => "ILL",
        Sig::INT => "INT",
        Sig::KILL => "KILL",
        Sig::PIPE => "PIPE",
        Sig::QUIT => "QUIT",
        Sig::SEGV => "SEGV",
        Sig::TERM => "TERM",
        Sig::USR1 => "USR1",
        Sig::Custom(name) => name.strip_suffix("@openssh.com").unwrap_or(name),
    };
    NAMES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, number)| *number)
}

/// The signal as SSH tells it.
pub(crate) fn name(number: i32) -> Sig {
    let known = NAMES.iter().find(|(_, n)| *n == number);
    match known.map(|(name, _)| *name) {
        Some("ABRT") => Sig::ABRT,
        Some("ALRM") => Sig::ALRM,
        Some("FPE") => Sig::FPE,
        Some("HUP") => Sig::HUP,
        Some("ILL") => Sig::ILL,
        Some("INT") => Sig::INT,
        Some("KILL") => Sig::KILL,
        Some("PIPE") => Sig::PIPE,
        Some("QUIT") => Sig::QUIT,
        Some("SEGV") => Sig::SEGV,
        Some("TERM") => Sig::TERM,
        Some("USR1") => Sig::USR1,
        Some(name) => Sig::Custom(format!("{name}@openssh.com")),
        None => Sig::Custom(format!("{number}@handler")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_signal_comes_back_as_its_number() {
        for (_, wanted) in NAMES {
            assert_eq!(number(&name(*wanted)), Some(*wanted));
        }
        assert_eq!(number(&Sig::Custom("NONE".into())), None);
        assert_eq!(number(&name(64)), None);
    }
}
