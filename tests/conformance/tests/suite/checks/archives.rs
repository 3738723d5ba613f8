//! Folders up and down as archives.

use super::checks;
use crate::hostile::{self, Entry};
use crate::subject::Subject;
use crate::transfer::{in_project, pack, refusal, same, tree, unpack};
use anyhow::{Context as _, ensure};
use handler_testkit::inside::Sandbox;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

checks! { "archives":
    a_folder_goes_down_and_up_whole_in_every_form;
    a_folder_of_the_sandboxs_own_comes_down_as_other_programs_read_it;
    unpacking_over_a_folder_replaces_and_keeps_the_rest;
    a_hostile_archive_changes_nothing_outside;
    an_archive_over_the_limits_is_refused_before_it_is_written;
    what_is_no_archive_and_what_is_no_folder_are_told;
    the_command_line_copies_a_folder_in_and_out;
    the_command_line_is_not_led_outside_by_what_comes_out;
}

const FORMS: [&str; 3] = ["tar", "tar.gz", "zip"];

/// Modes, links, empty folders, odd names, and more than one piece of data.
const FURNISH: &str = "umask 022; mkdir -p top/sub/empty && cd top && printf content >'sub/file ü' && \
    printf odd >\"$(printf 'odd \\377')\" && head -c 3000000 /dev/zero | tr '\\0' b >big && \
    printf '#!/bin/sh\\n' >run && chmod 751 run && chmod 600 big && chmod 700 sub/empty && \
    ln -s 'sub/file ü' link && ln -s nowhere dangling && : >nothing";

async fn a_folder_goes_down_and_up_whole_in_every_form(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let (sandbox, folder) = in_project(&s, &world).await?;
    sandbox.out(FURNISH).await?;
    for form in FORMS {
        let bytes = pack(&sandbox, "top", form).await?;
        let into = format!("into-{form}");
        let done = unpack(&sandbox, &into, form, bytes).await?;
        ensure!(done.refused_count == 0, "{form}: {done:?}");
        same(&folder.join("top"), &folder.join(&into)).context(form)?;
    }
    let mode = |path: &str| {
        let meta = std::fs::metadata(folder.join("into-zip").join(path))?;
        anyhow::Ok(meta.permissions().mode() & 0o777)
    };
    ensure!((mode("run")?, mode("big")?, mode("sub/empty")?) == (0o751, 0o600, 0o700));
    s.down(sandbox).await
}

async fn a_folder_of_the_sandboxs_own_comes_down_as_other_programs_read_it(
    s: Arc<Subject>,
) -> anyhow::Result<()> {
    let world = s.world().await;
    let (sandbox, folder) = in_project(&s, &world).await?;
    for place in ["/home/agent", "/tmp"] {
        sandbox.out(&format!("cd {place} && {FURNISH}")).await?;
        let bytes = pack(&sandbox, &format!("{place}/top"), "tar.gz").await?;
        let here = tempfile::tempdir()?;
        std::fs::write(here.path().join("a.tar.gz"), &bytes)?;
        std::fs::create_dir(here.path().join("out"))?;
        let status = Command::new("tar")
            .args(["-xpzf", "a.tar.gz", "-C", "out"])
            .current_dir(here.path())
            .status()?;
        ensure!(status.success(), "tar: {status}");
        // The project has the same, made by the same script.
        sandbox.out(&format!("rm -rf top; {FURNISH}")).await?;
        same(&folder.join("top"), &here.path().join("out")).context(place)?;
    }
    s.down(sandbox).await
}

async fn unpacking_over_a_folder_replaces_and_keeps_the_rest(
    s: Arc<Subject>,
) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    sandbox.out(&format!("cd && {FURNISH}")).await?;
    for form in FORMS {
        let bytes = pack(&sandbox, "/home/agent/top", form).await?;
        sandbox
            .out(
                "cd ~/top && echo other >'sub/file ü' && ln -sf /etc/passwd run && echo mine >mine",
            )
            .await?;
        unpack(&sandbox, "/home/agent/top", form, bytes).await?;
        let seen = sandbox
            .out("cd ~/top && cat 'sub/file ü' mine && stat -c %a run && rm mine")
            .await?;
        ensure!(seen == "contentmine\n751", "{form}: {seen}");
    }
    s.down(sandbox).await
}

