//! Stand-ins and values cut at every byte wherever they may stand, both ways: in heads and trailers, in the framing
//! itself (sizes of chunks, heads of frames), over HTTP/1.1, HTTP/2 and WebSockets. Bodies by their content coding
//! are in `coded.rs`.

mod any;
mod http2;
mod sockets;

use crate::intercept::{NAME, World};
use crate::origin::{Origin, Received, Reply, certificate_for, trailed};
use crate::world::{PHANTOM, VALUE, read_head, within};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::server::TlsStream;

/// An origin that does with each connection what `serve` says, byte by byte.
async fn raw<F>(alpn: &[&str], serve: impl Fn(TlsStream<TcpStream>) -> F + Send + 'static) -> World
where
    F: Future<Output = ()> + Send + 'static,
{
    let (acceptor, roots) = certificate_for(NAME, alpn);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(stream) = acceptor.accept(stream).await {
                tokio::spawn(serve(stream));
            }
        }
    });
    World::around(Origin::elsewhere(port), Some(roots)).await
}

/// Writes in two pieces, each a record of its own; in between others have their turn.
async fn cut(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8], at: usize) {
    for piece in [&bytes[..at], &bytes[at..]] {
        // An end that was refused is seen by who reads the answer.
        let _ = stream.write_all(piece).await;
        let _ = stream.flush().await;
        tokio::task::yield_now().await;
    }
}

/// A message in chunks, to the end of its trailers.
async fn to_the_trailers(stream: &mut (impl AsyncRead + Unpin)) -> String {
    within("the whole message", async {
        let mut text = read_head(stream).await;
        let mut body = Vec::new();
        while !(body.starts_with(b"0\r\n") || find(&body, b"\r\n0\r\n"))
            || !body.ends_with(b"\r\n\r\n")
        {
            body.push(stream.read_u8().await.unwrap());
        }
        text.push_str(&String::from_utf8(body).unwrap());
        text
    })
    .await
}

fn find(bytes: &[u8], wanted: &[u8]) -> bool {
    memchr::memmem::find(bytes, wanted).is_some()
}

fn basic(key: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("user:{key}")))
}

fn request(world: &World) -> String {
    let body = format!("key={PHANTOM}&again={PHANTOM}");
    let (front, back) = body.split_at(12);
    format!(
        "POST /{PHANTOM}?key={PHANTOM} HTTP/1.1\r\nHost: {}\r\nX-Key: {PHANTOM}\r\nAuthorization: {}\r\n\
         Transfer-Encoding: chunked\r\nTE: trailers\r\nTrailer: X-Sum\r\n\r\n\
         {:x}\r\n{front}\r\n{:x};name=value\r\n{back}\r\n0\r\nX-Sum: {PHANTOM}\r\n\r\n",
        world.host,
        basic(PHANTOM),
        front.len(),
        back.len(),
    )
}

fn said(_: &Received) -> Reply {
    let mut reply = trailed(VALUE, "x-sum", VALUE);
    let headers = reply.headers_mut();
    headers.insert("x-key", VALUE.parse().unwrap());
    reply
}

#[tokio::test]
async fn a_request_cut_at_every_byte_has_the_value_in_every_part() {
    let world = World::new(said).await;
    let request = request(&world);
    let mut tls = world.tls(NAME).await.unwrap();
    for at in 0..=request.len() {
        cut(&mut tls, request.as_bytes(), at).await;
        let answer = to_the_trailers(&mut tls).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{at}: {answer}");
        assert_eq!(answer.matches(PHANTOM).count(), 3, "{at}: {answer}");
        assert!(!answer.contains(VALUE), "{at}: {answer}");
    }
    let received = world.origin.received();
    assert_eq!(received.len(), request.len() + 1);
    for one in received {
        assert_eq!(one.target, format!("/{VALUE}?key={VALUE}"));
        assert_eq!(one.headers["x-key"], VALUE);
        assert_eq!(one.headers["authorization"], basic(VALUE).as_str());
        assert_eq!(one.body, format!("key={VALUE}&again={VALUE}").as_bytes());
        assert_eq!(one.trailers["x-sum"], VALUE);
        assert!(one.whole && !format!("{one:?}").contains(PHANTOM));
    }
}

#[tokio::test]
async fn a_request_in_chunks_of_every_size_has_the_value() {
    let world = World::new(said).await;
    let body = format!("key={PHANTOM}&again={PHANTOM}");
    let mut tls = world.tls(NAME).await.unwrap();
    for size in 1..=PHANTOM.len() + 1 {
        let mut request = format!(
            "POST / HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\n\r\n",
            world.host
        );
        for chunk in body.as_bytes().chunks(size) {
            let text = std::str::from_utf8(chunk).unwrap();
            request.push_str(&format!("{:x}\r\n{text}\r\n", chunk.len()));
        }
        request.push_str("0\r\n\r\n");
        tls.write_all(request.as_bytes()).await.unwrap();
        let answer = to_the_trailers(&mut tls).await;
        assert!(
            answer.contains(PHANTOM) && !answer.contains(VALUE),
            "{answer}"
        );
    }
    let wanted = body.replace(PHANTOM, VALUE);
    let received = world.origin.received();
    assert_eq!(received.len(), PHANTOM.len() + 1);
    assert!(received.iter().all(|one| one.body == wanted.as_bytes()));
}

#[tokio::test]
async fn an_answer_cut_at_every_byte_has_the_phantom_in_every_part() {
    let body = format!("data: {VALUE}\n\n");
    let (front, back) = body.split_at(17);
    let answer = format!(
        "HTTP/1.1 200 Fine\r\nX-Key: {VALUE}\r\nSet-Cookie: key={VALUE}; Path=/\r\n\
         Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
         {:x}\r\n{front}\r\n{:x}\r\n{back}\r\n0\r\nX-Sum: {VALUE}\r\n\r\n",
        front.len(),
        back.len(),
    );
    let length = answer.len();
    let world = raw(&["http/1.1"], move |mut stream| {
        let answer = answer.clone();
        async move {
            loop {
                let head = read_head(&mut stream).await;
                let Some(at) = head.strip_prefix("GET /") else {
                    return;
                };
                let at = at.split(' ').next().unwrap().parse().unwrap();
                cut(&mut stream, answer.as_bytes(), at).await;
            }
        }
    })
    .await;
    let mut tls = world.tls(NAME).await.unwrap();
    for at in 0..=length {
        let head = format!(
            "GET /{at} HTTP/1.1\r\nHost: {}\r\nTE: trailers\r\n\r\n",
            world.host
        );
        tls.write_all(head.as_bytes()).await.unwrap();
        let answer = to_the_trailers(&mut tls).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{at}: {answer}");
        assert!(!answer.contains(VALUE), "{at}: {answer}");
        // Where it was cut shows in the chunks.
        let text: String = plain(&answer);
        assert_eq!(text.matches(PHANTOM).count(), 4, "{at}: {answer}");
    }
}

/// A message without the sizes of its chunks.
fn plain(message: &str) -> String {
    let (head, body) = message.split_once("\r\n\r\n").unwrap();
    let mut text = head.to_owned();
    let mut rest = body;
    loop {
        let (size, after) = rest.split_once("\r\n").unwrap();
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return text + after;
        }
        text.push_str(&after[..size]);
        rest = &after[size + 2..];
    }
}
