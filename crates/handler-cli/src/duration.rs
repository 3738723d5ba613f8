//! Lengths of time as people write them: `90s`, `30m`, `2h`, `1h30m`, `7d`.

use crate::exit::Failure;

/// Seconds of each unit.
const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)];

/// Reads a length of time; a bare number is seconds.
///
/// # Errors
/// [`Failure::Usage`] naming `flag`, with what can be written.
pub(crate) fn parse(text: &str, flag: &str) -> Result<u64, Failure> {
    seconds(text).ok_or_else(|| {
        Failure::Usage(format!(
            "{flag} {text}: write a length of time such as 90s, 30m, 2h, 1h30m or 7d"
        ))
    })
}

fn seconds(text: &str) -> Option<u64> {
    if let Ok(seconds) = text.parse() {
        return Some(seconds);
    }
    let mut rest = text;
    let mut total = 0u64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        let unit = rest[digits..].chars().next()?;
        let (_, factor) = UNITS.iter().find(|(name, _)| name.starts_with(unit))?;
        total = total.checked_add(number.checked_mul(*factor)?)?;
        rest = &rest[digits + unit.len_utf8()..];
    }
    (!text.is_empty()).then_some(total)
}

/// Writes a length of time with its two largest units.
#[must_use]
pub(crate) fn format(seconds: u64) -> String {
    let mut left = seconds;
    let mut parts = Vec::new();
    for (name, factor) in UNITS {
        if left >= factor && parts.len() < 2 {
            parts.push(format!("{}{name}", left / factor));
            left %= factor;
        } else if !parts.is_empty() {
            break;
        }
    }
    if parts.is_empty() {
        return "0s".to_owned();
    }
    parts.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_read_and_nonsense_is_not() {
        for (text, wanted) in [
            ("90", Some(90)),
            ("90s", Some(90)),
            ("30m", Some(1800)),
            ("1h30m", Some(5400)),
            ("7d", Some(604_800)),
            ("0", Some(0)),
            ("", None),
            ("m", None),
            ("5x", None),
            ("-5m", None),
            ("1.5h", None),
            ("99999999999999999999d", None),
            ("300000000000000000d", None),
            ("5µ", None),
        ] {
            assert_eq!(seconds(text), wanted, "{text}");
        }
    }

    #[test]
    fn it_is_written_short() {
        for (seconds, text) in [
            (0, "0s"),
            (59, "59s"),
            (60, "1m"),
            (5400, "1h30m"),
            (90_061, "1d1h"),
            (3601, "1h"),
        ] {
            assert_eq!(format(seconds), text);
        }
    }
}
