//! Programs that people use, through the filter: to a host that is given a secret (decrypted on the way) and to one
//! that is not (a tunnel), with nothing set but the sandbox's own environment.

mod grpc;
pub(crate) mod origin;
mod packages;
mod push;
mod runtimes;

use crate::support::{Sandbox, has_tools, open_work, project, text};
use anyhow::ensure;
use handler_testkit::World;
use handler_types::api::SecretRequest;
use handler_types::network::{Enforcement, NetworkPolicy};
use handler_types::sandbox::{CreateSandbox, SecretGrant};
use origin::{Authority, NAME, Origin, Server};
use std::path::PathBuf;
use std::process::Command;

const VALUE: &str = "sk-value-0123456789abcdef0123456789abcdef0123456";

/// A sandbox beside an origin that it may reach by two ports.
pub(crate) struct Place {
    pub(crate) world: World,
    pub(crate) sandbox: Sandbox,
    pub(crate) origin: Origin,
    project: PathBuf,
    pub(crate) value: String,
    pub(crate) phantom: String,
    _folder: tempfile::TempDir,
}

impl Place {
    async fn new() -> anyhow::Result<Self> {
        Self::with(Server::Https, VALUE).await
    }

    /// `value`: what `$TOKEN` stands for.
    pub(crate) async fn with(server: Server, value: &str) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let authority = Authority::new()?;
        let bundle = folder.path().join("authority.pem");
        authority.write(&bundle)?;
        let origin = Origin::start(server, folder.path(), &authority)?;
        std::fs::write(origin.files.join("hello"), "hello\n")?;
        let world = World::builder()
            .env("SSL_CERT_FILE", &bundle)
            .start()
            .await?;
        open_work(&world).await?;
        let project = project(&world, "app")?;
        let [given, tunnel] = origin.ports;
        let secret = SecretRequest {
            value: value.to_owned(),
            description: None,
        };
        world.client().set_secret("tokens/clients", &secret).await?;
        let grant = SecretGrant {
            secret: "tokens/clients".to_owned(),
            hosts: vec![format!("{NAME}:{given}").parse()?],
        };
        let spec = CreateSandbox {
            scope: Some(text(&project)?),
            secrets: [("TOKEN".to_owned(), grant)].into(),
            network: Some(NetworkPolicy::Filtered {
                allow: vec![format!("{NAME}:{tunnel}").parse()?],
                enforcement: Enforcement::Enforce,
            }),
            ..CreateSandbox::default()
        };
        let sandbox = Sandbox::up(&world, &spec).await?;
        let phantom = sandbox.out("printf %s \"$TOKEN\"").await?;
        ensure!(phantom != value && phantom.len() == value.len());
        Ok(Self {
            world,
            sandbox,
            origin,
            project,
            value: value.to_owned(),
            phantom,
            _folder: folder,
        })
    }

    /// Runs a script once for each port; `$HERE` is the address. Where a secret is given the value must arrive, and
    /// elsewhere the stand-in.
    async fn both(&self, script: &str, path: &str) -> anyhow::Result<[String; 2]> {
        let mut outputs = [String::new(), String::new()];
        for (at, port) in self.origin.ports.into_iter().enumerate() {
            let script = format!("HERE={NAME}:{port}; export HERE; {script}");
            outputs[at] = self.sandbox.out(&script).await?;
            let arrived = self.origin.arrived(port, path)?;
            let wanted = [&self.value, &self.phantom][at];
            let basic = crate::search::base64(format!("user:{wanted}").as_bytes());
            ensure!(
                arrived.mentions(wanted) || arrived.header("authorization").contains(&basic),
                "not `{wanted}`: {arrived:?}"
            );
        }
        Ok(outputs)
    }

    /// The same for a script that prints what the server says.
    async fn says_hello(&self, script: &str) -> anyhow::Result<()> {
        for output in self.both(script, "/hello").await? {
            ensure!(output == "hello", "{script}: {output}");
        }
        Ok(())
    }

    pub(crate) async fn end(self) -> anyhow::Result<()> {
        self.world.client().delete_sandbox(&self.sandbox.id).await?;
        Ok(())
    }
}

