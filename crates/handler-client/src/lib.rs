//! Typed HTTP and WebSocket client of the control API.
