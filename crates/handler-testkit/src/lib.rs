//! Worlds and fakes for tests: a daemon in a scratch home, a fake agent, origin servers.
