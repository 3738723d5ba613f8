//! Only tests live here, and a client that they run.
