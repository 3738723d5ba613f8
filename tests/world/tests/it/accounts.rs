//! Accounts: made, logged in, run on, guarded by contexts; and a login is nowhere but in the filter.

mod genuine;
mod rules;
pub(crate) mod vendor;
