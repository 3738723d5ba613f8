//! The running server: its socket, its thread, and the requests it remembers.
//!
//! It runs on a thread and a runtime of its own, so that blocking and asynchronous callers use it
//! alike and stopping it also ends the streams it still sends.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::oneshot;

use crate::config::ScriptedConfig;
use crate::http_api::{Shared, router};
use crate::record::{RecordedRequest, Recorder};

/// A scripted model server; dropping it stops it.
pub struct ScriptedModel {
    port: u16,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ScriptedModel {
    /// Binds 127.0.0.1 and starts answering. Needs no runtime around it.
    ///
    /// # Errors
    /// When the port is taken, the log cannot be opened, or a thread cannot be started.
    pub fn start(config: ScriptedConfig) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, config.port))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let recorder = Recorder::open(config.keep_requests, config.log.as_deref())?;
        let shared = Arc::new(Shared {
            expect_key: config.expect_key,
            word_delay: config.word_delay,
            recorder,
        });
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("scripted-model")
            .enable_all()
            .build()?;
        let (stop, stopped) = oneshot::channel();
        let served = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("scripted-model".into())
            .spawn(move || {
                runtime.block_on(serve(listener, served, stopped));
                // Streams may be in the middle of a pause: end them instead of waiting.
                runtime.shutdown_background();
            })?;
        Ok(Self {
            port,
            shared,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `http://127.0.0.1:<port>`, without a slash at the end and without an API version.
    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// The newest requests, oldest first. A request is there once its answer has begun.
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.shared.recorder.all()
    }

    /// Waits until a remembered request satisfies `wanted`, and returns the oldest such; `None`
    /// when `timeout` passes first.
    pub async fn wait_for(
        &self,
        wanted: impl Fn(&RecordedRequest) -> bool,
        timeout: Duration,
    ) -> Option<RecordedRequest> {
        let mut arrivals = self.shared.recorder.watch();
        let search = async {
            loop {
                arrivals.borrow_and_update();
                if let Some(found) = self.shared.recorder.find(&wanted) {
                    return Some(found);
                }
                arrivals.changed().await.ok()?;
            }
        };
        tokio::time::timeout(timeout, search).await.ok().flatten()
    }

    /// Stops at once: the port is free and every connection closed when this returns.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the scripted model's thread panicked");
        }
    }
}

impl Drop for ScriptedModel {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for ScriptedModel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ScriptedModel")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>, stopped: oneshot::Receiver<()>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "the scripted model cannot listen");
            return;
        }
    };
    tokio::select! {
        // The sender is dropped, never used: either way it is time to stop.
        _ = stopped => {}
        served = axum::serve(listener, router(shared)) => {
            tracing::error!(?served, "the scripted model ended by itself");
        }
    }
}
