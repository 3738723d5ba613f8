//! The image stores of the real engines: a private Podman service, a private Docker daemon.

mod checks;
mod engines;

use engines::Engine;

#[tokio::test]
async fn podman_keeps_builds_and_gives_back_images() {
    let Some(engine) = Engine::podman("podman images").await else {
        return;
    };
    checks::all(&engine).await;
}

#[tokio::test]
async fn docker_keeps_builds_and_gives_back_images() {
    let Some(engine) = Engine::docker("docker images").await else {
        return;
    };
    checks::all(&engine).await;
}
