//! JSON-RPC error codes and WebSocket close codes of the session endpoint.

/// The message is not JSON.
pub const PARSE_ERROR: i32 = -32700;
/// The message is not one JSON-RPC 2.0 object.
pub const INVALID_REQUEST: i32 = -32600;
/// The method is not on the allow-list.
pub const METHOD_NOT_FOUND: i32 = -32601;
/// The parameters do not fit the method.
pub const INVALID_PARAMS: i32 = -32602;
/// Something the caller cannot mend.
pub const INTERNAL: i32 = -32603;
/// The request was cancelled.
pub const CANCELLED: i32 = -32800;
/// P2: a folder outside the scope.
pub const OUTSIDE_SCOPE: i32 = -32001;
/// P3: an MCP destination that is not allowed.
pub const MCP_NOT_ALLOWED: i32 = -32002;
/// P4: a client method the agent may not call.
pub const NOT_PERMITTED: i32 = -32003;
/// P7: the session's defaults could not be applied.
pub const DEFAULTS_FAILED: i32 = -32004;
/// One session per attachment.
pub const ONE_SESSION: i32 = -32010;
/// A turn is in progress.
pub const TURN_IN_PROGRESS: i32 = -32011;

/// A message is too big.
pub const CLOSE_TOO_BIG: u16 = 1009;
/// The session broke on the daemon's side.
pub const CLOSE_BROKEN: u16 = 1011;
/// More viewers than allowed: the oldest made room.
pub const CLOSE_ELSEWHERE: u16 = 4001;
/// The session stopped.
pub const CLOSE_STOPPED: u16 = 4002;
/// The viewer fell behind.
pub const CLOSE_TOO_SLOW: u16 = 4003;
