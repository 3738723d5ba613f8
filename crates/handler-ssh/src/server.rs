//! One client's connection: what it asks, and which channel that goes to.

use crate::carry::carry;
use crate::command::{self, Wishes};
use crate::input::{Input, Pressure, WINDOW};
use crate::key::HostKey;
use crate::run::{self, Client};
use crate::{Target, sftp, signals};
use handler_base::tasks::spawn_named;
use handler_engine::guest::GuestCallError;
use handler_types::guest::GuestErrorCode;
use russh::server::{Auth, ChannelOpenHandle, Config, Msg, Session, VerifiedPublicKey};
use russh::{
    Channel, ChannelId, ChannelOpenFailure, ChannelWriteHalf, Error, MethodKind, MethodSet, Pty,
    Sig, SshId,
};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

/// Most channels of one connection at a time.
const MOST_CHANNELS: usize = 128;
/// How long a silent client is believed to be there before it is asked.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Why a connection ended badly.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// What came is no SSH, or the connection broke.
    #[error("the SSH connection failed")]
    Protocol(#[from] russh::Error),
}

fn config(key: HostKey) -> Config {
    let version = concat!("SSH-2.0-handler_", env!("CARGO_PKG_VERSION"));
    Config {
        server_id: SshId::Standard(Cow::Borrowed(version)),
        methods: MethodSet::from(&[MethodKind::None, MethodKind::PublicKey][..]),
        auth_rejection_time: Duration::from_millis(100),
        auth_rejection_time_initial: Some(Duration::ZERO),
        keys: vec![key.0],
        window_size: WINDOW,
        // Never waited in: see `input`.
        channel_buffer_size: 1,
        event_buffer_size: 16,
        inactivity_timeout: None,
        keepalive_interval: Some(KEEPALIVE),
        keepalive_max: 3,
        ..Config::default()
    }
}

/// Serves one client until it leaves or `stop` is cancelled.
///
/// # Errors
/// [`ServeError`].
pub async fn serve<S>(
    stream: S,
    key: HostKey,
    target: Target,
    stop: CancellationToken,
) -> Result<(), ServeError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = Connection {
        target,
        pressure: Pressure::default(),
        channels: HashMap::new(),
    };
    let session = russh::server::run_stream(Arc::new(config(key)), stream, connection).await?;
    let handle = session.handle();
    tokio::pin!(session);
    tokio::select! {
        ended = &mut session => Ok(ended?),
        () = stop.cancelled() => {
            let text = "the daemon is stopping; connect again".to_owned();
            handle.disconnect(russh::Disconnect::ByApplication, text, String::new()).await.ok();
            tokio::time::timeout(Duration::from_secs(1), session).await.ok();
            Ok(())
        }
    }
}

/// A channel that is open.
struct Open {
    input: Arc<Input>,
    /// Cancelled when the client is done with it.
    gone: CancellationToken,
    wishes: Wishes,
    /// Until something is started on it.
    channel: Option<ChannelWriteHalf<Msg>>,
    /// What was started, as the guest numbers it.
    process: Option<u32>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.gone.cancel();
        self.input.close();
    }
}

struct Connection {
    target: Target,
    pressure: Pressure,
    channels: HashMap<ChannelId, Open>,
}

impl Connection {
    /// Notes a new channel; `None` when there are too many.
    fn add(&mut self, channel: Channel<Msg>) -> Option<&mut Open> {
        if self.channels.len() >= MOST_CHANNELS {
            return None;
        }
        let id = channel.id();
        // Input comes through the handler's methods: nobody reads the channel itself.
        let (_, channel) = channel.split();
        let open = Open {
            input: Input::new(self.pressure.clone()),
            gone: CancellationToken::new(),
            wishes: Wishes::default(),
            channel: Some(channel),
            process: None,
        };
        Some(self.channels.entry(id).insert_entry(open).into_mut())
    }

