//! The drivers: how each backend makes, starts, stops and removes instances.
