//! A control sequence taken apart.

/// Most parameters looked at.
const MAX_PARAMS: usize = 32;

/// `ESC [` marker parameters intermediates final.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Csi {
    /// `<`, `=`, `>`, `?` or 0.
    pub(crate) marker: u8,
    /// First number of each parameter; an empty one is 0.
    pub(crate) params: Vec<u16>,
    /// The last intermediate byte or 0.
    pub(crate) intermediate: u8,
    pub(crate) last: u8,
}

impl Csi {
    /// Takes a whole sequence, ESC included, apart.
    pub(crate) fn parse(unit: &[u8]) -> Option<Self> {
        let (&last, body) = unit.get(2..)?.split_last()?;
        let marker = body.first().copied().filter(|b| (b'<'..=b'?').contains(b));
        let body = &body[usize::from(marker.is_some())..];
        let numbers_end = body
            .iter()
            .position(|b| (0x20..0x30).contains(b))
            .unwrap_or(body.len());
        let (numbers, intermediates) = body.split_at(numbers_end);
        let params = numbers
            .split(|b| *b == b';')
            .take(MAX_PARAMS)
            .map(first_number)
            .collect();
        Some(Self {
            marker: marker.unwrap_or(0),
            params,
            intermediate: intermediates.last().copied().unwrap_or(0),
            last,
        })
    }

    /// A parameter; absent or 0 is `default`.
    pub(crate) fn param(&self, index: usize, default: u16) -> u16 {
        match self.params.get(index) {
            None | Some(0) => default,
            Some(value) => *value,
        }
    }

    /// Marker, intermediate and final byte.
    pub(crate) fn kind(&self) -> (u8, u8, u8) {
        (self.marker, self.intermediate, self.last)
    }
}

fn first_number(param: &[u8]) -> u16 {
    param
        .iter()
        .take_while(|b| b.is_ascii_digit())
        .fold(0_u16, |n, b| {
            n.saturating_mul(10).saturating_add(u16::from(b - b'0'))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_parts_are_found() {
        let csi = Csi::parse(b"\x1b[?1;2049$p").expect("whole");
        assert_eq!(csi.kind(), (b'?', b'$', b'p'));
        assert_eq!(csi.params, [1, 2049]);
        let csi = Csi::parse(b"\x1b[;5H").expect("whole");
        assert_eq!((csi.param(0, 1), csi.param(1, 1)), (1, 5));
        assert_eq!(
            Csi::parse(b"\x1b[99999999A").expect("whole").params,
            [65_535]
        );
    }
}