    /// Starts a shell, or a command in one.
    async fn start(
        &mut self,
        id: ChannelId,
        command: Option<&[u8]>,
        session: &mut Session,
    ) -> Result<(), Error> {
        let Some(open) = self.channels.get_mut(&id) else {
            return session.channel_failure(id);
        };
        let Some(channel) = open.channel.take() else {
            // One thing is run on one channel.
            return session.channel_failure(id);
        };
        session.channel_success(id)?;
        let client = Client {
            channel,
            session: session.handle(),
            gone: open.gone.clone(),
        };
        let input = open.input.clone();
        let command = command.map(std::str::from_utf8).transpose();
        let started = match command {
            Ok(command) => {
                let spec = open.wishes.spec(command, &self.target.workdir);
                run::start(&self.target.guest, spec).await
            }
            Err(_) => Err(GuestCallError::Invalid(
                "the command is not UTF-8".to_owned(),
            )),
        };
        match started {
            Ok(running) => {
                open.process = Some(running.process);
                spawn_named("ssh command", running.follow(input, client));
            }
            Err(error) => {
                spawn_named("ssh refusal", refuse(client, error));
            }
        }
        Ok(())
    }
}

/// Tells why nothing was started, as a shell would.
async fn refuse(client: Client, error: GuestCallError) {
    let code = match &error {
        GuestCallError::Refused(e) if e.code == GuestErrorCode::NotFound => 127,
        GuestCallError::Refused(e) if e.code == GuestErrorCode::Denied => 126,
        _ => 255,
    };
    let text = format!("handler: {error}\r\n").into_bytes();
    client.channel.extended_data_bytes(1, text).await.ok();
    client.channel.exit_status(code).await.ok();
    client.channel.eof().await.ok();
    client.channel.close().await.ok();
}

fn is_inside(host: &str) -> bool {
    matches!(
        host,
        "localhost" | "127.0.0.1" | "::1" | "[::1]" | "0.0.0.0"
    )
}

impl russh::server::Handler for Connection {
    type Error = Error;

    async fn auth_none(&mut self, _user: &str) -> Result<Auth, Error> {
        Ok(Auth::Accept)
    }

    async fn auth_publickey(
        &mut self,
        _user: &str,
        _key: VerifiedPublicKey<'_>,
    ) -> Result<Auth, Error> {
        Ok(Auth::Accept)
    }

    async fn channel_open_session(
        &mut self,
        channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), Error> {
        match self.add(channel) {
            Some(_) => reply.accept().await,
            None => reply.reject(ChannelOpenFailure::ResourceShortage).await,
        }
        Ok(())
    }

    async fn channel_open_direct_tcpip(
        &mut self,
        channel: Channel<Msg>,
        host: &str,
        port: u32,
        _from: &str,
        _from_port: u32,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), Error> {
        let port = match u16::try_from(port) {
            Ok(port) if port > 0 && is_inside(host) => port,
            _ => {
                let reason = "only ports of the sandbox itself (localhost) can be reached";
                let failure = ChannelOpenFailure::Other {
                    code: 1,
                    reason: reason.to_owned(),
                };
                reply.reject(failure).await;
                return Ok(());
            }
        };
        let dial = self.target.dial.clone();
        let Some(open) = self.add(channel) else {
            reply.reject(ChannelOpenFailure::ResourceShortage).await;
            return Ok(());
        };
        let (input, gone) = (open.input.clone(), open.gone.clone());
        let Some(channel) = open.channel.take() else {
            return Ok(());
        };
        // Connecting may take a while (a sandbox that sleeps); other channels go on meanwhile.
        spawn_named("ssh port", async move {
            match dial(port).await {
                Ok(stream) => {
                    reply.accept().await;
                    tokio::select! {
                        () = gone.cancelled() => {}
                        () = carry(&input, channel, stream, None) => {}
                    }
                }
                Err(error) => {
                    let reason = error.to_string();
                    let failure = ChannelOpenFailure::Other { code: 2, reason };
                    reply.reject(failure).await;
                    gone.cancel();
                }
            }
        });
        Ok(())
    }

