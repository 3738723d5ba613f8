//! A real gRPC client and server with the filter between them.

use crate::http2::BOTH;
use crate::intercept::{NAME, World};
use crate::origin::{Origin, certificate_for};
use crate::world::{PHANTOM, VALUE, within};
use bytes::{Buf, BufMut};
use http::uri::PathAndQuery;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Request, Response, Status, Streaming};
use tower::Service;

/// Messages that are text.
#[derive(Default, Clone, Copy)]
struct Text;

impl Codec for Text {
    type Encode = String;
    type Decode = String;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Text {
    type Item = String;
    type Error = Status;

    fn encode(&mut self, item: String, into: &mut EncodeBuf<'_>) -> Result<(), Status> {
        into.put_slice(item.as_bytes());
        Ok(())
    }
}

impl Decoder for Text {
    type Item = String;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<String>, Status> {
        let bytes = from.copy_to_bytes(from.remaining());
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }
}

type Answers = Pin<Box<dyn Stream<Item = Result<String, Status>> + Send>>;

/// Says each message back; ends with an error after `end`, which shows what it heard.
#[derive(Clone, Copy)]
struct Echo;

impl Service<Request<Streaming<String>>> for Echo {
    type Response = Response<Answers>;
    type Error = Status;
    type Future = std::future::Ready<Result<Response<Answers>, Status>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Streaming<String>>) -> Self::Future {
        if request
            .metadata()
            .get("x-api-key")
            .is_none_or(|key| key != VALUE)
        {
            return std::future::ready(Err(Status::unauthenticated("no key")));
        }
        let answers = request.into_inner().map(|message| match message?.as_str() {
            "end" => Err(Status::data_loss(format!("ended with {VALUE}"))),
            message => Ok(format!("{} {message}", message.contains(VALUE))),
        });
        let answers: Answers = Box::pin(answers);
        std::future::ready(Ok(Response::new(answers)))
    }
}

async fn serve(listener: TcpListener, acceptor: tokio_rustls::TlsAcceptor) {
    while let Ok((stream, _)) = listener.accept().await {
        let acceptor = acceptor.clone();
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let service = hyper::service::service_fn(|request| async move {
                let mut grpc = tonic::server::Grpc::new(Text);
                Ok::<_, Infallible>(grpc.streaming(Echo, request).await)
            });
            let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn world() -> World {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (acceptor, roots) = certificate_for(NAME, &["h2"]);
    tokio::spawn(serve(listener, acceptor));
    World::around(Origin::elsewhere(port), Some(roots)).await
}

type Channel = tower::util::BoxCloneService<
    http::Request<Body>,
    http::Response<hyper::body::Incoming>,
    hyper::Error,
>;

async fn client(world: &World) -> tonic::client::Grpc<Channel> {
    let tls = world.tls_for(BOTH).await;
    let (sender, connection): (SendRequest<Body>, _) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(tls))
            .await
            .unwrap();
    tokio::spawn(connection);
    let channel = tower::service_fn(move |request| sender.clone().send_request(request));
    let origin = format!("https://{}", world.host).parse().unwrap();
    tonic::client::Grpc::with_origin(Channel::new(channel), origin)
}

async fn converse(
    world: &World,
    key: &str,
) -> Result<(mpsc::Sender<String>, Streaming<String>), Status> {
    let (say, said) = mpsc::channel(1);
    let mut request = Request::new(ReceiverStream::new(said));
    request
        .metadata_mut()
        .insert("x-api-key", key.parse().unwrap());
    let mut client = client(world).await;
    client.ready().await.unwrap();
    let path = PathAndQuery::from_static("/echo.Echo/Echo");
    let answer = within("the call", client.streaming(request, path, Text)).await?;
    Ok((say, answer.into_inner()))
}

#[tokio::test]
async fn a_conversation_streams_both_ways_at_once_with_the_secret_in_it() {
    let world = world().await;
    let (say, mut answers) = converse(&world, PHANTOM).await.unwrap();
    for number in 0..50 {
        // Each message is answered before the next is said.
        say.send(format!("{number} {PHANTOM}")).await.unwrap();
        let answer = within("an answer", answers.message()).await.unwrap();
        assert_eq!(answer, Some(format!("true {number} {PHANTOM}")));
    }
    let long = "y".repeat(300_000);
    say.send(long.clone()).await.unwrap();
    let answer = within("a long answer", answers.message()).await.unwrap();
    assert!(answer == Some(format!("false {long}")));
    say.send("end".to_owned()).await.unwrap();
    let status = within("the status", answers.message()).await.unwrap_err();
    assert_eq!(status.code(), Code::DataLoss);
    assert_eq!(status.message(), format!("ended with {PHANTOM}"));
}

#[tokio::test]
async fn a_status_without_a_message_arrives_as_the_server_gave_it() {
    let world = world().await;
    let status = converse(&world, "another key").await.unwrap_err();
    assert_eq!(
        (status.code(), status.message()),
        (Code::Unauthenticated, "no key")
    );
}
