//! Terminals that outlive viewers and the daemon.

use super::checks;

checks! { "terminals":
}
