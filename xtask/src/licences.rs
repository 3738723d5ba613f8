//! Licences of everything we depend on: only those of `deny.toml`, so that the product can be given on.

use crate::run::{cargo, output, root};
use anyhow::{Context as _, bail};
use std::collections::BTreeSet;

/// Checks every package of the lock file.
pub(crate) fn check() -> anyhow::Result<()> {
    let allowed = allowed()?;
    let metadata = output(cargo().args(["metadata", "--format-version", "1", "--locked"]))?;
    let metadata: serde_json::Value = serde_json::from_slice(&metadata)?;
    let mut wrong = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let licence = package["license"].as_str().unwrap_or_default();
        if !fits(licence, &allowed) {
            wrong.push(format!("{name}: `{licence}`"));
        }
    }
    if !wrong.is_empty() {
        bail!(
            "licences that deny.toml does not allow: {}",
            wrong.join(", ")
        );
    }
    println!("licences are as deny.toml says");
    Ok(())
}

/// The texts in quotes between `allow = [` and `]`.
fn allowed() -> anyhow::Result<BTreeSet<String>> {
    let text = std::fs::read_to_string(root().join("deny.toml"))?;
    let (_, list) = text
        .split_once("allow = [")
        .context("deny.toml has no list")?;
    let (list, _) = list
        .split_once(']')
        .context("deny.toml has no end of its list")?;
    Ok(list
        .split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect())
}

/// One alternative is enough; of one joined by AND each part must do.
fn fits(licence: &str, allowed: &BTreeSet<String>) -> bool {
    let trim = |part: &str| part.trim_matches([' ', '(', ')']).to_owned();
    licence.replace('/', " OR ").split(" OR ").any(|choice| {
        choice
            .split(" AND ")
            .all(|part| allowed.contains(&trim(part)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_alternative_is_enough_and_all_parts_are_needed() {
        let allowed = BTreeSet::from(["MIT".to_owned(), "ISC".to_owned()]);
        assert!(fits("GPL-3.0 OR MIT", &allowed));
        assert!(fits("MIT/Apache-2.0", &allowed));
        assert!(fits("(MIT AND ISC)", &allowed));
        assert!(!fits("MIT AND GPL-3.0", &allowed));
        assert!(!fits("", &allowed));
    }
}