    async fn data(
        &mut self,
        id: ChannelId,
        data: &[u8],
        _session: &mut Session,
    ) -> Result<(), Error> {
        if let Some(open) = self.channels.get(&id)
            && open.input.push(data).is_err()
        {
            tracing::warn!("an SSH client sent more than its window allows");
            return Err(Error::Inconsistent);
        }
        self.pressure.pause(data.len()).await;
        Ok(())
    }

    fn adjust_window(&mut self, _channel: ChannelId, _current: u32) -> u32 {
        self.pressure.window()
    }

    async fn channel_eof(&mut self, id: ChannelId, _session: &mut Session) -> Result<(), Error> {
        if let Some(open) = self.channels.get(&id) {
            open.input.end();
        }
        Ok(())
    }

    async fn channel_close(&mut self, id: ChannelId, _session: &mut Session) -> Result<(), Error> {
        self.channels.remove(&id);
        Ok(())
    }

    async fn pty_request(
        &mut self,
        id: ChannelId,
        term: &str,
        cols: u32,
        rows: u32,
        _width: u32,
        _height: u32,
        _modes: &[(Pty, u32)],
        session: &mut Session,
    ) -> Result<(), Error> {
        match self.channels.get_mut(&id) {
            Some(open) if open.channel.is_some() => {
                open.wishes.terminal(term, cols, rows);
                session.channel_success(id)
            }
            _ => session.channel_failure(id),
        }
    }

    async fn env_request(
        &mut self,
        id: ChannelId,
        name: &str,
        value: &str,
        session: &mut Session,
    ) -> Result<(), Error> {
        let is_set = self
            .channels
            .get_mut(&id)
            .is_some_and(|open| open.wishes.set(name, value));
        if is_set {
            session.channel_success(id)
        } else {
            session.channel_failure(id)
        }
    }

    async fn shell_request(&mut self, id: ChannelId, session: &mut Session) -> Result<(), Error> {
        self.start(id, None, session).await
    }

    async fn exec_request(
        &mut self,
        id: ChannelId,
        command: &[u8],
        session: &mut Session,
    ) -> Result<(), Error> {
        self.start(id, Some(command), session).await
    }

    async fn subsystem_request(
        &mut self,
        id: ChannelId,
        name: &str,
        session: &mut Session,
    ) -> Result<(), Error> {
        let open = self.channels.get_mut(&id);
        let (Some(open), "sftp") = (open, name) else {
            return session.channel_failure(id);
        };
        let Some(channel) = open.channel.take() else {
            return session.channel_failure(id);
        };
        session.channel_success(id)?;
        let (input, gone) = (open.input.clone(), open.gone.clone());
        let stream = sftp::serve(&self.target);
        spawn_named("ssh files", async move {
            tokio::select! {
                () = gone.cancelled() => {}
                () = carry(&input, channel, stream, Some(0)) => {}
            }
        });
        Ok(())
    }

    async fn window_change_request(
        &mut self,
        id: ChannelId,
        cols: u32,
        rows: u32,
        _width: u32,
        _height: u32,
        _session: &mut Session,
    ) -> Result<(), Error> {
        if let Some(process) = self.channels.get(&id).and_then(|open| open.process) {
            let size = command::size(cols, rows);
            let guest = &self.target.guest;
            guest.resize(process, size.cols, size.rows).await.ok();
        }
        Ok(())
    }

    async fn signal(
        &mut self,
        id: ChannelId,
        signal: Sig,
        _session: &mut Session,
    ) -> Result<(), Error> {
        let process = self.channels.get(&id).and_then(|open| open.process);
        if let (Some(process), Some(number)) = (process, signals::number(&signal)) {
            self.target.guest.signal(process, number, true).await.ok();
        }
        Ok(())
    }
}
