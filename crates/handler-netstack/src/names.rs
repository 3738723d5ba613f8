//! Made-up addresses of names: stable while a name is in use, bounded in number.
//!
//! Addresses are given round the pool, so that one is given to another name only after all others were: what
//! a program remembers for too long leads nowhere rather than to another host.

use crate::limits;
use std::collections::HashMap;
use std::net::Ipv4Addr;

/// First address of the pool; what is before it in the network is the device's and the stack's.
const FIRST: u32 = u32::from_be_bytes([198, 18, 1, 0]);
/// Last address of the pool; the one after it is the network's broadcast.
const LAST: u32 = u32::from_be_bytes([198, 19, 255, 254]);

/// One name.
#[derive(Debug)]
struct Entry {
    name: String,
    /// Tick of the last use.
    used: u64,
    /// Connections to it.
    live: usize,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Names {
    by_name: HashMap<String, u32>,
    by_address: HashMap<u32, Entry>,
    next: u32,
    tick: u64,
}

impl Names {
    pub(crate) fn new() -> Self {
        Self {
            by_name: HashMap::new(),
            by_address: HashMap::new(),
            next: FIRST,
            tick: 0,
        }
    }

    /// Whether an address is of the network of made-up addresses, given or not.
    pub(crate) fn is_made_up(address: Ipv4Addr) -> bool {
        (u32::from_be_bytes([198, 18, 0, 0])..=u32::from_be_bytes([198, 19, 255, 255]))
            .contains(&address.to_bits())
    }

    /// The address of a name (lower case), given now if it has none. None: all are in use by connections.
    pub(crate) fn address_of(&mut self, name: &str) -> Option<Ipv4Addr> {
        self.tick += 1;
        let known = self.by_name.get(name).copied();
        if let Some(address) = known
            && let Some(entry) = self.by_address.get_mut(&address)
        {
            entry.used = self.tick;
            return Some(Ipv4Addr::from_bits(address));
        }
        if self.by_address.len() >= limits::NAMES {
            self.forget_one()?;
        }
        let address = self.free();
        let entry = Entry {
            name: name.to_owned(),
            used: self.tick,
            live: 0,
        };
        self.by_name.insert(name.to_owned(), address);
        self.by_address.insert(address, entry);
        Some(Ipv4Addr::from_bits(address))
    }

    /// The name of an address that was given.
    pub(crate) fn name_of(&self, address: Ipv4Addr) -> Option<&str> {
        let entry = self.by_address.get(&address.to_bits())?;
        Some(&entry.name)
    }

    /// A connection to the address begins: it keeps its name.
    pub(crate) fn hold(&mut self, address: Ipv4Addr) {
        self.tick += 1;
        if let Some(entry) = self.by_address.get_mut(&address.to_bits()) {
            entry.live += 1;
            entry.used = self.tick;
        }
    }

    /// A connection to the address has ended.
    pub(crate) fn release(&mut self, address: Ipv4Addr) {
        if let Some(entry) = self.by_address.get_mut(&address.to_bits()) {
            entry.live = entry.live.saturating_sub(1);
        }
    }

    /// Takes out the longest unused without connections.
    fn forget_one(&mut self) -> Option<()> {
        let idle = self
            .by_address
            .iter()
            .filter(|(_, entry)| entry.live == 0)
            .min_by_key(|(_, entry)| entry.used);
        let address = *idle?.0;
        let entry = self.by_address.remove(&address)?;
        self.by_name.remove(&entry.name);
        Some(())
    }

    /// The next address that no name has; there are many more addresses than names.
    fn free(&mut self) -> u32 {
        loop {
            let address = self.next;
            self.next = if address == LAST { FIRST } else { address + 1 };
            if !self.by_address.contains_key(&address) {
                return address;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_keeps_its_address_and_another_gets_another() {
        let mut names = Names::new();
        let one = names.address_of("a.example").expect("room");
        let other = names.address_of("b.example").expect("room");
        assert_ne!(one, other);
        assert_eq!(names.address_of("a.example"), Some(one));
        assert_eq!(names.name_of(one), Some("a.example"));
        assert!(Names::is_made_up(one) && !Names::is_made_up(Ipv4Addr::new(198, 20, 0, 0)));
    }

    #[test]
    fn the_longest_unused_makes_room_but_never_one_with_a_connection() {
        let mut names = Names::new();
        let kept = names.address_of("kept.example").expect("room");
        names.hold(kept);
        let unused = names.address_of("unused.example").expect("room");
        for number in 2..limits::NAMES {
            names
                .address_of(&format!("n{number}.example"))
                .expect("room");
        }
        names.address_of("one.more.example").expect("room");
        assert_eq!(names.name_of(unused), None);
        assert_eq!(names.name_of(kept), Some("kept.example"));
        assert_ne!(names.address_of("unused.example"), Some(unused));
        names.release(kept);
        for number in 0..limits::NAMES {
            names
                .address_of(&format!("m{number}.example"))
                .expect("room");
        }
        assert_eq!(names.name_of(kept), None);
        assert_eq!(names.by_address.len(), limits::NAMES);
        assert_eq!(names.by_name.len(), limits::NAMES);
    }

    #[test]
    fn a_table_full_of_connections_gives_no_more_addresses() {
        let mut names = Names::new();
        for number in 0..limits::NAMES {
            let address = names.address_of(&format!("n{number}.example"));
            names.hold(address.expect("room"));
        }
        assert_eq!(names.address_of("one.more.example"), None);
    }

    #[test]
    fn the_pool_goes_round() {
        let mut names = Names::new();
        names.next = LAST;
        let last = names.address_of("a.example").expect("room");
        let first = names.address_of("b.example").expect("room");
        assert_eq!((last.to_bits(), first.to_bits()), (LAST, FIRST));
    }
}
