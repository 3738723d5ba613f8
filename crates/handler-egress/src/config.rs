//! What the program `handler egress` is started with. Settings of sandboxes come later, over the
//! control socket; nothing secret is in here except the credentials of an upstream proxy.

use crate::chain::{UpstreamProxy, UpstreamProxyError};
use crate::limits::Limits;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How to run the filter.
#[derive(Debug, Clone)]
pub struct EgressConfig {
    /// Path of the control socket; its folder exists.
    pub control_socket: PathBuf,
    /// Proxy through which the outside is reached, if there is one.
    pub upstream_proxy: Option<UpstreamProxy>,
    /// More roots to trust for intercepted hosts, PEM, besides the system's.
    pub extra_roots_pem: Option<String>,
    /// Names answered here instead of by the system's resolver (lower case). The addresses are
    /// checked like any others.
    pub hosts: BTreeMap<String, Vec<IpAddr>>,
    /// How long clients may take.
    pub limits: Limits,
    /// After how long without a sandbox and without a control connection the filter ends.
    pub idle_exit: Duration,
    /// Whether this is a process of its own: leaves the terminal's session, forbids core dumps and
    /// tracing, raises the limit of open files, ends on `SIGTERM`. Off when run inside another program.
    pub own_process: bool,
}

impl EgressConfig {
    /// A filter of its own on this control socket, with everything else as usual.
    #[must_use]
    pub fn new(control_socket: PathBuf) -> Self {
        Self {
            control_socket,
            upstream_proxy: None,
            extra_roots_pem: None,
            hosts: BTreeMap::new(),
            limits: Limits::default(),
            idle_exit: Duration::from_secs(600),
            own_process: true,
        }
    }

    /// As [`EgressConfig::new`], chained behind the proxy that the environment names, if it does.
    ///
    /// # Errors
    /// When the environment names a proxy that cannot be used.
    pub fn from_env(
        control_socket: PathBuf,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, UpstreamProxyError> {
        let mut config = Self::new(control_socket);
        config.upstream_proxy = UpstreamProxy::from_env(variable)?;
        Ok(config)
    }
}
