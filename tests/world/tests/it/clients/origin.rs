//! The origin of these tests: certificates of its own authority, a folder, its log.

use anyhow::{Context as _, ensure};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The name it has a certificate for.
pub(crate) const NAME: &str = "host.containers.internal";

/// What is served.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Server {
    /// Files, a WebSocket and Git's protocol over HTTP/1.1.
    Https,
    /// Any gRPC method: what it was sent.
    Grpc,
}

/// A request that arrived.
#[derive(Debug)]
pub(crate) struct Arrived(serde_json::Value);

impl Arrived {
    pub(crate) fn is(&self, port: u16, path: &str) -> bool {
        let asked = self.0["path"].as_str().unwrap_or_default();
        self.0["port"] == port && asked.split('?').next() == Some(path)
    }

    pub(crate) fn mentions(&self, text: &str) -> bool {
        self.0.to_string().contains(text)
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.0["headers"][name].as_str().unwrap_or_default()
    }
}

/// Runs until it is dropped.
#[derive(Debug)]
pub(crate) struct Origin {
    child: Child,
    log: PathBuf,
    /// What is served.
    pub(crate) files: PathBuf,
    /// The port that is given the secret, and one that is not.
    pub(crate) ports: [u16; 2],
}

impl Origin {
    /// Starts it with a certificate of this authority.
    pub(crate) fn start(
        server: Server,
        folder: &Path,
        authority: &Authority,
    ) -> anyhow::Result<Self> {
        let (certificate, key) = (folder.join("leaf.pem"), folder.join("leaf.key"));
        let leaf_key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec![NAME.to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, NAME);
        let leaf = params.signed_by(&leaf_key, &authority.issuer)?;
        std::fs::write(&certificate, leaf.pem())?;
        std::fs::write(&key, leaf_key.serialize_pem())?;
        let (files, log) = (folder.join("files"), folder.join("log"));
        std::fs::create_dir_all(&files)?;
        std::fs::write(&log, "")?;
        let script = match server {
            Server::Https => "tests/it/clients/origin.py",
            Server::Grpc => "tests/it/clients/grpc_origin.py",
        };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join(script);
        let mut child = Command::new("/usr/bin/python3")
            .arg(script)
            .args([&certificate, &key, &files, &log])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("its output")?).lines();
        let mut port = || -> anyhow::Result<u16> {
            let line = lines.next().context("the origin does not start")??;
            Ok(line.parse()?)
        };
        let ports = [port()?, port()?];
        Ok(Self {
            child,
            log,
            files,
            ports,
        })
    }

    /// What arrived at a port for a path; there must be something.
    pub(crate) fn arrived(&self, port: u16, path: &str) -> anyhow::Result<Arrived> {
        let log = std::fs::read_to_string(&self.log)?;
        let mut all = Vec::new();
        for line in log.lines() {
            all.push(Arrived(serde_json::from_str(line)?));
        }
        let found = all.into_iter().rev().find(|one| one.is(port, path));
        found.with_context(|| format!("nothing for {path} arrived at {port}: {log}"))
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An authority that daemon and sandboxes are told to trust.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let mut params = CertificateParams::default();
        let name = "An authority of these tests";
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        ensure!(!pem.is_empty());
        Ok(Self {
            issuer: Issuer::new(params, key),
            pem,
        })
    }

    /// What signs.
    pub(crate) fn issuer(&self) -> &Issuer<'static, KeyPair> {
        &self.issuer
    }

    /// Writes its certificate.
    pub(crate) fn write(&self, path: &Path) -> anyhow::Result<()> {
        Ok(std::fs::write(path, &self.pem)?)
    }
}
