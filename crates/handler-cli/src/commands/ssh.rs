//! `handler ssh`, `ssh-config` and `ssh-proxy`: the system's SSH programs, brought to a sandbox through the API.
//!
//! The host key comes over the API, which is authenticated, into a file of known hosts of our own: nothing is asked,
//! nothing is trusted at first sight, and the user's own files stay as they are.

use super::Outcome;
use super::ports::input;
use crate::context::Context;
use crate::exit::Failure;
use clap::Args;
use handler_client::Client;
use handler_types::sandbox::SandboxView;
use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `handler ssh`.
#[derive(Debug, Args)]
pub struct SshArgs {
    /// The sandbox
    pub sandbox: String,
    /// Forward a port as `ssh -L` does (repeatable)
    #[arg(
        long = "local-forward",
        short = 'L',
        value_name = "[ADDRESS:]PORT:localhost:PORT"
    )]
    pub local_forward: Vec<String>,
    /// A terminal also for a command
    #[arg(short = 't')]
    pub terminal: bool,
    /// Run no command: only forward
    #[arg(short = 'N')]
    pub nothing: bool,
    /// An option of `ssh` (repeatable)
    #[arg(short = 'o', value_name = "OPTION")]
    pub option: Vec<String>,
    /// A command instead of a shell; as with `ssh`, a shell inside reads it
    #[arg(last = true)]
    pub command: Vec<String>,
}

/// Becomes `ssh`.
///
/// # Errors
/// [`Failure`]; when it succeeds it does not return.
pub async fn ssh(args: SshArgs, context: &Context) -> Outcome {
    let client = context.client()?;
    let view = client.sandbox(&args.sandbox).await?;
    let files = Files::new(context)?;
    learn(&client, view.id.as_str(), &files).await?;
    let mut ssh = Command::new("ssh");
    // Ours are first, and of an option's values the first counts.
    for (name, value) in options(&view, &files, context)? {
        ssh.arg("-o").arg(format!("{name}={value}"));
    }
    for forward in &args.local_forward {
        ssh.args(["-L", forward]);
    }
    for option in &args.option {
        ssh.args(["-o", option]);
    }
    if args.terminal {
        ssh.arg("-t");
    }
    if args.nothing {
        ssh.arg("-N");
    }
    ssh.arg("--").arg(host(&view)).args(&args.command);
    let error = ssh.exec();
    Err(match error.kind() {
        std::io::ErrorKind::NotFound => {
            Failure::Failed("`ssh` is not installed here; install OpenSSH's client".into())
        }
        _ => Failure::local("cannot start `ssh`", error),
    })
}

/// Connects our input and output to the SSH server of a sandbox.
///
/// # Errors
/// [`Failure`].
pub async fn proxy(sandbox: &str, context: &Context) -> Outcome {
    let client = context.client()?;
    // Before any byte comes back, so that `ssh` finds the key when it looks for it.
    let files = Files::new(context)?;
    learn(&client, sandbox, &files).await?;
    let tunnel = client.ssh(sandbox).await?;
    tunnel.carry(input(), tokio::io::stdout()).await?;
    Ok(0)
}

/// Prints or writes what `ssh`'s configuration needs.
///
/// # Errors
/// [`Failure`].
pub async fn config(write: bool, context: &Context) -> Outcome {
    let client = context.client()?;
    let files = Files::new(context)?;
    let mut text = String::new();
    let mut cursor = String::new();
    loop {
        let page = client.sandboxes(&cursor, 500).await?;
        for view in &page.items {
            text.push_str(&block(view, &files, context)?);
        }
        let Some(next) = page.next_cursor else { break };
        cursor = next;
    }
    if !write {
        context.out.text(&text);
        return Ok(0);
    }
    handler_base::fs::create_private_dir(&files.folder)
        .and_then(|()| handler_base::fs::write_atomic(&files.config, text.as_bytes(), 0o600))
        .map_err(|error| Failure::local("cannot write the configuration", error))?;
    context.out.line(files.config.display().to_string());
    let line = format!("Include \"{}\"", files.config.display());
    context.out.note(format!(
        "put this line at the top of ~/.ssh/config, once:\n  {line}\nthen `ssh NAME.handler`, scp, rsync and editors find the sandboxes; run this again after making one"
    ));
    Ok(0)
}

