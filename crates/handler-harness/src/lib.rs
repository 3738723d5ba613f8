//! Harness descriptors and render: what to launch for an agent program, as pure data.