/// Name, form, archive, whether it is refused whole (else only the bad entry is left out and told).
fn hostile() -> Vec<(&'static str, &'static str, Vec<u8>, bool)> {
    let file = Entry::File(b"bad");
    let last = ("last", Entry::File(b"fine"));
    let link = 0o120_777;
    vec![
        ("dots", "tar", hostile::tar(&[("../secret", file)]), true),
        (
            "dots within",
            "tar",
            hostile::tar(&[("a/../../secret", file)]),
            true,
        ),
        (
            "absolute",
            "tar",
            hostile::tar(&[("/tmp/handler-bad", file)]),
            true,
        ),
        (
            "through",
            "tar",
            hostile::tar(&[("out", Entry::Link("..")), ("out/secret", file)]),
            false,
        ),
        (
            "away",
            "tar",
            hostile::tar(&[("tmp", Entry::Link("/tmp")), ("tmp/handler-bad", file)]),
            false,
        ),
        (
            "hard",
            "tar",
            hostile::tar(&[("h", Entry::Hard("../secret")), ("h", file)]),
            false,
        ),
        (
            "device",
            "tar",
            hostile::tar(&[("null", Entry::Device), last]),
            false,
        ),
        (
            "dots",
            "zip",
            hostile::zip(&[("../secret", b"bad", 0o100_644)]),
            true,
        ),
        (
            "absolute",
            "zip",
            hostile::zip(&[("/tmp/handler-bad", b"bad", 0o100_644)]),
            true,
        ),
        (
            "through",
            "zip",
            hostile::zip(&[("out", b"..", link), ("out/secret", b"bad", 0o100_644)]),
            false,
        ),
    ]
}

async fn a_hostile_archive_changes_nothing_outside(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let (sandbox, folder) = in_project(&s, &world).await?;
    sandbox.out("printf untouched >secret").await?;
    for (name, form, bytes, is_whole) in hostile() {
        let name = format!("{name} ({form})");
        let result = unpack(&sandbox, "into", form, bytes).await;
        if is_whole {
            ensure!(refusal(result)?.0 == 400, "{name}");
        } else {
            let done = result.with_context(|| name.clone())?;
            ensure!(done.refused_count > 0, "{name}: {done:?}");
        }
        untouched(&sandbox, &folder).await.context(name)?;
    }
    let made = tree(&folder.join("into"))?;
    let last = made.get(&b"last"[..]).context("the honest file")?;
    ensure!(
        *last == ("file 755".to_owned(), b"fine".to_vec()),
        "{last:?}"
    );
    ensure!(made.values().all(|(kind, _)| kind != "other"), "{made:?}");
    s.down(sandbox).await
}

async fn untouched(sandbox: &Sandbox, folder: &Path) -> anyhow::Result<()> {
    ensure!(std::fs::read(folder.join("secret"))? == b"untouched");
    ensure!(!Path::new("/tmp/handler-bad").exists(), "on the host");
    sandbox.out("! test -e /tmp/handler-bad").await?;
    let mut names: Vec<_> = tree(folder)?.into_keys().collect();
    names.retain(|name| !name.starts_with(b"into"));
    ensure!(names == [b"secret"], "{names:?}");
    Ok(())
}

