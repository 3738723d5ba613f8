//! Tables of single steps, and a property over random events in a pretended world.

use super::{After, Effect, Event, Held, Phase, Refused, State, step};
use crate::rows::Intent;
use proptest::prelude::*;
use std::collections::VecDeque;

fn at(phase: Phase, held: Held) -> State {
    State {
        phase,
        held,
        networked: true,
        doomed: phase == Phase::Gone,
    }
}

fn resting() -> Held {
    Held::resting()
}

/// Runs to rest with every effect succeeding except those in `failing`; the effects in order.
fn run(mut state: State, event: Event, failing: &[Effect]) -> (State, Vec<Effect>) {
    let mut seen = Vec::new();
    let mut events = VecDeque::from([event]);
    while let Some(event) = events.pop_front() {
        let (next, effects) = step(state, event).expect("accepted");
        state = next;
        for effect in effects {
            seen.push(effect);
            events.push_back(if failing.contains(&effect) {
                Event::Failed(effect)
            } else {
                Event::Done(effect)
            });
        }
    }
    (state, seen)
}

#[test]
fn create_writes_its_intent_first_and_runs_when_the_guest_answers() {
    use Effect::*;
    let (state, effects) = run(State::absent(true), Event::Create, &[]);
    assert_eq!(state, at(Phase::Running, Held::all()));
    assert_eq!(
        effects,
        [
            WriteIntent(Intent::Create),
            MakeFolders,
            PutFilter,
            StartInstance,
            ConnectGuest,
            WriteRunning
        ]
    );
    let (state, effects) = run(State::absent(false), Event::Create, &[]);
    assert!(!state.held.filter);
    assert!(!effects.contains(&PutFilter));
}

#[test]
fn a_failed_create_leaves_nothing_whatever_failed() {
    use Effect::*;
    for failing in [
        WriteIntent(Intent::Create),
        MakeFolders,
        PutFilter,
        StartInstance,
        ConnectGuest,
        WriteRunning,
    ] {
        let (state, effects) = run(State::absent(true), Event::Create, &[failing]);
        assert_eq!(state, at(Phase::Gone, Held::default()), "{failing:?}");
        assert_eq!(effects.last(), Some(&DeleteRow));
        let destroyed = effects.contains(&DestroyInstance);
        assert_eq!(destroyed, effects.contains(&StartInstance), "{failing:?}");
    }
}

#[test]
fn a_failed_start_of_a_stopped_sandbox_keeps_its_home_and_row() {
    let stopped = at(Phase::Stopped, resting());
    let (state, effects) = run(stopped, Event::Start, &[Effect::StartInstance]);
    assert_eq!(state, at(Phase::Failed, resting()));
    assert!(!effects.contains(&Effect::RemoveKept));
    assert_eq!(effects.last(), Some(&Effect::WriteRest));
}

#[test]
fn stop_and_delete_take_down_in_order() {
    use Effect::*;
    let running = at(Phase::Running, Held::all());
    let down = [CloseLink, StopInstance, RemoveFilter, RemoveRuntime];
    let destroyed = [CloseLink, DestroyInstance, RemoveFilter, RemoveRuntime];
    let (state, effects) = run(running, Event::Stop, &[]);
    assert_eq!(state, at(Phase::Stopped, resting()));
    assert_eq!(effects[0], WriteIntent(Intent::Stop));
    assert_eq!(effects[1..5], down);
    let (state, effects) = run(running, Event::Delete, &[]);
    assert_eq!(state, at(Phase::Gone, Held::default()));
    assert_eq!(effects[0], WriteIntent(Intent::Delete));
    assert_eq!(effects[1..5], destroyed);
    assert_eq!(effects[5..], [RemoveKept, DeleteRow]);
    let (state, _) = run(running, Event::Restart, &[]);
    assert_eq!(state.phase, Phase::Running);
    let (state, effects) = run(running, Event::InstanceEnded, &[]);
    assert_eq!(state, at(Phase::Failed, resting()));
    assert_eq!(effects[..4], down);
}

