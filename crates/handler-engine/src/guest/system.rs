//! The sandbox as a whole: listening sockets and every process.

use super::error::GuestCallError;
use super::handle::GuestHandle;
use handler_types::guest::{ListeningPort, Op, Reply, SystemProcess};

impl GuestHandle {
    /// Listening TCP sockets, by port; the guest's own are left out.
    ///
    /// # Errors
    /// [`GuestCallError`].
    pub async fn ports(&self) -> Result<Vec<ListeningPort>, GuestCallError> {
        match self.call(Op::Ports, self.timing().call).await? {
            Reply::Ports { ports } => Ok(ports),
            _ => Err(self.unexpected()),
        }
    }

    /// Every process in the sandbox, by pid, whoever started it.
    ///
    /// # Errors
    /// [`GuestCallError`].
    pub async fn table(&self) -> Result<Vec<SystemProcess>, GuestCallError> {
        match self.call(Op::Table, self.timing().call).await? {
            Reply::Table { processes, .. } => Ok(processes),
            _ => Err(self.unexpected()),
        }
    }
}
