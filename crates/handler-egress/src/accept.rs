//! Client connections: accepted for a sandbox, read as HTTP, each request led to who answers it.
//!
//! A [`Session`] is one HTTP connection of a client: the outer one to the proxy, or the inner one inside
//! an intercepted tunnel, whose destination is fixed.

use crate::body::ResponseBody;
use crate::decide::{Reason, Verdict, judge};
use crate::flow::{BY_POLICY, Flow, Tracked};
use crate::hosts::Named;
use crate::pool::Pool;
use crate::refuse::Refusal;
use crate::resolve::still_admitted;
use crate::sandbox::Sandbox;
use crate::settings::Rules;
use crate::share::{Busy, Part};
use crate::target::{Target, printable};
use crate::traffic::{Counted, Traffic};
use crate::upstream::{Scheme, Slot, Upstream};
use crate::{connect, forward, intercept};
use handler_types::egress::EgressDecision;
use http::{Method, Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

/// Longest request head, bytes.
pub(crate) const LONGEST_HEAD: usize = 64 * 1024;
pub(crate) const MOST_HEADERS: usize = 256;
/// Most a connection buffers in either direction, bytes.
pub(crate) const LARGEST_BUFFER: usize = 128 * 1024;
/// Pause after accepting failed (no file descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The fixed destination of a tunnel that is looked into.
#[derive(Debug)]
pub(crate) struct Inside {
    /// Where it leads.
    pub(crate) target: Target,
    /// Whether the client speaks TLS in it.
    pub(crate) scheme: Scheme,
    /// What its requests may name.
    pub(crate) named: Named,
}

/// One HTTP connection of a client.
#[derive(Debug)]
pub(crate) struct Session {
    /// Whose it is.
    pub(crate) sandbox: Arc<Sandbox>,
    /// Set inside an intercepted tunnel.
    pub(crate) inside: Option<Inside>,
    /// Set for a client that has many requests at a time.
    pub(crate) pool: Option<Pool>,
    upstream: Mutex<Slot>,
    /// What the connection is busy with: judged again when the rules change.
    current: Mutex<Option<(Target, Option<SocketAddr>)>>,
    flow: Mutex<Option<Arc<Flow>>>,
    permit: Arc<Part>,
    _streams: Option<Part>,
}

impl Session {
    /// The session on a connection that was accepted.
    pub(crate) fn outer(sandbox: Arc<Sandbox>, permit: Part) -> Arc<Self> {
        Arc::new(Self {
            sandbox,
            inside: None,
            pool: None,
            upstream: Mutex::new(Slot::Empty),
            current: Mutex::default(),
            flow: Mutex::default(),
            permit: Arc::new(permit),
            _streams: None,
        })
    }

    /// The session inside a tunnel of this one, over the connection that was made for it; it takes the tunnel's flow.
    pub(crate) fn inner(&self, inside: Inside, upstream: Slot) -> Arc<Self> {
        let address = upstream.address();
        Arc::new(Self {
            sandbox: self.sandbox.clone(),
            current: Mutex::new(Some((inside.target.clone(), address))),
            inside: Some(inside),
            pool: None,
            upstream: Mutex::new(upstream),
            flow: Mutex::new(self.take_flow()),
            permit: self.permit.clone(),
            _streams: None,
        })
    }

    /// The same for a client that has many requests at a time.
    pub(crate) fn inner_shared(
        &self,
        inside: Inside,
        upstream: Option<Upstream>,
        streams: Part,
    ) -> Arc<Self> {
        let address = upstream.as_ref().and_then(|upstream| upstream.address);
        Arc::new(Self {
            sandbox: self.sandbox.clone(),
            current: Mutex::new(Some((inside.target.clone(), address))),
            inside: Some(inside),
            pool: Some(Pool::new(upstream)),
            upstream: Mutex::new(Slot::Empty),
            flow: Mutex::new(self.take_flow()),
            permit: self.permit.clone(),
            _streams: Some(streams),
        })
    }

    /// Takes the connection outward that is kept, if any.
    pub(crate) fn take_upstream(&self) -> Slot {
        let mut slot = self.upstream.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *slot, Slot::Empty)
    }

    /// Keeps a connection outward for the next request.
    pub(crate) fn keep(&self, upstream: Upstream) {
        match &self.pool {
            Some(pool) => pool.give_back(upstream),
            None => {
                let mut slot = self.upstream.lock().unwrap_or_else(PoisonError::into_inner);
                *slot = Slot::Open(upstream);
            }
        }
    }

    /// Says what the connection is busy with.
    pub(crate) fn set_current(&self, target: &Target, address: Option<SocketAddr>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        *current = Some((target.clone(), address));
    }

    /// Reports that a destination may be reached, and that it has ended once its flow is let go of.
    pub(crate) fn begin(
        &self,
        rules: &Rules,
        decision: EgressDecision,
        target: &Target,
        traffic: Arc<Traffic>,
    ) {
        let (host, rule) = (target.to_string(), rules.policy.rule(target));
        let opened = self
            .sandbox
            .report_rule(rules, decision, host.clone(), None, rule);
        let sandbox = self.sandbox.clone();
        self.keep_flow(Flow::new(
            sandbox,
            rules.label.clone(),
            host,
            opened,
            traffic,
        ));
    }

    /// What is under way: the request's, or the whole tunnel's inside one.
    pub(crate) fn flow(&self) -> Option<Arc<Flow>> {
        self.flow
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Keeps a flow for the session inside a tunnel.
    pub(crate) fn keep_flow(&self, flow: Arc<Flow>) {
        *self.flow.lock().unwrap_or_else(PoisonError::into_inner) = Some(flow);
    }

    /// As [`Session::flow`], no longer kept here.
    pub(crate) fn take_flow(&self) -> Option<Arc<Flow>> {
        self.flow
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }

    /// Reports bytes that are not HTTP, or are no use of it.
    pub(crate) fn report_malformed(&self) {
        let host = match &self.inside {
            Some(inside) => inside.target.to_string(),
            None => "-".to_owned(),
        };
        let rules = self.sandbox.rules();
        let reason = Some(Reason::Malformed.as_str());
        self.sandbox
            .report(&rules, EgressDecision::Denied, host, None, reason);
    }

    /// Returns as soon as the rules no longer allow what the connection is busy with; that is why it ends then.
    pub(crate) async fn until_forbidden(&self) {
        self.sandbox
            .until_forbidden(|rules| self.permitted(rules))
            .await;
        if let Some(flow) = self.flow() {
            flow.closed(BY_POLICY);
        }
    }

    fn permitted(&self, rules: &Rules) -> bool {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let named = |inside: &Inside| inside.named.may_stay(rules, &inside.target);
        current
            .as_ref()
            .is_none_or(|(target, address)| may_stay(rules, target, *address))
            && self.inside.as_ref().is_none_or(named)
    }
}

/// Whether a connection made for `target` may exist under these rules.
pub(crate) fn may_stay(rules: &Rules, target: &Target, address: Option<SocketAddr>) -> bool {
    !matches!(judge(&rules.policy, target), Verdict::Denied(_))
        && address.is_none_or(|address| still_admitted(&rules.policy, target, address))
}

/// Accepts for a sandbox until the token is cancelled.
pub(crate) fn start(sandbox: &Arc<Sandbox>, listener: UnixListener, end: CancellationToken) {
    let accepting = accept(sandbox.clone(), listener);
    sandbox.spawn("egress listener", async move {
        end.run_until_cancelled(accepting).await;
    });
}

async fn accept(sandbox: Arc<Sandbox>, listener: UnixListener) {
    loop {
        let Ok(permit) = sandbox.shares.connections.clone().acquire_owned().await else {
            return;
        };
        match listener.accept().await {
            Ok((stream, _)) => {
                sandbox.traffic.connected();
                let stream = Counted::new(stream, sandbox.traffic.clone());
                let session = Session::outer(sandbox.clone(), permit);
                sandbox.spawn("egress connection", serve(session, stream));
            }
            Err(error) => {
                tracing::warn!(%error, sandbox = %sandbox.id, "cannot accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves HTTP on a connection until it ends, changes to a tunnel, or is no longer allowed.
///
/// Boxed: a tunnel in it serves HTTP again, and a type cannot contain itself.
pub(crate) fn serve<I>(session: Arc<Session>, io: I) -> Pin<Box<dyn Future<Output = ()> + Send>>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    Box::pin(serve_http(session, io))
}

async fn serve_http<I>(session: Arc<Session>, io: I)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(|request| {
        let session = session.clone();
        async move { Ok::<_, Infallible>(answer(&session, request).await) }
    });
    // As in any tunnel. A client of the proxy itself that has said all is taken for gone.
    let named = session.inside.as_ref().map(|inside| &inside.named);
    let half_close = matches!(named, Some(Named::ByPolicy(_)));
    let connection = http1::Builder::new()
        .preserve_header_case(true)
        .max_header_size(LONGEST_HEAD)
        .max_headers(MOST_HEADERS)
        .max_buf_size(LARGEST_BUFFER)
        .half_close(half_close)
        .timer(TokioTimer::new())
        .header_read_timeout(session.sandbox.shared.limits.head)
        .serve_connection(TokioIo::new(io), service)
        .with_upgrades();
    // Until it has its turn nothing is read.
    let serving = async {
        match session.sandbox.shares.heads.take().await {
            Ok(_part) => connection.await,
            Err(_) => Ok(()),
        }
    };
    let forbidden = session.until_forbidden();
    tokio::select! {
        ended = serving => if let Err(error) = ended {
            note_end(&session, &error);
        },
        () = forbidden => tracing::debug!(sandbox = %session.sandbox.id, "closed by new rules"),
    }
}

/// Bytes that are no HTTP have been answered with 400 already; they are reported.
fn note_end(session: &Session, error: &hyper::Error) {
    if error.is_parse() {
        session.report_malformed();
    }
    tracing::debug!(%error, sandbox = %session.sandbox.id, "connection ended");
}

/// Answers a request, with a refusal if need be.
pub(crate) async fn answer(
    session: &Arc<Session>,
    request: Request<Incoming>,
) -> Response<Tracked<ResponseBody>> {
    let part = match session.sandbox.shares.requests.take().await {
        Ok(part) => part,
        Err(busy) => return turn_away(session, &request, busy),
    };
    let answered = match &session.inside {
        Some(inside) => intercept::answer(session, inside, request).await,
        None if request.method() == Method::CONNECT => connect::answer(session, request).await,
        None => forward::answer(session, request).await,
    };
    // A tunnel's flow is that of all its requests.
    let flow = match session.inside {
        Some(_) => None,
        None => session.take_flow(),
    };
    match answered {
        Ok(response) => response.map(|body| Tracked::new(body, flow, Some(part))),
        Err(refusal) => {
            if let Some(flow) = flow {
                flow.closed(&refusal.reason);
            }
            report_refusal(session, &refusal);
            if refusal.denied.is_some() {
                session.sandbox.shares.refusals.turn().await;
            }
            refusal
                .response()
                .map(|body| Tracked::new(body, None, Some(part)))
        }
    }
}

/// Refuses a request because too many are under way.
fn turn_away(
    session: &Session,
    request: &Request<Incoming>,
    busy: Busy,
) -> Response<Tracked<ResponseBody>> {
    let host = match (&session.inside, request.uri().authority()) {
        (Some(inside), _) => inside.target.to_string(),
        (None, Some(authority)) => printable(authority.as_str()),
        (None, None) => "-".to_owned(),
    };
    let response = Refusal::busy_at(host, busy).response();
    response.map(|body| Tracked::new(body, None, None))
}

fn report_refusal(session: &Session, refusal: &Refusal) {
    if let Some(reason) = refusal.denied {
        let rules = session.sandbox.rules();
        session.sandbox.report(
            &rules,
            reason.decision(),
            refusal.host.clone(),
            None,
            Some(reason.as_str()),
        );
    }
}
