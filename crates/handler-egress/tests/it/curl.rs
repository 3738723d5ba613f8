//! curl, which has an HTTP/2 of its own, through interception; left out where it is not installed.

use crate::http2::BOTH;
use crate::intercept::World;
use crate::origin::echo;
use crate::world::{PHANTOM, VALUE, within};
use http::Version;
use tokio::net::{TcpListener, UnixStream};
use tokio::process::Command;

/// A port that leads to the filter's listener, as a sandbox's guest makes one.
async fn forwarder(world: &World) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let path = world.filter.listen_path("s1");
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
    let port = forwarder(&world).await;
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
