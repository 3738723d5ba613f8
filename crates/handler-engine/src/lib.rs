//! Sandbox lifecycle: driver trait, one owner task per sandbox, guest link, reconcile.
