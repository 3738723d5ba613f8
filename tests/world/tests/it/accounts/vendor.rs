//! A world in which vendors' hosts are answered by a scripted model that takes one token only.

use crate::clients::origin::Authority;
use crate::harness::shared;
use crate::sessions::Stage;
use crate::support::{has_tools, open_work};
use anyhow::Context as _;
use handler_scripted::{ScriptedConfig, ScriptedModel};
use handler_testkit::World;
use rcgen::{CertificateParams, KeyPair};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What stands for the outside.
pub(crate) struct Vendor {
    child: Child,
    pub(crate) model: ScriptedModel,
    folder: tempfile::TempDir,
}

impl Vendor {
    /// Answers for these hosts.
    fn start(hosts: &[&str], token: &str) -> anyhow::Result<(Self, u16)> {
        let folder = tempfile::tempdir()?;
        let authority = Authority::new()?;
        authority.write(&folder.path().join("authority.pem"))?;
        let names: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let key = KeyPair::generate()?;
        let leaf = CertificateParams::new(names)?.signed_by(&key, authority.issuer())?;
        let [certificate, secret] = ["leaf.pem", "leaf.key"].map(|name| folder.path().join(name));
        std::fs::write(&certificate, leaf.pem())?;
        std::fs::write(&secret, key.serialize_pem())?;
        let model = ScriptedModel::start(ScriptedConfig {
            expect_key: Some(token.to_owned()),
            ..ScriptedConfig::default()
        })?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/accounts/vendor.py");
        let mut child = Command::new("/usr/bin/python3")
            .arg(script)
            .args([&certificate, &secret])
            .arg(model.port().to_string())
            .args(hosts)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
        let port = lines.next().context("the vendor does not start")??;
        let vendor = Self {
            child,
            model,
            folder,
        };
        Ok((vendor, port.parse()?))
    }

    fn authority(&self) -> PathBuf {
        self.folder.path().join("authority.pem")
    }
}

impl Drop for Vendor {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A world with a harness whose vendor is ours, `env` in its daemon's environment; none when this machine cannot, said loudly.
pub(crate) async fn world(
    test: &str,
    harness: &str,
    hosts: &[&str],
    token: &str,
    env: &[(&str, &str)],
) -> anyhow::Result<Option<(World, Vendor)>> {
    if !has_tools(test, &["python3"]) {
        return Ok(None);
    }
    // Installed where the registry is what it is.
    let Some(plain) = Stage::bare(test).await? else {
        return Ok(None);
    };
    if !shared::provide(test, &plain, &[harness]).await? {
        return Ok(None);
    }
    drop(plain);
    let (vendor, port) = Vendor::start(hosts, token)?;
    let mut builder = World::builder();
    for (name, value) in env {
        builder = builder.env(*name, *value);
    }
    let world = builder
        .env("SSL_CERT_FILE", vendor.authority())
        .env("HTTPS_PROXY", format!("http://127.0.0.1:{port}"))
        .env("NO_PROXY", "")
        .start()
        .await?;
    open_work(&world).await?;
    let is_there = shared::provide(test, &world, &[harness]).await?;
    Ok(is_there.then_some((world, vendor)))
}
