//! The command line over the control API.
