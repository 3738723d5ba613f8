//! The guest program: static, small, in a target folder of its own (static linking needs flags that must
//! not reach build scripts of the rest).

use crate::run::{cargo, root, run};

/// Builds it; free when nothing changed.
pub(crate) fn build() -> anyhow::Result<()> {
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let folder = root().join("target/guest");
    run(cargo()
        .args([
            "build",
            "--quiet",
            "--profile",
            "guest",
            "-p",
            "handler-guest",
            "--target",
            &target,
        ])
        .arg("--target-dir")
        .arg(&folder)
        .env("RUSTFLAGS", "-Ctarget-feature=+crt-static")
        .env_remove("CARGO_TARGET_DIR"))
}
