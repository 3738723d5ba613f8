//! Logs, metrics, agents, activity.

use super::checks;

checks! { "observation":
}
