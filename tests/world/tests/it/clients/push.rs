//! `git push` over https: a login that git asks a helper for, and a body of some size.

use super::Place;
use super::packages::run;
use crate::support::has_tools;
use anyhow::ensure;
use std::path::Path;
use std::process::Command;

/// More than git sends in one piece (`http.postBuffer`, 1 MiB).
const SIZE: usize = 3_000_000;

/// The helper is the one of docs/guide.md.
const PUSH: &str = r#"set -e; rm -rf /tmp/push; git init -q -b main /tmp/push; cd /tmp/push
git config user.name a; git config user.email a@example.com
git config credential.helper '!f() { echo username=user; echo "password=$TOKEN"; }; f'
head -c @SIZE@ /dev/urandom >blob; git add blob; git commit -q -m first
git push -q "https://$HERE/git/repo.git" "main:from-${HERE##*:}"
rm -rf /tmp/again; git -c credential.helper="$(git config credential.helper)" clone -q -b "from-${HERE##*:}" "https://$HERE/git/repo.git" /tmp/again
cmp blob /tmp/again/blob; git hash-object blob"#;

fn blob_of(repository: &Path, branch: &str) -> anyhow::Result<String> {
    let asked = Command::new("git")
        .arg("--git-dir")
        .arg(repository)
        .args(["rev-parse", &format!("{branch}:blob")])
        .output()?;
    ensure!(asked.status.success(), "{asked:?}");
    Ok(String::from_utf8(asked.stdout)?.trim().to_owned())
}

#[tokio::test]
async fn git_pushes_and_fetches_with_a_stored_token() -> anyhow::Result<()> {
    if !has_tools("git_pushes_and_fetches", &["git"]) {
        return Ok(());
    }
    let place = Place::new().await?;
    run(
        &place.origin.files,
        &["git", "init", "-q", "--bare", "-b", "main", "repo.git"],
    )?;
    let script = PUSH.replace("@SIZE@", &SIZE.to_string());
    let outputs = place
        .both(&script, "/git/repo.git/git-receive-pack")
        .await?;
    for (port, output) in place.origin.ports.iter().zip(&outputs) {
        let repository = place.origin.files.join("repo.git");
        let arrived = blob_of(&repository, &format!("from-{port}"))?;
        ensure!(&arrived == output, "{arrived} instead of {output}");
    }
    place.end().await
}
