//! Figures of the product as ratios against named peers.

/// Runs it.
pub(crate) fn run(_words: &[&str]) -> anyhow::Result<()> {
    anyhow::bail!("not yet")
}
