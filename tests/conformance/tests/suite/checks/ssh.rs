//! SSH, SCP, SFTP and rsync through the API.

use super::checks;

checks! { "ssh":
}
