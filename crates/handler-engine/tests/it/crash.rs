//! The daemon dies at every point: the next one finds nothing left over and nothing doubled.

use crate::peer::SOON;
use crate::world::{Probe, Strike, World};
use handler_engine::test_support::{DriverFault, spec};
use handler_engine::{CreateArgs, Engine};
use handler_types::SandboxId;
use handler_types::network::NetworkPolicy;
use handler_types::sandbox::SandboxState;
use std::sync::Arc;
use std::time::Duration;

fn args() -> CreateArgs {
    CreateArgs {
        spec: spec(Some("one"), NetworkPolicy::default()),
        label: String::new(),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Story {
    Create,
    CreateStop,
    CreateStopStart,
    CreateRestart,
    CreateDelete,
}

const STORIES: [Story; 5] = [
    Story::Create,
    Story::CreateStop,
    Story::CreateStopStart,
    Story::CreateRestart,
    Story::CreateDelete,
];

async fn tell(engine: &Engine, story: Story) {
    let Ok(view) = engine.create(args()).await else {
        return;
    };
    let id = view.id;
    // Outcomes are looked at from outside, in the world.
    match story {
        Story::Create => {}
        Story::CreateStop => drop(engine.stop(&id).await),
        Story::CreateStopStart => {
            engine.stop(&id).await.ok();
            engine.start_sandbox(&id).await.ok();
        }
        Story::CreateRestart => drop(engine.restart(&id).await),
        Story::CreateDelete => drop(engine.delete(&id).await),
    }
}

/// Rows and reality agree, whatever happened before.
fn assert_agreed(world: &World, engine: &Engine, context: &str) -> Option<SandboxId> {
    let views = engine.list();
    let Some(view) = views.first() else {
        world.assert_empty(context);
        return None;
    };
    assert_eq!(views.len(), 1, "{context}");
    match view.state {
        SandboxState::Running => world.assert_one_running(&view.id, context),
        SandboxState::Stopped | SandboxState::Failed => world.assert_one_resting(context),
        other => panic!("{context}: not at rest but {other:?}"),
    }
    Some(view.id.clone())
}

async fn finish(world: &World, engine: &Engine, context: &str) {
    if let Some(id) = assert_agreed(world, engine, context) {
        if engine.get(&id).expect("there").state == SandboxState::Running {
            let guest = engine.guest(&id).expect("guest");
            guest.stats().await.expect("answers");
        }
        engine.delete(&id).await.expect("deleted");
    }
    world.assert_empty(context);
    engine.shutdown().await;
}

/// Runs a story until the probe kills the daemon; `false` when the story ended before.
async fn die(world: &World, story: Story, probe: &Arc<Probe>) -> bool {
    let engine = world.probed(probe).await;
    let died = tokio::select! {
        () = tell(&engine, story) => false,
        () = probe.died.notified() => true,
        () = tokio::time::sleep(SOON) => panic!("{story:?}: neither ends nor dies"),
    };
    engine.crash().await;
    died
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_before_and_after_every_effect_of_every_story_nothing_is_left_over_or_doubled() {
    let Some(world) = World::new("killed_before_and_after_every_effect") else {
        return;
    };
    let mut points = 0;
    for story in STORIES {
        for strike in [Strike::DieBefore, Strike::DieAfter] {
            for at in 0.. {
                let probe = Probe::new(at, strike);
                let died = die(&world, story, &probe).await;
                let context = format!("{story:?} {strike:?} {at} {:?}", probe.has_struck());
                let engine = world.engine().await;
                finish(&world, &engine, &context).await;
                if !died {
                    break;
                }
                points += 1;
            }
        }
    }
    assert!(points > 100, "{points} points were struck");
}

/// Kills the daemon at a random effect, or at a random moment within whatever it does; says what it did.
async fn die_somewhere(world: &World, story: Story, random: &mut u64) -> (bool, String) {
    if pick(random, 3) == 0 {
        let after = Duration::from_micros(pick(random, 40_000) as u64);
        let engine = world.engine().await;
        let ended = tokio::time::timeout(after, tell(&engine, story)).await;
        engine.crash().await;
        return (ended.is_err(), format!("killed after {after:?}"));
    }
    let strike = [Strike::DieBefore, Strike::DieAfter][pick(random, 2)];
    let probe = Probe::new(pick(random, 18), strike);
    let died = die(world, story, &probe).await;
    (died, format!("{strike:?} {:?}", probe.has_struck()))
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_200_random_points_and_again_during_reconcile_it_still_comes_to_rest() {
    let Some(world) = World::new("killed_at_200_random_points") else {
        return;
    };
    let mut random = seed();
    let mut kills = 0;
    for round in 0.. {
        let story = STORIES[pick(&mut random, STORIES.len())];
        let (died, how) = die_somewhere(&world, story, &mut random).await;
        kills += usize::from(died);
        let mut context = format!("round {round}: {story:?} {how}");
        for _ in 0..pick(&mut random, 3) {
            let strike = [Strike::DieBefore, Strike::DieAfter][pick(&mut random, 2)];
            let probe = Probe::new(pick(&mut random, 6), strike);
            let config = world.config(Some(probe.clone()));
            // It dies within its own start; a start that gets through is killed as well.
            tokio::select! {
                engine = Engine::start(config) => engine.expect("started").crash().await,
                () = probe.died.notified() => kills += 1,
            }
            context += &format!(", then {strike:?} {:?}", probe.has_struck());
        }
        let engine = world.engine().await;
        finish(&world, &engine, &context).await;
        if kills >= 200 {
            break;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_effect_may_fail_or_look_failed_and_what_is_left_agrees() {
    let Some(world) = World::new("each_effect_may_fail") else {
        return;
    };
    for story in STORIES {
        for strike in [Strike::FailBefore, Strike::FailAfter] {
            for at in 0.. {
                let probe = Probe::new(at, strike);
                let engine = world.probed(&probe).await;
                tell(&engine, story).await;
                let context = format!("{story:?} {strike:?} {at} {:?}", probe.has_struck());
                finish(&world, &engine, &context).await;
                if probe.has_struck().is_none() {
                    break;
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_inside_the_driver_its_half_made_things_are_found() {
    let Some(world) = World::new("killed_inside_the_driver") else {
        return;
    };
    for fault in [
        DriverFault::HangBeforeProcess,
        DriverFault::HangAfterProcess,
        DriverFault::HangInDestroy,
    ] {
        let engine = world.engine().await;
        world.driver.strike(fault);
        tokio::select! {
            () = tell(&engine, Story::CreateStop) => panic!("{fault:?} did not strike"),
            () = world.driver.struck() => {}
        }
        engine.crash().await;
        let engine = world.engine().await;
        finish(&world, &engine, &format!("{fault:?}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_of_every_kind_are_removed_and_strangers_are_left_alone() {
    let Some(world) = World::new("orphans_of_every_kind") else {
        return;
    };
    let engine = world.engine().await;
    engine.create(args()).await.expect("created");
    engine.crash().await;
    // Its row is lost; its process, marker, folders and filter settings are not.
    let row = world.rows.now().remove(0);
    let rows = world.rows.clone();
    handler_engine::rows::SandboxRows::delete(&rows, &row.id)
        .await
        .expect("deleted");
    let orphan = SandboxId::from_random([9; 8]);
    let lonely = world.runtime_dir().join("eg").join(orphan.as_str());
    std::fs::create_dir_all(&lonely).expect("folder");
    let stranger = world.state_dir().join("sandboxes/README");
    std::fs::write(&stranger, "not ours to remove").expect("file");
    let tombstone = world.state_dir().join("sandboxes/.gone-x");
    std::fs::create_dir_all(tombstone.join("deep/er")).expect("tombstone");

    let engine = world.engine().await;
    assert!(engine.list().is_empty());
    assert!(stranger.exists() && !tombstone.exists() && !lonely.exists());
    std::fs::remove_file(stranger).expect("removed");
    world.assert_empty("orphans");
    engine.shutdown().await;
}

fn seed() -> u64 {
    let seed = u64::from_be_bytes(handler_base::random::bytes());
    // Shown when the test fails.
    eprintln!("seed {seed}");
    seed | 1
}

fn pick(state: &mut u64, below: usize) -> usize {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) as usize % below
}
