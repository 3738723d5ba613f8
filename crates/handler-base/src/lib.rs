//! The few doors to the outside: processes, tasks, clock, atomic files, HTTP wire, backoff.
