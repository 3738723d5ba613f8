//! The command line of a world: `handler` with the world's environment, to its end or by hand.

use super::World;
use anyhow::{Context as _, bail};
use std::ffi::OsStr;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// How long one command may take.
const COMMAND_WITHIN: Duration = Duration::from_secs(300);

impl World {
    /// `handler` with the world's environment, in its work folder; arguments and input are the caller's.
    #[must_use]
    pub fn command(&self) -> Command {
        self.tool(&self.program)
    }

    /// Another program as the world's person would run it.
    #[must_use]
    pub fn tool(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().envs(&self.env).current_dir(self.work());
        if let Some(user) = &self.user {
            user.apply(&mut command);
        }
        command
    }

    /// Makes a file or folder made by the test belong to the user the world runs as.
    ///
    /// # Errors
    /// When this process may not.
    pub fn share(&self, path: &std::path::Path) -> anyhow::Result<()> {
        self.user.as_ref().map_or(Ok(()), |user| user.own(path))
    }

    /// Runs `handler <args>` to its end.
    ///
    /// # Errors
    /// When it cannot be started or takes over five minutes. A failing status is a result.
    pub async fn cli(&self, args: &[&str]) -> anyhow::Result<Output> {
        self.cli_with_input(args, b"").await
    }

    /// Runs `handler <args>` with standard input.
    ///
    /// # Errors
    /// As [`World::cli`].
    pub async fn cli_with_input(&self, args: &[&str], input: &[u8]) -> anyhow::Result<Output> {
        let mut command = tokio::process::Command::from(self.command());
        command
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().context("start the command line")?;
        let mut stdin = child.stdin.take().context("its input")?;
        let input = input.to_vec();
        let feed = tokio::spawn(async move {
            // A command that does not read its input closes it; that is no failure.
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stdin, &input).await;
        });
        let output = tokio::time::timeout(COMMAND_WITHIN, child.wait_with_output())
            .await
            .with_context(|| format!("handler {}: no end", args.join(" ")))??;
        feed.abort();
        self.note();
        Ok(output)
    }

    /// Runs `handler <args>`, which must succeed, and returns its standard output.
    ///
    /// # Errors
    /// As [`World::cli`], and when it fails: with both its outputs.
    pub async fn cli_ok(&self, args: &[&str]) -> anyhow::Result<String> {
        let output = self.cli(args).await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if !output.status.success() {
            bail!(
                "handler {}: {}\n{}{}",
                args.join(" "),
                output.status,
                text(&output.stdout),
                text(&output.stderr)
            );
        }
        Ok(text(&output.stdout))
    }
}
