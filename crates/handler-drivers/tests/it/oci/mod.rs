//! Sandboxes as containers, on every engine this machine has: Podman as root, Podman as an ordinary user (a second run
//! of these tests), Docker (a private `dockerd` without network).

mod caches;
mod confinement;
mod engine;
mod figures;
mod inside;
mod life;
mod rootless;
mod runtimes;
mod world;
