//! Listening ports seen, shown and forwarded.

use super::checks;

checks! { "ports":
}