async fn an_archive_over_the_limits_is_refused_before_it_is_written(
    s: Arc<Subject>,
) -> anyhow::Result<()> {
    let world = s.world().await;
    let (sandbox, folder) = in_project(&s, &world).await?;
    let deep: &'static str =
        "d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d/d";
    let bombs = [
        hostile::tar(&[("huge", Entry::Claim(1 << 40))]),
        hostile::tar(&[("endless", Entry::Claim(u64::MAX >> 1))]),
    ];
    for bomb in bombs {
        let (status, told) = refusal(unpack(&sandbox, "into", "tar", bomb).await)?;
        ensure!((400..500).contains(&status), "{status} {told}");
        ensure!(told.contains("bytes"), "{told}");
    }
    // A link's target may be long; a name this deep is made bottom up only by a program that means harm.
    let name = format!("{deep}/{deep}/{deep}/{deep}/file");
    let archive = hostile::zip(&[(&name, b"bad", 0o100_644)]);
    let (status, told) = refusal(unpack(&sandbox, "into", "zip", archive).await)?;
    ensure!((400..500).contains(&status), "{status} {told}");
    ensure!(tree(&folder.join("into"))?.is_empty(), "something was made");
    s.down(sandbox).await
}

async fn what_is_no_archive_and_what_is_no_folder_are_told(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    for (form, bytes) in [
        ("tar.gz", b"hello".to_vec()),
        ("zip", vec![0; 4000]),
        ("tar", b"x".to_vec()),
    ] {
        let result = unpack(&sandbox, "/tmp/into", form, bytes).await;
        ensure!(refusal(result)?.0 == 400, "{form}");
    }
    for (path, form, status) in [
        ("/tmp", "rar", 400),
        ("/none", "zip", 404),
        ("/dev/null", "tar", 400),
    ] {
        let told = refusal(pack(&sandbox, path, form).await)?;
        ensure!(told.0 == status, "{path}: {told:?}");
    }
    s.down(sandbox).await
}

async fn the_command_line_copies_a_folder_in_and_out(s: Arc<Subject>) -> anyhow::Result<()> {
    let world = s.world().await;
    let (sandbox, folder) = in_project(&s, &world).await?;
    sandbox.out(FURNISH).await?;
    let from = folder.join("top");
    let here = from.to_string_lossy();
    let there = format!("{}:/home/agent/new", sandbox.id);
    world.cli_ok(&["sandbox", "cp", &here, &there]).await?;
    // What exists is copied into, as `cp` does.
    world.cli_ok(&["sandbox", "cp", &here, &there]).await?;
    sandbox
        .out("test -d ~/new/sub/empty && test -d ~/new/top/sub/empty")
        .await?;
    let back = world.work().join(format!("back-{}", sandbox.id));
    let there = format!("{there}/top");
    let done = world
        .cli_ok(&["--json", "sandbox", "cp", &there, &back.to_string_lossy()])
        .await?;
    let done: serde_json::Value = serde_json::from_str(&done)?;
    ensure!(done["refusedCount"] == 0, "{done}");
    same(&from, &back)?;
    s.down(sandbox).await
}

async fn the_command_line_is_not_led_outside_by_what_comes_out(
    s: Arc<Subject>,
) -> anyhow::Result<()> {
    let world = s.world().await;
    let sandbox = s.plain(&world).await?;
    sandbox
        .out(
            "cd; mkdir -p evil trap/sub; ln -s /etc evil/etc; mkfifo evil/pipe; \
             echo x >evil/file; echo x >trap/sub/file",
        )
        .await?;
    let (target, elsewhere) = (
        s.project(&world, "target")?,
        s.project(&world, "elsewhere")?,
    );
    std::os::unix::fs::symlink(&elsewhere, target.join("sub"))?;
    let to = target.to_string_lossy();
    let evil = format!("{}:/home/agent/evil/.", sandbox.id);
    let told = world.cli(&["sandbox", "cp", &evil, &to]).await?;
    let text = String::from_utf8_lossy(&told.stderr);
    ensure!(told.status.success() && text.contains("left out"), "{text}");
    ensure!(target.join("file").exists() && !target.join("etc").exists());
    ensure!(!target.join("pipe").exists());
    let trap = format!("{}:/home/agent/trap/.", sandbox.id);
    let told = world.cli(&["sandbox", "cp", &trap, &to]).await?;
    ensure!(!told.status.success(), "a link here was gone through");
    ensure!(std::fs::read_dir(&elsewhere)?.count() == 0);
    s.down(sandbox).await
}
