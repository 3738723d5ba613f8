//! What a connection became that changed its protocol: bytes both ways, to the end.

use handler_base::tasks::spawn_named;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_util::sync::CancellationToken;

/// Carries both sides into each other once both have changed over.
pub(super) fn carry(shutdown: CancellationToken, browser: OnUpgrade, inside: OnUpgrade) {
    spawn_named("preview stream", async move {
        let carried = async {
            let (browser, inside) = match tokio::try_join!(browser, inside) {
                Ok(both) => both,
                Err(error) => {
                    tracing::debug!(%error, "a preview's stream was not taken up");
                    return;
                }
            };
            let (mut browser, mut inside) = (TokioIo::new(browser), TokioIo::new(inside));
            tokio::io::copy_bidirectional(&mut browser, &mut inside)
                .await
                .ok();
        };
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = carried => {}
        }
    });
}