#[test]
fn a_step_that_cannot_be_undone_is_tried_again_and_the_home_stays_while_the_instance_may_live() {
    use Effect::*;
    let running = at(Phase::Running, Held::all());
    let (state, effects) = run(running, Event::Delete, &[DestroyInstance]);
    assert_eq!(state.phase, Phase::Failed);
    assert!(state.held.instance && state.held.kept && state.held.row);
    assert!(!state.held.filter, "independent of the instance");
    assert_eq!(effects.iter().filter(|e| **e == DestroyInstance).count(), 4);
    assert!(!effects.contains(&RemoveKept) && !effects.contains(&DeleteRow));
    assert_eq!(step(state, Event::Start), Err(Refused::Doomed));
    let (state, _) = run(state, Event::Delete, &[]);
    assert_eq!(state, at(Phase::Gone, Held::default()));
    let (state, _) = run(running, Event::Delete, &[WriteIntent(Intent::Delete)]);
    assert_eq!(
        state.phase,
        Phase::Gone,
        "a full disk does not keep a sandbox"
    );
}

#[test]
fn what_makes_no_sense_is_refused() {
    let busy = at(Phase::Starting { fresh: true }, Held::default());
    for event in [Event::Start, Event::Stop, Event::Delete, Event::Create] {
        assert_eq!(step(busy, event), Err(Refused::Busy));
    }
    let running = at(Phase::Running, Held::all());
    assert_eq!(step(running, Event::Create), Err(Refused::NotNow));
    assert_eq!(step(running, Event::Start), Ok((running, vec![])));
    let gone = at(Phase::Gone, Held::default());
    assert_eq!(step(gone, Event::Start), Err(Refused::Gone));
    assert_eq!(step(gone, Event::Delete), Ok((gone, vec![])));
    assert!(step(running, Event::Done(Effect::DeleteRow)).is_err());
}

#[test]
fn after_a_restart_the_living_are_adopted_and_the_rest_is_cleared() {
    use Effect::*;
    let (state, effects) = run(State::found(true), Event::Adopt, &[]);
    assert_eq!(state, at(Phase::Running, Held::all()));
    assert_eq!(effects, [PutFilter, ConnectGuest, WriteRunning]);
    let (state, effects) = run(State::found(true), Event::Adopt, &[ConnectGuest]);
    assert_eq!(state, at(Phase::Failed, resting()));
    assert!(effects.contains(&StopInstance) && !effects.contains(&DestroyInstance));
    let (state, _) = run(State::found(true), Event::Recover(After::Stopped), &[]);
    assert_eq!(state, at(Phase::Stopped, resting()));
    let (state, _) = run(State::found(false), Event::Recover(After::Gone), &[]);
    assert_eq!(state.held, Held::default());
}

fn paused() -> State {
    at(Phase::Paused, Held::all())
}

#[test]
fn pausing_writes_its_intent_freezes_and_keeps_the_link() {
    use Effect::*;
    let running = at(Phase::Running, Held::all());
    let (state, effects) = run(running, Event::Pause, &[]);
    assert_eq!(state, paused());
    assert_eq!(
        effects,
        [WriteIntent(Intent::Pause), PauseInstance, WriteRest]
    );
    assert_eq!(step(paused(), Event::Pause), Ok((paused(), vec![])));
    assert_eq!(step(running, Event::Resume), Ok((running, vec![])));
    for event in [Event::Resume, Event::Start] {
        let (state, effects) = run(paused(), event, &[]);
        assert_eq!(state, running);
        assert_eq!(
            effects,
            [WriteIntent(Intent::Resume), ResumeInstance, WriteRunning]
        );
    }
    let stopped = at(Phase::Stopped, resting());
    assert_eq!(step(stopped, Event::Pause), Err(Refused::NotNow));
    assert_eq!(step(stopped, Event::Resume), Err(Refused::NotNow));
}

