//! How long a start takes, by hand: `cargo test -p handler-drivers --test it oci::figures -- --ignored --nocapture`.

use super::world::worlds;
use std::time::{Duration, Instant};

const ROUNDS: usize = 10;

fn median(mut all: Vec<Duration>) -> Duration {
    all.sort();
    all[all.len() / 2]
}

#[tokio::test]
#[ignore = "figures, for people"]
async fn create_to_first_output_against_the_engines_own_tool() {
    for world in worlds() {
        let (mut ours, mut removals, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        world.sandbox(|_| {}).await.destroy().await;
        for _ in 0..ROUNDS {
            let began = Instant::now();
            let sandbox = world.sandbox(|_| {}).await;
            assert_eq!(sandbox.out("echo hello").await, "hello");
            ours.push(began.elapsed());
            let began = Instant::now();
            sandbox.destroy().await;
            removals.push(began.elapsed());
            let began = Instant::now();
            assert_eq!(
                world.engine.ask(&[
                    "run",
                    "--rm",
                    "--network",
                    "none",
                    &world.engine.image,
                    "echo",
                    "hello"
                ]),
                "hello"
            );
            theirs.push(began.elapsed());
        }
        eprintln!(
            "{}: create to first output {:?}, removal {:?}; `run --rm` {:?}",
            world.engine.flavour.name(),
            median(ours),
            median(removals),
            median(theirs)
        );
        world.assert_nothing_left().await;
    }
}
