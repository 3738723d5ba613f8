//! Reading a tar archive as it comes, piece by piece.
//!
//! Owns what of the format spans several blocks: long names, pax records, contents and their filling.
//! Invariant: at most one name and one set of records is held, each of bounded length.

use crate::error::ArchiveError;
use crate::tar::{BLOCK, Head, LONGEST_META, apply_pax, kind, padding, read_head};

/// Who takes the entries.
pub trait Sink {
    /// An entry; when it is a file, its content follows.
    ///
    /// # Errors
    /// Ends the reading.
    fn entry(&mut self, head: &Head) -> Result<(), ArchiveError>;
    /// Part of the last file's content.
    ///
    /// # Errors
    /// Ends the reading.
    fn content(&mut self, data: &[u8]) -> Result<(), ArchiveError>;
    /// The last file's content is complete; also said of an empty one.
    ///
    /// # Errors
    /// Ends the reading.
    fn end_of_content(&mut self) -> Result<(), ArchiveError>;
}

/// What the next bytes are.
#[derive(Debug)]
enum Next {
    /// A head, as far as it is here.
    Head(Vec<u8>),
    /// A long name or pax records.
    Meta { kind: u8, left: u64, data: Vec<u8> },
    /// A file's content.
    Content(u64),
    /// Bytes of no interest.
    Skip(u64),
    /// After the end of the archive.
    Over,
}

/// See the module.
#[derive(Debug)]
pub struct Reader {
    next: Next,
    /// Bytes that fill up the content under way.
    fill: u64,
    /// Said by entries of their own for the next one.
    long_name: Option<Vec<u8>>,
    long_target: Option<Vec<u8>>,
    pax: Vec<u8>,
    was_any: bool,
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            next: Next::Head(Vec::new()),
            fill: 0,
            long_name: None,
            long_target: None,
            pax: Vec::new(),
            was_any: false,
        }
    }
}

impl Reader {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// When they are no archive, and what the sink says. Nothing may be added afterwards.
    pub fn add(&mut self, mut data: &[u8], sink: &mut impl Sink) -> Result<(), ArchiveError> {
        while !data.is_empty() {
            let count = match &mut self.next {
                Next::Head(head) => {
                    let count = data.len().min(BLOCK - head.len());
                    head.extend_from_slice(&data[..count]);
                    if let Some(block) = head.first_chunk::<BLOCK>() {
                        let block = *block;
                        self.head(&block, sink)?;
                    }
                    count
                }
                Next::Meta {
                    left, data: all, ..
                } => {
                    let count = cut(*left, data);
                    all.extend_from_slice(&data[..count]);
                    *left -= count as u64;
                    if *left == 0 {
                        self.meta();
                    }
                    count
                }
                Next::Content(left) => {
                    let count = cut(*left, data);
                    *left -= count as u64;
                    let is_last = *left == 0;
                    sink.content(&data[..count])?;
                    if is_last {
                        sink.end_of_content()?;
                        self.skip(self.fill);
                    }
                    count
                }
                Next::Skip(left) => {
                    let count = cut(*left, data);
                    *left -= count as u64;
                    if *left == 0 {
                        self.next = Next::Head(Vec::new());
                    }
                    count
                }
                Next::Over => return Ok(()),
            };
            data = &data[count..];
        }
        Ok(())
    }

    /// The bytes ended.
    ///
    /// # Errors
    /// When the archive is not whole.
    pub fn finish(&self) -> Result<(), ArchiveError> {
        let is_whole = match &self.next {
            Next::Head(head) => head.is_empty(),
            Next::Over => true,
            _ => false,
        };
        if is_whole && self.was_any {
            return Ok(());
        }
        Err(ArchiveError::invalid(if self.was_any {
            "the archive ends in the middle"
        } else {
            "the archive is empty or no tar archive"
        }))
    }

    fn head(&mut self, block: &[u8; BLOCK], sink: &mut impl Sink) -> Result<(), ArchiveError> {
        let head = read_head(block)
            .ok_or_else(|| ArchiveError::invalid("this is no tar archive, or a broken one"))?;
        self.was_any = true;
        let Some(mut head) = head else {
            self.next = Next::Over;
            return Ok(());
        };
        if matches!(
            head.kind,
            kind::LONG_NAME | kind::LONG_LINK | kind::PAX | kind::PAX_GLOBAL
        ) {
            return self.begin_meta(&head);
        }
        if let Some(name) = self.long_name.take() {
            head.name = name;
        }
        if let Some(target) = self.long_target.take() {
            head.target = target;
        }
        apply_pax(&std::mem::take(&mut self.pax), &mut head).map_err(ArchiveError::invalid)?;
        sink.entry(&head)?;
        self.fill = padding(head.size);
        match head.kind {
            kind::FILE | kind::CONTIGUOUS if head.size == 0 => {
                sink.end_of_content()?;
                self.skip(0);
            }
            kind::FILE | kind::CONTIGUOUS => self.next = Next::Content(head.size),
            // Some writers give these a size without content.
            kind::FOLDER | kind::LINK | kind::HARD_LINK => self.skip(0),
            _ => self.skip(head.size.saturating_add(self.fill)),
        }
        Ok(())
    }

    fn begin_meta(&mut self, head: &Head) -> Result<(), ArchiveError> {
        if head.size > LONGEST_META {
            let message = "a name or record in the archive is too long";
            return Err(ArchiveError::invalid(message));
        }
        self.fill = padding(head.size);
        self.next = Next::Meta {
            kind: head.kind,
            left: head.size,
            data: Vec::new(),
        };
        if head.size == 0 {
            self.meta();
        }
        Ok(())
    }

    fn meta(&mut self) {
        let next = std::mem::replace(&mut self.next, Next::Head(Vec::new()));
        let Next::Meta { kind, data, .. } = next else {
            return;
        };
        let text = |data: &[u8]| {
            let text = data.split(|byte| *byte == 0).next();
            text.unwrap_or_default().to_vec()
        };
        match kind {
            kind::LONG_NAME => self.long_name = Some(text(&data)),
            kind::LONG_LINK => self.long_target = Some(text(&data)),
            kind::PAX => self.pax = data,
            // What is said for all entries (a comment, a charset) changes nothing here.
            _ => {}
        }
        self.skip(self.fill);
    }

    fn skip(&mut self, count: u64) {
        self.next = if count == 0 {
            Next::Head(Vec::new())
        } else {
            Next::Skip(count)
        };
    }
}

fn cut(left: u64, data: &[u8]) -> usize {
    usize::try_from(left).map_or(data.len(), |left| left.min(data.len()))
}