#[test]
fn what_cannot_be_frozen_runs_on_and_what_cannot_be_thawed_stays_paused() {
    use Effect::*;
    let running = at(Phase::Running, Held::all());
    for (failing, thawed) in [
        (WriteIntent(Intent::Pause), false),
        (PauseInstance, true),
        (WriteRest, true),
    ] {
        let (state, effects) = run(running, Event::Pause, &[failing]);
        assert_eq!(state, running, "{failing:?}");
        assert_eq!(effects.contains(&ResumeInstance), thawed, "{failing:?}");
    }
    let (state, _) = run(running, Event::Pause, &[PauseInstance, ResumeInstance]);
    assert_eq!(state, paused(), "only a resume can tell");
    let (state, effects) = run(paused(), Event::Resume, &[ResumeInstance]);
    assert_eq!(state, paused());
    assert_eq!(effects.last(), Some(&WriteRest));
    for failing in [WriteIntent(Intent::Resume), WriteRunning] {
        let (state, _) = run(paused(), Event::Resume, &[failing]);
        assert_eq!(state, running, "a full disk freezes nothing: {failing:?}");
    }
}

#[test]
fn a_paused_sandbox_can_be_stopped_restarted_removed_and_may_end() {
    let (state, effects) = run(paused(), Event::Stop, &[]);
    assert_eq!(state, at(Phase::Stopped, resting()));
    assert!(
        !effects.contains(&Effect::ResumeInstance),
        "nothing runs on"
    );
    let (state, _) = run(paused(), Event::Restart, &[]);
    assert_eq!(state, at(Phase::Running, Held::all()));
    let (state, _) = run(paused(), Event::Delete, &[]);
    assert_eq!(state, at(Phase::Gone, Held::default()));
    let (state, _) = run(paused(), Event::InstanceEnded, &[]);
    assert_eq!(state, at(Phase::Failed, resting()));
}

#[test]
fn after_a_restart_the_frozen_are_adopted_frozen_and_get_their_link_when_thawed() {
    use Effect::*;
    let (state, effects) = run(State::found(true), Event::AdoptPaused, &[]);
    assert_eq!(state.phase, Phase::Paused);
    assert!(state.held.instance && !state.held.link);
    assert_eq!(effects, [PutFilter, PauseInstance, WriteRest]);
    let (running, effects) = run(state, Event::Resume, &[]);
    assert_eq!(running, at(Phase::Running, Held::all()));
    assert_eq!(effects[1..], [ResumeInstance, ConnectGuest, WriteRunning]);
    let (failed, _) = run(state, Event::Resume, &[ConnectGuest]);
    assert_eq!(failed, at(Phase::Failed, resting()));
    let (state, effects) = run(State::found(true), Event::AdoptThawed, &[]);
    assert_eq!(state, at(Phase::Running, Held::all()));
    assert_eq!(
        effects,
        [ResumeInstance, PutFilter, ConnectGuest, WriteRunning]
    );
}

/// What really exists.
#[derive(Debug, Default)]
struct World {
    parts: Held,
    frozen: bool,
}

impl World {
    /// Performs an effect. `outcome` 0, 1: done; 2: failed and nothing happened; 3: failed although it happened.
    fn perform(&mut self, effect: Effect, outcome: u8) -> Event {
        use Effect::*;
        if outcome != 2 {
            match effect {
                StartInstance => {
                    assert!(!self.parts.instance, "a second instance");
                    assert!(self.parts.row, "an instance without a row");
                    self.parts.instance = true;
                    self.parts.layer = true;
                }
                PauseInstance => {
                    assert!(self.parts.instance, "only what exists is frozen");
                    self.frozen = true;
                }
                ResumeInstance => self.frozen = false,
                StopInstance => {
                    self.parts.instance = false;
                    self.frozen = false;
                }
                DestroyInstance => {
                    self.parts.instance = false;
                    self.parts.layer = false;
                    self.frozen = false;
                }
                MakeFolders => {
                    self.parts.kept = true;
                    self.parts.runtime = true;
                }
                RemoveKept => {
                    assert!(!self.parts.instance, "the home of a living instance");
                    assert!(!self.parts.layer, "the home below a writable layer");
                    self.parts.kept = false;
                }
                PutFilter | ConnectGuest | WriteIntent(Intent::Create) => {
                    *self.parts.part(effect).expect("a part") = true;
                }
                DeleteRow => {
                    let left = self.parts.runs() || self.parts.kept || self.parts.layer;
                    assert!(!left, "the row goes last");
                    self.parts.row = false;
                }
                _ => {
                    if let Some(part) = self.parts.part(effect) {
                        *part = false;
                    }
                }
            }
        }
        if outcome < 2 {
            Event::Done(effect)
        } else {
            Event::Failed(effect)
        }
    }
}

