//! The lines as a table for people.

use crate::line::{Line, Peer, Unit};

const HEADS: [&str; 7] = [
    "what", "ours p50", "p95", "peer p50", "ratio", "target", "met",
];

/// Draws it. `quick`: nothing is judged.
pub(crate) fn render(lines: &[Line], quick: bool) -> String {
    let mut cells: Vec<[String; 7]> = vec![HEADS.map(str::to_owned)];
    cells.extend(lines.iter().map(|line| row(line, quick)));
    let mut widths = [0; 7];
    for row in &cells {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for (at, row) in cells.iter().enumerate() {
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            let pad = " ".repeat(width - cell.chars().count());
            // Words to the left, numbers to the right.
            let padded = match column {
                0 | 5 | 6 => format!("{cell}{pad}"),
                _ => format!("{pad}{cell}"),
            };
            text.push_str(&padded);
            text.push_str("  ");
        }
        let note = at
            .checked_sub(1)
            .map_or("", |line| lines[line].note.as_str());
        text.push_str(note);
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text
}

fn row(line: &Line, quick: bool) -> [String; 7] {
    let ours = |pick: fn(&crate::figures::Figures) -> f64| {
        line.ours
            .map_or_else(String::new, |figures| number(pick(&figures), line.unit))
    };
    let p95 = match line.ours {
        Some(figures) if figures.count > 1 => ours(|figures| figures.p95),
        _ => String::new(),
    };
    let peer = match &line.peer {
        Peer::None => String::new(),
        Peer::Absent { name, .. } => format!("{name}: absent"),
        Peer::Measured { name, figures } => {
            format!("{name}: {}", number(figures.median, line.unit))
        }
    };
    let ratio = line
        .ratio()
        .map_or_else(String::new, |ratio| format!("{}×", plain(ratio)));
    let met = match line.is_met() {
        _ if quick => "",
        Some(true) => "yes",
        Some(false) => "NO",
        None => "",
    };
    let target = line.target_text();
    [
        line.what.clone(),
        ours(|figures| figures.median),
        p95,
        peer,
        ratio,
        target,
        met.to_owned(),
    ]
}

fn number(value: f64, unit: Unit) -> String {
    format!("{} {unit}", plain(value))
}

/// Three digits that mean something.
fn plain(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::{Bound, Target};

    #[test]
    fn a_line_shows_ratio_target_and_verdict() {
        let met = Line::new("a/b", "a thing", Unit::Ms, &[1.0, 2.0, 3.0])
            .against("peer", &[4.0])
            .promised(Target::Ratio(Bound::AtMost(0.5)));
        let text = render(std::slice::from_ref(&met), false);
        let shown: Vec<&str> = text
            .lines()
            .nth(1)
            .expect("line")
            .split_whitespace()
            .collect();
        let expected = [
            "a", "thing", "2.00", "ms", "3.00", "ms", "peer:", "4.00", "ms", "0.500×", "≤", "0.5×",
            "yes",
        ];
        assert_eq!(shown, expected);
        assert!(!render(std::slice::from_ref(&met), true).contains("yes"));
        let failed = met.promised(Target::Ratio(Bound::AtMost(0.1)));
        assert!(render(&[failed], false).contains("NO"));
    }

    #[test]
    fn a_missing_peer_is_said() {
        let line = Line::new("a/b", "it", Unit::Us, &[1.0]).without("podman", "not installed");
        assert!(render(&[line], false).contains("podman: absent"));
    }
}