/// Files of ours that `ssh` reads.
struct Files {
    folder: PathBuf,
    known_hosts: PathBuf,
    config: PathBuf,
}

impl Files {
    fn new(context: &Context) -> Result<Self, Failure> {
        let beside = context.token_file.parent().unwrap_or(Path::new("/"));
        let folder = beside.join("ssh");
        let is_plain = folder
            .to_str()
            .is_some_and(|text| !text.contains(['"', '\n', '%', '$']));
        if !is_plain {
            return Err(Failure::Failed(format!(
                "`ssh` cannot be told of files in {}: choose another folder with HANDLER_CONFIG_DIR",
                folder.display()
            )));
        }
        Ok(Self {
            known_hosts: folder.join("known_hosts"),
            config: folder.join("config"),
            folder,
        })
    }

    /// The right to write the known hosts, until it is dropped.
    fn turn(&self) -> std::io::Result<File> {
        handler_base::fs::create_private_dir(&self.folder)?;
        let lock = File::create(self.folder.join(".lock"))?;
        lock.lock()?;
        Ok(lock)
    }
}

fn host(view: &SandboxView) -> String {
    format!("{}.handler", view.name)
}

fn alias(view: &SandboxView) -> String {
    format!("{}.handler", view.id)
}

/// Options that lead `ssh` to a sandbox and ask nothing.
fn options(
    view: &SandboxView,
    files: &Files,
    context: &Context,
) -> Result<Vec<(&'static str, String)>, Failure> {
    let program = context.program.to_str().filter(|p| !p.contains('\n'));
    let program =
        program.ok_or_else(|| Failure::Failed("this program's own path is not UTF-8".into()))?;
    // A shell reads it, after `ssh` has replaced its percent signs.
    let program = program.replace('\'', r"'\''").replace('%', "%%");
    let known_hosts = files.known_hosts.display();
    Ok(vec![
        ("ProxyCommand", format!("'{program}' ssh-proxy {}", view.id)),
        ("HostKeyAlias", alias(view)),
        ("UserKnownHostsFile", format!("\"{known_hosts}\"")),
        ("GlobalKnownHostsFile", "/dev/null".to_owned()),
        ("StrictHostKeyChecking", "yes".to_owned()),
        ("CheckHostIP", "no".to_owned()),
        ("UpdateHostKeys", "no".to_owned()),
        ("User", "agent".to_owned()),
        ("PreferredAuthentications", "publickey".to_owned()),
        ("ForwardAgent", "no".to_owned()),
        ("ForwardX11", "no".to_owned()),
        ("LogLevel", "ERROR".to_owned()),
    ])
}

fn block(view: &SandboxView, files: &Files, context: &Context) -> Result<String, Failure> {
    let mut text = format!("Host {} {}\n", host(view), alias(view));
    for (name, value) in options(view, files, context)? {
        text.push_str(&format!("    {name} {value}\n"));
    }
    text.push('\n');
    Ok(text)
}

/// Puts a sandbox's host key into our file of known hosts.
async fn learn(client: &Client, sandbox: &str, files: &Files) -> Result<(), Failure> {
    let key = client.ssh_host_key(sandbox).await?;
    let line = format!("{} {}", key.alias, key.public_key);
    if line.contains(['\n', '\r']) {
        return Err(Failure::Failed("the daemon gave no usable host key".into()));
    }
    let cannot = |error| Failure::local("cannot write the known hosts", error);
    // Others learn at the same time: what is read is what is added to.
    let _turn = files.turn().map_err(cannot)?;
    let known = std::fs::read_to_string(&files.known_hosts).unwrap_or_default();
    if known.lines().any(|known| known == line) {
        return Ok(());
    }
    let own = format!("{} ", key.alias);
    let mut text: String = known
        .lines()
        .filter(|known| !known.starts_with(&own))
        .map(|known| format!("{known}\n"))
        .collect();
    text.push_str(&line);
    text.push('\n');
    handler_base::fs::write_atomic(&files.known_hosts, text.as_bytes(), 0o600).map_err(cannot)
}
