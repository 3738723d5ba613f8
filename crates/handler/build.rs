//! Embeds the guest program when it has been built (`cargo xtask guest`); else a plain `cargo build` works
//! too, and the daemon says what is missing. Only looks, never builds.

use std::path::{Path, PathBuf};

fn main() {
    let manifest = std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let arch = std::env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let root = Path::new(&manifest)
        .ancestors()
        .nth(2)
        .expect("the crate lies two folders deep");
    let guest: PathBuf = root
        .join("target/guest")
        .join(format!("{arch}-unknown-linux-gnu/guest/handler-guest"));
    println!("cargo:rerun-if-changed={}", guest.display());
    let text = if guest.is_file() {
        format!("pub(crate) static GUEST: Option<&[u8]> = Some(include_bytes!({guest:?}));")
    } else {
        "pub(crate) static GUEST: Option<&[u8]> = None;".to_owned()
    };
    let out = std::env::var("OUT_DIR").expect("cargo sets it");
    std::fs::write(Path::new(&out).join("guest.rs"), text).expect("the build folder is writable");
}
