//! The daemon: app rules per resource, HTTP and WebSocket API, composition.