#[tokio::test]
async fn programs_without_a_proxy_reach_it_and_the_secret_is_swapped() -> anyhow::Result<()> {
    let test = "programs_without_a_proxy";
    if !crate::transparent::has_device(test) || !has_tools(test, &["curl", "python3"]) {
        return Ok(());
    }
    let place = Place::new().await?;
    let bare = crate::transparent::BARE;
    place
        .says_hello(&format!(
            "{bare} curl -sSf -m 30 -H \"Authorization: Bearer $TOKEN\" https://$HERE/hello"
        ))
        .await?;
    place.end().await
}

#[tokio::test]
async fn curl_and_python_reach_what_is_allowed() -> anyhow::Result<()> {
    if !has_tools("curl_and_python_reach", &["curl", "python3"]) {
        return Ok(());
    }
    let place = Place::new().await?;
    place
        .says_hello("curl -sSf -m 30 -H \"Authorization: Bearer $TOKEN\" https://$HERE/hello")
        .await?;
    let urllib = "import os,urllib.request as r; h={'Authorization':'Bearer '+os.environ['TOKEN']}; \
         print(r.urlopen(r.Request('https://'+os.environ['HERE']+'/hello',headers=h)).read().decode(),end='')";
    place
        .says_hello(&format!("/usr/bin/python3 -c \"{urllib}\""))
        .await?;
    for library in ["requests", "httpx"] {
        if !has_module(library) {
            handler_testkit::skip(
                "curl_and_python_reach",
                &format!("there is no python3-{library}"),
            );
            continue;
        }
        let program = format!(
            "import os,{library} as r; h={{'Authorization':'Bearer '+os.environ['TOKEN']}}; \
             print(r.get('https://'+os.environ['HERE']+'/hello',headers=h).text,end='')"
        );
        place
            .says_hello(&format!("/usr/bin/python3 -c \"{program}\""))
            .await?;
    }
    place.end().await
}

#[tokio::test]
async fn a_websocket_client_talks_and_its_secret_is_given() -> anyhow::Result<()> {
    if !has_module("websocket") {
        handler_testkit::skip("a_websocket_client_talks", "there is no python3-websocket");
        return Ok(());
    }
    let place = Place::new().await?;
    let program = "import os,ssl,urllib.parse as u,websocket as w; \
         p=u.urlparse(os.environ['https_proxy']); \
         c=w.create_connection('wss://'+os.environ['HERE']+'/ws',http_proxy_host=p.hostname,http_proxy_port=p.port,proxy_type='http',\
         sslopt={'ca_certs':os.environ['SSL_CERT_FILE']}); c.send('key '+os.environ['TOKEN']); print(c.recv())";
    let [given, tunnel] = place
        .both(&format!("/usr/bin/python3 -c \"{program}\""), "/ws")
        .await?;
    // What the server echoes is the value, and nobody inside sees it.
    let wanted = format!("key {}", place.phantom);
    ensure!(given == wanted && tunnel == wanted, "{given} {tunnel}");
    place.end().await
}

#[tokio::test]
async fn go_programs_reach_what_is_allowed() -> anyhow::Result<()> {
    if !has_tools("go_programs_reach", &["go"]) {
        return Ok(());
    }
    let place = Place::new().await?;
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/clients/main.go");
    let cache = tempfile::tempdir()?;
    let built = Command::new("go")
        .args(["build", "-o"])
        .arg(place.project.join("client"))
        .arg(source)
        .env("GOCACHE", cache.path())
        .env("GOFLAGS", "-mod=mod")
        .env("GO111MODULE", "off")
        .env("CGO_ENABLED", "0")
        .output()?;
    ensure!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    place.says_hello("./client https://$HERE/hello").await?;
    place.end().await
}

/// Whether the system's Python has a module.
pub(crate) fn has_module(name: &str) -> bool {
    Command::new("/usr/bin/python3")
        .args(["-c", &format!("import {name}")])
        .output()
        .is_ok_and(|done| done.status.success())
}
