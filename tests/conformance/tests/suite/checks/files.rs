//! Files up, down and inside, and what a hostile one may not do.

use super::checks;

checks! { "files":
}
