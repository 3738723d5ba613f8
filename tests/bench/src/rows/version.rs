//! How long `handler --version` takes.

use crate::context::Context;
use crate::line::{Bound, Line, Target, Unit};
use crate::measure::pairs;
use crate::peers;
use std::process::Command;

/// Measures it.
pub(crate) async fn measure(context: &Context) -> anyhow::Result<Vec<Line>> {
    let ours = async || peers::whole(Command::new(&context.handler).arg("--version"));
    let bare_program = peers::find("true");
    let bare = async || peers::whole(&mut Command::new(&bare_program));
    let pairs = pairs(3, context.pick(100, 5), ours, bare).await?;
    Ok(vec![
        Line::new("version/time", "handler --version", Unit::Ms, &pairs.ours)
            .against("true", &pairs.theirs)
            .promised(Target::Value(Bound::AtMost(10.0))),
    ])
}
