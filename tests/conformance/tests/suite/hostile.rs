//! Archives that no honest program makes, byte by byte.

/// An entry's kind.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Entry {
    /// A regular file with its content.
    File(&'static [u8]),
    /// A symbolic link.
    Link(&'static str),
    /// A hard link.
    Hard(&'static str),
    /// A character device, `/dev/null`'s numbers.
    Device,
    /// The head of a file of so many bytes; none of them follow.
    Claim(u64),
}

/// A tar archive of these entries, names as given, every file set-uid.
pub(crate) fn tar(entries: &[(&str, Entry)]) -> Vec<u8> {
    let mut all = Vec::new();
    for (name, entry) in entries {
        let (kind, link, content) = match *entry {
            Entry::File(content) => (b'0', "", content),
            Entry::Link(target) => (b'2', target, &b""[..]),
            Entry::Hard(target) => (b'1', target, &b""[..]),
            Entry::Device => (b'3', "", &b""[..]),
            Entry::Claim(_) => (b'0', "", &b""[..]),
        };
        let mut head = [0u8; 512];
        head[..name.len()].copy_from_slice(name.as_bytes());
        head[100..107].copy_from_slice(b"0004755");
        head[108..115].copy_from_slice(b"0000000");
        head[116..123].copy_from_slice(b"0000000");
        head[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
        if let Entry::Claim(size) = entry {
            // More than eleven octal digits can say.
            head[124] = 0x80;
            head[128..136].copy_from_slice(&size.to_be_bytes());
        }
        head[136..147].copy_from_slice(b"00000000000");
        head[156] = kind;
        head[157..157 + link.len()].copy_from_slice(link.as_bytes());
        head[257..265].copy_from_slice(b"ustar\x0000");
        head[329..336].copy_from_slice(b"0000001");
        head[337..344].copy_from_slice(b"0000003");
        head[148..156].copy_from_slice(b"        ");
        let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
        head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        all.extend_from_slice(&head);
        all.extend_from_slice(content);
        all.resize(all.len().next_multiple_of(512), 0);
    }
    all.resize(all.len() + 1024, 0);
    all
}

/// A zip archive of these names, contents and Unix modes, nothing packed.
pub(crate) fn zip(entries: &[(&str, &[u8], u32)]) -> Vec<u8> {
    let (mut all, mut directory) = (Vec::new(), Vec::new());
    for (name, content, mode) in entries {
        let at = u32::try_from(all.len()).unwrap().to_le_bytes();
        let mut common = Vec::new();
        common.extend_from_slice(&[20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0]);
        common.extend_from_slice(&crc32(content).to_le_bytes());
        let size = u32::try_from(content.len()).unwrap().to_le_bytes();
        common.extend_from_slice(&size);
        common.extend_from_slice(&size);
        common.extend_from_slice(&u16::try_from(name.len()).unwrap().to_le_bytes());
        common.extend_from_slice(&[0, 0]);
        all.extend_from_slice(b"PK\x03\x04");
        all.extend_from_slice(&common);
        all.extend_from_slice(name.as_bytes());
        all.extend_from_slice(content);
        // Made by Unix, so that the mode counts.
        directory.extend_from_slice(b"PK\x01\x02\x14\x03");
        directory.extend_from_slice(&common);
        directory.extend_from_slice(&[0; 6]);
        directory.extend_from_slice(&(mode << 16).to_le_bytes());
        directory.extend_from_slice(&at);
        directory.extend_from_slice(name.as_bytes());
    }
    let at = u32::try_from(all.len()).unwrap().to_le_bytes();
    let count = u16::try_from(entries.len()).unwrap().to_le_bytes();
    let size = u32::try_from(directory.len()).unwrap().to_le_bytes();
    all.extend_from_slice(&directory);
    all.extend_from_slice(b"PK\x05\x06\0\0\0\0");
    for part in [&count[..], &count, &size, &at, &[0, 0]] {
        all.extend_from_slice(part);
    }
    all
}

fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
    let byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc));
    !bytes.iter().fold(!0, byte)
}
