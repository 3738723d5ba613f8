//! Phantoms: stand-ins that look like a secret and are worthless. Pure; randomness comes in as an argument.
//!
//! A phantom has the secret's length and shape (digit for digit, lower for lower, upper for upper, the
//! rest kept), so that clients which check the form of a key accept it. The invariant: it never equals the
//! value. Of the value it shows its shape and, when at least [`SECRET_TAIL`] characters follow, its vendor prefix.

use handler_types::login::is_jwt;

/// Shortest value that can be hidden behind a phantom.
const SHORTEST: usize = 8;
/// A vendor prefix is kept only when at least so many characters follow it.
const SECRET_TAIL: usize = 24;
/// Words of a vendor prefix after the first one.
const PREFIX_WORDS: usize = 3;
/// Longest word that can be part of a vendor prefix; a longer one may be the secret itself.
const PREFIX_WORD: usize = 12;

/// Makes a phantom for `value` from random bytes, or nothing when the value has fewer than 8 characters, is
/// not printable ASCII without space, or has no letter and no digit that could differ.
#[must_use]
pub fn make_phantom(value: &str, mut random: impl FnMut() -> u8) -> Option<String> {
    if value.len() < SHORTEST || !value.bytes().all(|b| b.is_ascii_graphic()) {
        return None;
    }
    let kept = vendor_prefix(value.as_bytes());
    let mut phantom: Vec<u8> = value
        .bytes()
        .enumerate()
        .map(|(at, byte)| {
            if at < kept {
                byte
            } else {
                alike(byte, &mut random)
            }
        })
        .collect();
    if phantom == value.as_bytes() {
        let at = phantom
            .iter()
            .rposition(|b| b.is_ascii_alphanumeric())
            .filter(|at| *at >= kept)?;
        phantom[at] = successor(phantom[at]);
    }
    String::from_utf8(phantom).ok()
}

/// Shortest signature of a JSON Web Token that is replaced alone, in characters: 128 bits.
const SIGNATURE: usize = 22;
const BASE64URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Makes a stand-in for a login's token: of a JSON Web Token the signature alone is another, so that programs can
/// read what it says (who, until when); of anything else as [`make_phantom`].
#[must_use]
pub fn make_login_phantom(value: &str, mut random: impl FnMut() -> u8) -> Option<String> {
    let signed = value
        .rsplit_once('.')
        .filter(|(_, signature)| is_jwt(value) && signature.len() >= SIGNATURE);
    let Some((said, signature)) = signed else {
        return make_phantom(value, random);
    };
    // The last character has bits that decoders check to be zero.
    let (body, last) = signature.split_at(signature.len() - 1);
    let mut drawn: Vec<u8> = body
        .bytes()
        .map(|_| BASE64URL[usize::from(random() & 63)])
        .collect();
    if drawn == body.as_bytes() {
        drawn[0] = if drawn[0] == b'A' { b'B' } else { b'A' };
    }
    let drawn = String::from_utf8(drawn).ok()?;
    Some(format!("{said}.{drawn}{last}"))
}

/// Length of the vendor prefix (`sk-ant-api03-`), or 0.
fn vendor_prefix(value: &[u8]) -> usize {
    let mut kept = 0;
    for index in 0..=PREFIX_WORDS {
        let rest = &value[kept..];
        let word = rest
            .iter()
            .take_while(|b| b.is_ascii_lowercase() || (index > 0 && b.is_ascii_digit()))
            .count();
        let separated = matches!(rest.get(word), Some(b'-' | b'_'));
        if word == 0 || word > PREFIX_WORD || !separated || rest.len() - word - 1 < SECRET_TAIL {
            break;
        }
        kept += word + 1;
    }
    kept
}

/// The first character and the number of the class a byte belongs to.
fn class(byte: u8) -> Option<(u8, u8)> {
    match byte {
        b'0'..=b'9' => Some((b'0', 10)),
        b'a'..=b'z' => Some((b'a', 26)),
        b'A'..=b'Z' => Some((b'A', 26)),
        _ => None,
    }
}

/// A random byte of the same class. Bytes that would favour some characters are drawn again.
fn alike(byte: u8, random: &mut impl FnMut() -> u8) -> u8 {
    let Some((first, count)) = class(byte) else {
        return byte;
    };
    let fair = u8::MAX - u8::MAX % count;
    let mut drawn = random();
    for _ in 0..64 {
        if drawn < fair {
            break;
        }
        drawn = random();
    }
    first + drawn % count
}