fn within(world: Held, held: Held) -> bool {
    (!world.row || held.row)
        && (!world.kept || held.kept)
        && (!world.runtime || held.runtime)
        && (!world.filter || held.filter)
        && (!world.instance || held.instance)
        && (!world.layer || held.layer)
        && (!world.link || held.link)
}

fn command(number: u8) -> Event {
    match number {
        0 => Event::Start,
        1 => Event::Stop,
        2 => Event::Restart,
        3 => Event::Delete,
        4 => Event::InstanceEnded,
        5 => Event::Pause,
        6 => Event::Resume,
        _ => Event::Create,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    #[test]
    fn whatever_happens_nothing_is_lost_sight_of(
        networked in any::<bool>(),
        commands in proptest::collection::vec((0u8..8, any::<bool>()), 1..12),
        outcomes in proptest::collection::vec(0u8..4, 300),
    ) {
        let mut world = World::default();
        let mut state = State::absent(networked);
        let mut outcomes = outcomes.into_iter();
        let mut commands: Vec<_> = commands.into_iter().map(|(n, crash)| (command(n), crash)).collect();
        commands.insert(0, (Event::Create, false));
        commands.push((Event::Delete, false));
        let count = commands.len();
        let mut crashed = false;
        for (index, (event, crash)) in commands.into_iter().enumerate() {
            let is_last = index + 1 == count;
            let mut orders = vec![event];
            // The next daemon takes over what lives, frozen or not, before it takes orders.
            if std::mem::take(&mut crashed) && world.parts.instance && !state.doomed {
                orders.insert(0, if world.frozen { Event::AdoptPaused } else { Event::AdoptThawed });
            }
            let mut effects_left = 200;
            for order in orders {
            let mut events = VecDeque::from([order]);
            while let Some(event) = events.pop_front() {
                let Ok((next, effects)) = step(state, event) else { continue };
                state = next;
                for effect in effects {
                    effects_left -= 1;
                    prop_assert!(effects_left > 0, "it comes to rest");
                    // The last command meets no faults.
                    let outcome = if is_last { 0 } else { outcomes.next().unwrap_or(0) };
                    events.push_back(world.perform(effect, outcome));
                    prop_assert!(within(world.parts, state.held), "{:?} {:?}", world.parts, state);
                }
            }
            }
            prop_assert!(!state.is_busy());
            match state.phase {
                Phase::Running => {
                    prop_assert!(world.parts.instance && world.parts.link && !world.frozen);
                }
                Phase::Paused => prop_assert!(world.parts.instance),
                Phase::Stopped => prop_assert!(!world.parts.runs()),
                Phase::Gone => prop_assert_eq!(world.parts, Held::default()),
                _ => {}
            }
            // The daemon dies and finds the row, or nothing of this sandbox at all.
            if crash && !is_last && state.phase != Phase::Gone && world.parts.row {
                world.parts.link = false;
                crashed = true;
                // The row tells whether its removal had begun.
                state = State { doomed: state.doomed, ..State::found(networked) };
            }
        }
        prop_assert_eq!(state.phase, Phase::Gone);
        prop_assert_eq!(world.parts, Held::default());
    }
}
