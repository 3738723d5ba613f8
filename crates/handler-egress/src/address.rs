//! What kind of address an IP address is, through every IPv6 form that carries an IPv4 one. Pure.
//!
//! Invariant: an address is public only if every address it can be translated to is public.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Who may reach an address. Ordered: the later, the stricter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AddressClass {
    /// Anyone whose policy allows the name.
    Public,
    /// Only an entry that is this very address: loopback, private and reserved ranges.
    Private,
    /// Nobody: link-local, metadata services, unspecified, multicast, broadcast.
    Never,
}

/// Classifies an address.
pub(crate) fn classify(ip: IpAddr) -> AddressClass {
    match ip {
        IpAddr::V4(ip) => classify_v4(ip),
        IpAddr::V6(ip) => classify_v6(ip),
    }
}

fn classify_v4(ip: Ipv4Addr) -> AddressClass {
    let [a, b, c, d] = ip.octets();
    match (a, b, c, d) {
        // "This network", link-local, multicast, broadcast.
        (0, ..) | (169, 254, ..) | (224..=239, ..) | (255, 255, 255, 255) => AddressClass::Never,
        // Metadata services of clouds that sit outside the link-local range.
        (100, 100, 100, 200) | (192, 0, 0, 192) | (168, 63, 129, 16) => AddressClass::Never,
        // Loopback, RFC 1918, shared (CGNAT), protocol assignments, 6to4 relay, benchmarks, reserved.
        (127, ..) | (10, ..) | (172, 16..=31, ..) | (192, 168, ..) => AddressClass::Private,
        (100, 64..=127, ..) | (192, 0, 0, _) | (192, 88, 99, _) => AddressClass::Private,
        (198, 18..=19, ..) | (240..=255, ..) => AddressClass::Private,
        _ => AddressClass::Public,
    }
}

fn classify_v6(ip: Ipv6Addr) -> AddressClass {
    let native = classify_native_v6(ip);
    carried_v4(ip)
        .into_iter()
        .flatten()
        .map(classify_v4)
        .fold(native, AddressClass::max)
}

fn classify_native_v6(ip: Ipv6Addr) -> AddressClass {
    let s = ip.segments();
    if ip.is_unspecified() || s[0] & 0xff00 == 0xff00 || s[0] & 0xffc0 == 0xfe80 {
        return AddressClass::Never;
    }
    // The metadata service of one cloud has a unique local address.
    if s == [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254] {
        return AddressClass::Never;
    }
    let unique_local = s[0] & 0xfe00 == 0xfc00;
    let site_local = s[0] & 0xffc0 == 0xfec0;
    let discard = s[..4] == [0x100, 0, 0, 0];
    let local_nat64 = s[..3] == [0x64, 0xff9b, 1];
    if ip.is_loopback() || unique_local || site_local || discard || local_nat64 {
        return AddressClass::Private;
    }
    AddressClass::Public
}

/// IPv4 addresses that packets to this address may end at.
fn carried_v4(ip: Ipv6Addr) -> [Option<Ipv4Addr>; 3] {
    let s = ip.segments();
    let pair = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        Ipv4Addr::new(a, b, c, d)
    };
    let last = pair(s[6], s[7]);
    let zero = |range: &[u16]| range.iter().all(|part| *part == 0);
    // Compatible (`::a.b.c.d`), mapped (`::ffff:…`), translated (`::ffff:0:…`), NAT64 (`64:ff9b::…`).
    // `::` and `::1` are no carriers; they are judged as themselves.
    let compatible = zero(&s[..6]) && !ip.is_unspecified() && !ip.is_loopback();
    let mapped = zero(&s[..5]) && s[5] == 0xffff;
    let translated = zero(&s[..4]) && s[4] == 0xffff && s[5] == 0;
    let nat64 = s[..6] == [0x64, 0xff9b, 0, 0, 0, 0] || s[..3] == [0x64, 0xff9b, 1];
    // ISATAP: the interface part is `0:5efe` (or `200:5efe`) and the IPv4 address.
    let isatap = s[4] & 0xfdff == 0 && s[5] == 0x5efe;
    let ends = compatible || mapped || translated || nat64 || isatap;
    let six_to_four = (s[0] == 0x2002).then(|| pair(s[1], s[2]));
    // Teredo carries its server in the clear and its client with every bit turned.
    let teredo = s[0] == 0x2001 && s[1] == 0;
    [
        ends.then_some(last).or(teredo.then(|| pair(!s[6], !s[7]))),
        six_to_four,
        teredo.then(|| pair(s[2], s[3])),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use AddressClass::{Never, Private, Public};

    #[test]
    fn every_range_and_every_disguise_has_its_class() {
        for (text, wanted) in [
            ("1.1.1.1", Public),
            ("8.8.8.8", Public),
            ("100.63.255.255", Public),
            ("172.15.0.1", Public),
            ("172.32.0.1", Public),
            ("169.253.0.1", Public),
            ("127.0.0.1", Private),
            ("127.255.255.254", Private),
            ("10.1.2.3", Private),
            ("172.16.0.1", Private),
            ("172.31.255.255", Private),
            ("192.168.0.1", Private),
            ("100.64.0.1", Private),
            ("100.127.255.255", Private),
            ("198.18.0.1", Private),
            ("240.0.0.1", Private),
            ("0.0.0.0", Never),
            ("0.1.2.3", Never),
            ("169.254.169.254", Never),
            ("100.100.100.200", Never),
            ("224.0.0.1", Never),
            ("239.255.255.250", Never),
            ("255.255.255.255", Never),
            ("2606:4700:4700::1111", Public),
            ("2001:4860:4860::8888", Public),
            ("::", Never),
            ("::1", Private),
            ("fe80::1", Never),
            ("febf::1", Never),
            ("fec0::1", Private),
            ("fc00::1", Private),
            ("fdff::1", Private),
            ("fd00:ec2::254", Never),
            ("ff02::1", Never),
            ("100::1", Private),
            ("::ffff:1.1.1.1", Public),
            ("::ffff:127.0.0.1", Private),
            ("::ffff:10.0.0.1", Private),
            ("::ffff:169.254.169.254", Never),
            ("::ffff:0.0.0.0", Never),
            ("::127.0.0.1", Private),
            ("::169.254.169.254", Never),
            ("::ffff:0:127.0.0.1", Private),
            ("64:ff9b::1.1.1.1", Public),
            ("64:ff9b::10.0.0.1", Private),
            ("64:ff9b::169.254.169.254", Never),
            ("64:ff9b:1::1.1.1.1", Private),
            ("64:ff9b:1::169.254.169.254", Never),
            ("2002:0101:0101::1", Public),
            ("2002:7f00:0001::1", Private),
            ("2002:c0a8:0001::1", Private),
            ("2002:a9fe:a9fe::1", Never),
            ("2001:0:0101:0101::fefe:fefe", Public),
            ("2001:0:0101:0101::80ff:fffe", Private),
            ("2001:0:0101:0101::5601:5601", Never),
            ("2001:0:7f00:1::fefe:fefe", Private),
            ("2606::5efe:10.0.0.1", Private),
            ("2606::200:5efe:169.254.169.254", Never),
        ] {
            assert_eq!(classify(text.parse().expect(text)), wanted, "{text}");
        }
    }
}
