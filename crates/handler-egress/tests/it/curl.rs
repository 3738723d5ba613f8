//! curl, which has an HTTP/2 of its own, through interception and in plain tunnels; left out where it is not installed.

use crate::http2::BOTH;
use crate::intercept::World;
use crate::origin::{Origin, echo};
use crate::world::{Filter, PHANTOM, VALUE, enforce, within};
use http::Version;
use tokio::net::{TcpListener, UnixStream};
use tokio::process::Command;

/// A port that leads to the filter's listener, as a sandbox's guest makes one.
async fn forwarder(filter: &Filter) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let path = filter.listen_path("s1");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut filter = UnixStream::connect(&path).await.unwrap();
            tokio::spawn(async move {
                let _ = tokio::io::copy_bidirectional(&mut stream, &mut filter).await;
            });
        }
    });
    port
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "a skipped test says so")]
async fn curl_sends_and_gets_through_both_versions() {
    let Ok(features) = Command::new("curl").arg("--version").output().await else {
        println!("SKIP curl_sends_and_gets_through_both_versions: no curl");
        return;
    };
    let knows_http2 = String::from_utf8_lossy(&features.stdout).contains("HTTP2");
    let world = World::speaking(BOTH, echo).await;
    let port = forwarder(&world.filter).await;
    let folder = tempfile::tempdir().unwrap();
    let (roots, upload) = (folder.path().join("ca.pem"), folder.path().join("body"));
    let filler = "y".repeat(1_200_000);
    std::fs::write(&roots, &world.ca_pem).unwrap();
    std::fs::write(&upload, format!("{filler}{PHANTOM}")).unwrap();
    for (flag, version) in [
        ("--http1.1", Version::HTTP_11),
        ("--http2", Version::HTTP_2),
    ] {
        let mut curl = Command::new("curl");
        curl.env_clear()
            .args(["--disable", "--silent", "--show-error", "--fail", flag])
            .args(["--proxy", &format!("http://127.0.0.1:{port}")])
            .arg("--cacert")
            .arg(&roots)
            .args(["--header", &format!("x-api-key: {PHANTOM}")])
            .arg("--data-binary")
            .arg(format!("@{}", upload.display()))
            .arg(format!("https://{}/", world.host));
        let output = within("curl", curl.output()).await.unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{flag}: {error}");
        assert!(output.stdout.ends_with(PHANTOM.as_bytes()), "{flag}");
        assert_eq!(output.stdout.len(), filler.len() + PHANTOM.len());
        let received = world.origin.received().pop().unwrap();
        if knows_http2 || version == Version::HTTP_11 {
            assert_eq!(received.version, version);
        }
        assert_eq!(received.headers["x-api-key"], VALUE);
        assert!(received.body.ends_with(VALUE.as_bytes()));
    }
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "a skipped test says so")]
async fn curl_speaks_every_version_in_plain_tunnels() {
    let Ok(features) = Command::new("curl").arg("--version").output().await else {
        println!("SKIP curl_speaks_every_version_in_plain_tunnels: no curl");
        return;
    };
    let knows_http2 = String::from_utf8_lossy(&features.stdout).contains("HTTP2");
    let origin = Origin::plain(echo).await;
    let host = format!("host.containers.internal:{}", origin.port);
    let filter = Filter::start(|_| {}).await;
    filter.put(enforce(&[&host]), vec![]).await;
    let port = forwarder(&filter).await;
    let folder = tempfile::tempdir().unwrap();
    let upload = folder.path().join("body");
    // Long enough for curl to ask first whether it may send it.
    let body = "y".repeat(1_200_000);
    std::fs::write(&upload, &body).unwrap();
    for (flag, version) in [
        ("--http1.0", Version::HTTP_11),
        ("--http1.1", Version::HTTP_11),
        ("--http2", Version::HTTP_11),
        ("--http2-prior-knowledge", Version::HTTP_2),
    ] {
        if flag.starts_with("--http2") && !knows_http2 {
            println!("SKIP {flag}: curl without HTTP/2");
            continue;
        }
        let before = origin.received().len();
        // curl 7.88 fails when it uses such a connection again, through any proxy.
        let paths: &[&str] = match version {
            Version::HTTP_2 => &["/1"],
            _ => &["/1", "/2"],
        };
        let mut curl = Command::new("curl");
        curl.env_clear()
            .args(["--disable", "--silent", "--show-error", "--fail", flag])
            .args(["--proxytunnel", "--proxy"])
            .arg(format!("http://127.0.0.1:{port}"))
            .arg("--data-binary")
            .arg(format!("@{}", upload.display()))
            .args(paths.iter().map(|path| format!("http://{host}{path}")));
        let output = within("curl", curl.output()).await.unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{flag}: {error}");
        assert_eq!(output.stdout.len(), body.len() * paths.len(), "{flag}");
        let received = origin.received().split_off(before);
        assert_eq!(received.len(), paths.len(), "{flag}");
        assert!(received.iter().all(|one| one.version == version), "{flag}");
        assert!(received.iter().all(|one| one.body == body.as_bytes()));
    }
}
