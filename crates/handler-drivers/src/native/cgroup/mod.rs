//! Limits of sandboxes: cgroup folders made, joined by the launcher, and removed.
//!
//! | hierarchy | folder of a sandbox |
//! |---|---|
//! | version 1 | `<mount of the controller>/<our group>/handler/<owner>/<id>` |
//! | version 2, root | `<mount>/handler.<owner>/<id>` |
//! | version 2, else | `<our group, delegated to us>/handler.<owner>/<id>` |
//!
//! A controller is in one hierarchy only; version 1 is looked at first. What cannot be made is told in
//! words, never passed over.

mod folders;
mod freezer;
mod layout;
mod limits;
mod live;

pub(super) use folders::{CgroupFolders, Made};
pub(super) use freezer::{freeze, is_paused, kill_frozen};
pub(super) use layout::Controller;
pub(super) use limits::{Limit, of as limits_of};
pub(super) use live::LimitError;
