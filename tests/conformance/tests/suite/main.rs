//! One list of checks × engine set-ups. Each check is a test `<set-up>::<group>::<name>`.

#![expect(clippy::unwrap_used, reason = "tests may")]

mod checks;
mod engines;
mod fixture;
mod hostile;
mod probe;
mod setup;
mod subject;
mod table;
mod transfer;

use libtest_mimic::{Arguments, Failed, Trial};
use setup::{Setup, Standing};
use std::sync::Arc;
use subject::Missing;
use table::{Cell, Results};
use tokio::runtime::Runtime;

fn main() {
    let mut arguments = Arguments::from_args();
    // The engines are the bottleneck; more at once only makes every one slower.
    arguments.test_threads.get_or_insert(3);
    let runtime = Arc::new(
        tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .unwrap(),
    );
    let results = Arc::new(Results::default());
    let setups: Vec<Arc<Setup>> = setup::ALL
        .iter()
        .map(|kind| Arc::new(Setup::new(*kind)))
        .collect();
    let mut trials: Vec<Trial> = setups
        .iter()
        .flat_map(|setup| {
            checks::all()
                .into_iter()
                .map(move |check| (Arc::clone(setup), check))
        })
        .map(|(setup, check)| trial(setup, check, Arc::clone(&runtime), Arc::clone(&results)))
        .collect();
    trials.push(Trial::test("escape_list_is_documented", || {
        checks::escape::settle().map_err(Failed::from)
    }));
    let conclusion = libtest_mimic::run(&arguments, trials);
    runtime.block_on(async {
        for setup in &setups {
            setup.end().await;
        }
    });
    let is_whole = arguments.filter.is_none() && arguments.skip.is_empty() && !arguments.list;
    if is_whole {
        table::settle(&results);
    }
    conclusion.exit();
}

fn trial(
    setup: Arc<Setup>,
    check: checks::Check,
    runtime: Arc<Runtime>,
    results: Arc<Results>,
) -> Trial {
    let name = format!("{}::{}::{}", setup.kind.name(), check.group, check.name);
    Trial::test(name.clone(), move || {
        let cell = runtime.block_on(run(&setup, &check));
        let outcome = match &cell {
            Cell::Failed(text) => Err(Failed::from(text.clone())),
            Cell::Lacks(why) | Cell::Absent(why) => {
                handler_testkit::skip(&name, why);
                Ok(())
            }
            Cell::Passed => Ok(()),
        };
        results.put(setup.kind, &check, cell);
        outcome
    })
}

async fn run(setup: &Setup, check: &checks::Check) -> Cell {
    let subject = match setup.standing().await {
        Standing::Ready(subject) => subject,
        Standing::Absent(why) => return Cell::Absent(why),
        Standing::Broken(why) => return Cell::Failed(why),
    };
    if let Some(lacking) = check.lacks(&subject) {
        return Cell::Lacks(lacking);
    }
    let limit = std::time::Duration::from_secs(300);
    match tokio::time::timeout(limit, (check.run)(subject)).await {
        Ok(Ok(())) => Cell::Passed,
        Ok(Err(error)) if error.is::<Missing>() => Cell::Lacks(format!("{error}")),
        Ok(Err(error)) => Cell::Failed(format!("{error:#}")),
        Err(_) => Cell::Failed(format!("no end within {limit:?}")),
    }
}