/// The next byte of the same class, around the end.
fn successor(byte: u8) -> u8 {
    class(byte).map_or(byte, |(first, count)| first + (byte - first + 1) % count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn counter() -> impl FnMut() -> u8 {
        let mut next = 0u8;
        move || {
            next = next.wrapping_add(37);
            next
        }
    }

    #[test]
    fn vendor_prefixes_are_kept_only_before_a_long_tail() {
        let tail = "A1b2C3d4E5f6G7h8I9j0K1l2";
        for prefix in ["sk-", "sk-ant-api03-", "sk-or-v1-", "ghp_", "github_pat_"] {
            let value = format!("{prefix}{tail}");
            let phantom = make_phantom(&value, counter()).expect("phantom");
            assert!(phantom.starts_with(prefix), "{phantom}");
            assert_ne!(phantom, value);
        }
        assert_eq!(vendor_prefix(format!("sk-{}", &tail[1..]).as_bytes()), 0);
        assert_eq!(vendor_prefix(format!("a-b-c-d-e-{tail}").as_bytes()), 8);
        assert_eq!(vendor_prefix(format!("Sk-{tail}").as_bytes()), 0);
        assert_eq!(vendor_prefix(format!("abcdefghijklm-{tail}").as_bytes()), 0);
    }

    #[test]
    fn of_a_json_web_token_only_the_signature_is_another() {
        let signature = "c2lnbmF0dXJlLW9mLWFjY2Vzcw-_0Q";
        let token = format!("eyJhbGciOiJSUzI1NiJ9.eyJleHAiOjF9.{signature}");
        let phantom = make_login_phantom(&token, counter()).expect("stand-in");
        assert!(phantom.starts_with("eyJhbGciOiJSUzI1NiJ9.eyJleHAiOjF9."));
        assert!(is_jwt(&phantom) && phantom.len() == token.len() && phantom.ends_with('Q'));
        let other = phantom.rsplit_once('.').expect("parts").1;
        let alike = other.bytes().zip(signature.bytes()).filter(|(a, b)| a == b);
        assert!(alike.count() < signature.len() / 2, "{other}");
        let mut stuck = signature.bytes().cycle();
        let echo = move || {
            let byte = stuck.next().expect("endless");
            u8::try_from(BASE64URL.iter().position(|b| *b == byte).expect("known")).expect("small")
        };
        assert_ne!(make_login_phantom(&token, echo).expect("stand-in"), token);
        let short = make_login_phantom("eyJhbGc.eyJleHA.c2ln", counter()).expect("stand-in");
        assert!(
            !short.starts_with("eyJhbGc"),
            "a short one is replaced whole: {short}"
        );
    }

    #[test]
    fn values_that_cannot_be_hidden_get_no_phantom() {
        for value in [
            "",
            "short12",
            "has space 1234",
            "umläut-123456",
            "tab\t12345678",
            "--------",
        ] {
            assert_eq!(make_phantom(value, counter()), None, "{value:?}");
        }
    }

    #[test]
    fn a_phantom_differs_even_when_the_random_bytes_spell_the_value() {
        assert_eq!(make_phantom("aaaaaaaa", || 0).as_deref(), Some("aaaaaaab"));
        assert_eq!(make_phantom("9-------", || 9).as_deref(), Some("0-------"));
        assert!(
            make_phantom("zzzzzzzz", || 255).is_some(),
            "a stuck source ends"
        );
    }

    proptest! {
        #[test]
        fn shape_and_length_are_kept(value in "[!-~]{8,80}", seed in any::<u64>()) {
            let mut state = seed | 1;
            let random = move || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            };
            match make_phantom(&value, random) {
                None => prop_assert!(!value.bytes().any(|b| b.is_ascii_alphanumeric())),
                Some(phantom) => {
                    prop_assert_ne!(&phantom, &value);
                    prop_assert_eq!(phantom.len(), value.len());
                    for (p, v) in phantom.bytes().zip(value.bytes()) {
                        prop_assert_eq!(class(p), class(v));
                        prop_assert!(class(v).is_some() || p == v);
                    }
                }
            }
        }
    }
}
