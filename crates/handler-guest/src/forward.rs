//! The loopback door to the egress filter: each connection to a port inside becomes one to the
//! filter's Unix socket. Bytes are not looked at.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::copy_bidirectional_with_sizes;
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Semaphore;

/// Most connections at once; more wait in the kernel's queue.
const MOST: usize = 512;
/// Bytes of each direction's buffer.
const BUFFER: usize = 16 * 1024;
/// Pause after a failed accept (no descriptors left).
const PAUSE: Duration = Duration::from_millis(50);

/// Accepts connections for ever.
pub(crate) async fn forward(listener: TcpListener, socket: PathBuf) {
    let socket = Rc::new(socket);
    let places = std::sync::Arc::new(Semaphore::new(MOST));
    loop {
        let Ok(place) = std::sync::Arc::clone(&places).acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((inside, _)) => {
                let socket = Rc::clone(&socket);
                tokio::task::spawn_local(async move {
                    join(inside, &socket).await;
                    drop(place);
                });
            }
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// Copies both ways; each direction ends on its own. When the filter is away the connection is closed.
async fn join(mut inside: TcpStream, socket: &std::path::Path) {
    let _ = inside.set_nodelay(true);
    if let Ok(mut outside) = UnixStream::connect(socket).await {
        let _ = copy_bidirectional_with_sizes(&mut inside, &mut outside, BUFFER, BUFFER).await;
    }
}
