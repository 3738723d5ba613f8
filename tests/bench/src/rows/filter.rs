//! What the filter costs at start: the same sandbox with it and without any network, in turns.

use super::sandbox::start_once;
use crate::context::Context;
use crate::line::{Bound, Line, Target, Unit};
use crate::measure::pairs;
use handler_types::network::NetworkPolicy;

/// Measures it.
pub(crate) async fn measure(context: &Context) -> anyhow::Result<Vec<Line>> {
    let world = context.world().await?;
    let client = world.client();
    let with = async || {
        Ok(start_once(&client, Some(NetworkPolicy::default()))
            .await?
            .to_output())
    };
    let without = async || {
        Ok(start_once(&client, Some(NetworkPolicy::None))
            .await?
            .to_output())
    };
    let pairs = pairs(3, context.pick(150, 8), with, without).await?;
    Ok(vec![
        Line::new(
            "filter/start",
            "create → output, filtered",
            Unit::Ms,
            &pairs.ours,
        )
        .against("network none", &pairs.theirs)
        .promised(Target::Added(Bound::AtMost(3.0))),
    ])
}
