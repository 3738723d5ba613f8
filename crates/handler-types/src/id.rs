//! Identifiers: newtypes with a fixed prefix, so that one kind cannot be passed for another.
//!
//! A sandbox id is lower-case letters and digits only, since it appears in host names.

use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::str::FromStr;

/// Why a text is not an id of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an id of the form {form}")]
pub struct IdParseError {
    /// The text given.
    pub text: String,
    /// The form wanted, for people.
    pub form: &'static str,
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal, $form:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        pub struct $name(String);

        impl $name {
            /// What every id of this kind starts with.
            pub const PREFIX: &'static str = $prefix;

            /// Makes an id from 8 random bytes given by the caller.
            #[must_use]
            pub fn from_random(random: [u8; 8]) -> Self {
                let hex: String = random.iter().map(|b| format!("{b:02x}")).collect();
                Self(format!("{}{hex}", Self::PREFIX))
            }

            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdParseError;
            fn from_str(text: &str) -> Result<Self, IdParseError> {
                let is_id = text.strip_prefix(Self::PREFIX).is_some_and(|rest| {
                    rest.len() == 16 && rest.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
                });
                if is_id {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(IdParseError { text: text.chars().take(80).collect(), form: $form })
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

id!(
    /// A sandbox: `sb` and 16 hex digits.
    SandboxId, "sb", "sb<16 hex digits>"
);
id!(
    /// A session: `s_` and 16 hex digits.
    SessionId, "s_", "s_<16 hex digits>"
);
id!(
    /// A project: `p_` and 16 hex digits.
    ProjectId, "p_", "p_<16 hex digits>"
);
id!(
    /// An agent: `a_` and 16 hex digits.
    AgentId, "a_", "a_<16 hex digits>"
);
id!(
    /// A build: `b_` and 16 hex digits.
    BuildId, "b_", "b_<16 hex digits>"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_read_back_and_other_kinds_are_refused() {
        let id = SandboxId::from_random([1, 2, 3, 4, 5, 6, 7, 0xff]);
        assert_eq!(id.as_str(), "sb01020304050607ff");
        assert_eq!(id.as_str().parse::<SandboxId>(), Ok(id));
        assert!("s_01020304050607ff".parse::<SandboxId>().is_err());
        assert!("sb01020304050607FF".parse::<SandboxId>().is_err());
        assert!("sb../../etc/passwd".parse::<SandboxId>().is_err());
    }
}
