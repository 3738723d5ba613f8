//! Pause, time to live, idleness, wake.

use super::checks;

checks! { "lifetimes":
}
