//! Folders up and down as archives.

use super::checks;

checks! { "archives":
}
