//! Plain ACP connections of agents (contract C) and their programs' own terminals (D.16), with a program that does
//! what it is told in the place of an installed agent.

mod genuine;
mod lives;
mod policy;
pub(crate) mod stage;
mod terminal;
mod transport;
