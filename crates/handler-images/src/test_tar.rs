//! A writer of archives, good and hostile, for tests.

/// An archive being written.
pub(crate) struct Tar(Vec<u8>);

impl Tar {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    /// Any header, followed by any bytes.
    pub(crate) fn raw(
        mut self,
        name: &str,
        kind: u8,
        mode: u32,
        link: &str,
        size: u64,
        content: &[u8],
    ) -> Self {
        let mut block = [0u8; 512];
        block[..name.len().min(100)].copy_from_slice(&name.as_bytes()[..name.len().min(100)]);
        block[100..108].copy_from_slice(format!("{mode:07o}\0").as_bytes());
        block[108..116].copy_from_slice(b"0000000\0");
        block[116..124].copy_from_slice(b"0000000\0");
        if size < 1 << 33 {
            block[124..136].copy_from_slice(format!("{size:011o}\0").as_bytes());
        } else {
            block[124] = 0x80;
            block[128..136].copy_from_slice(&size.to_be_bytes());
        }
        block[136..148].copy_from_slice(b"00000000001\0");
        block[156] = kind;
        block[157..157 + link.len()].copy_from_slice(link.as_bytes());
        block[257..265].copy_from_slice(b"ustar\x0000");
        block[148..156].copy_from_slice(b"        ");
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.0.extend(block);
        self.0.extend(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub(crate) fn file(self, name: &str, content: &[u8]) -> Self {
        self.raw(name, b'0', 0o644, "", content.len() as u64, content)
    }

    pub(crate) fn folder(self, name: &str) -> Self {
        self.raw(name, b'5', 0o755, "", 0, b"")
    }

    pub(crate) fn link(self, name: &str, target: &str) -> Self {
        self.raw(name, b'2', 0o777, target, 0, b"")
    }

    pub(crate) fn hard_link(self, name: &str, target: &str) -> Self {
        self.raw(name, b'1', 0o644, target, 0, b"")
    }

    pub(crate) fn gnu_long(self, name: &str, content: &[u8]) -> Self {
        let text = format!("{name}\0");
        self.raw(
            "././@LongLink",
            b'L',
            0,
            "",
            text.len() as u64,
            text.as_bytes(),
        )
        .file("short", content)
    }

    pub(crate) fn pax(self, key: &str, value: &str, content: &[u8]) -> Self {
        let body = format!(" {key}={value}\n");
        let mut length = body.len();
        while length != body.len() + length.to_string().len() {
            length = body.len() + length.to_string().len();
        }
        let record = format!("{length}{body}");
        self.raw("x", b'x', 0o644, "", record.len() as u64, record.as_bytes())
            .file("short", content)
    }

    pub(crate) fn end(mut self) -> Vec<u8> {
        self.0.extend([0; 1024]);
        self.0
    }
}
