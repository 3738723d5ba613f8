//! Packets that do not go through the filter at all.

use super::Case;

/// Addresses of this machine and of the world.
const ADDRESSES: &[&str] = &[
    "127.0.0.1",
    "::1",
    "10.0.2.2",
    "10.88.0.1",
    "172.17.0.1",
    "169.254.1.2",
    "192.0.2.1",
    "2001:db8::1",
    "fe80::1%lo",
    // Where the device of transparent mode leads, made-up addresses and the other end's own.
    "198.18.0.1",
    "198.18.0.2",
    "198.18.1.0",
    "198.19.255.254",
    "fe80::1%handler0",
];

/// Programs that need no address.
const PROGRAMS: &[(&str, &str, &str)] = &[
    (
        "dns-udp",
        "a question to a resolver, data in its labels",
        "busybox nslookup escaped-dns-udp.example.com 8.8.8.8",
    ),
    (
        "dns-own",
        "a question to the resolver of the sandbox's own settings",
        "busybox nslookup escaped-dns-own.example.com",
    ),
    (
        "dns-stack",
        "a question to the name server of transparent mode, data in its labels",
        "busybox nslookup escaped-dns-stack.example.com 198.18.0.2",
    ),
    (
        "dns-tcp",
        "a question to a resolver over TCP",
        "printf '\\0\\002x' | busybox nc -w 2 8.8.8.8 53",
    ),
    (
        "device",
        "packets of one's own on the device of transparent mode",
        "busybox arping -c 1 -w 1 -I handler0 192.0.2.1",
    ),
    ("icmp", "ICMP echo", "busybox ping -c 1 -W 1 192.0.2.1"),
    (
        "icmp-6",
        "ICMP echo, IPv6",
        "busybox ping6 -c 1 -W 1 2001:db8::1",
    ),
    (
        "arp",
        "an Ethernet frame",
        "busybox arping -c 1 -w 1 -I lo 192.0.2.1",
    ),
    (
        "trace",
        "UDP with a growing time to live",
        "busybox traceroute -n -m 1 -q 1 -w 1 192.0.2.1",
    ),
    (
        "stun",
        "UDP to a STUN port, as WebRTC sends it",
        "busybox tftp -g -l /dev/null -r escaped-stun 192.0.2.1 3478",
    ),
    (
        "multicast",
        "multicast DNS",
        "busybox tftp -g -l /dev/null -r escaped-multicast 224.0.0.251 5353",
    ),
    (
        "broadcast",
        "a broadcast for an address",
        "busybox udhcpc -i lo -n -q -t 1 -T 1",
    ),
    (
        "interface",
        "a network interface of one's own",
        "busybox ip link add escaped type dummy && busybox ip link set escaped up && echo made >/tmp/escape/bad",
    ),
    (
        "bridge",
        "a pair of interfaces into the first process's network",
        "busybox ip link add escaped0 type veth peer name escaped1 netns 1 && echo made >/tmp/escape/bad",
    ),
    (
        "tun",
        "a tunnel device",
        "busybox tunctl -t escaped && echo made >/tmp/escape/bad",
    ),
    (
        "route",
        "a route",
        "busybox ip route add default dev lo && echo made >/tmp/escape/bad",
    ),
    (
        "address",
        "an address of the machine's network",
        "busybox ip addr add 10.0.2.15/24 dev lo && echo made >/tmp/escape/bad",
    ),
    (
        "enter-network",
        "the network of the first process seen",
        "busybox nsenter -t 1 -n busybox ip link && echo other >/dev/null",
    ),
    (
        "forwarding",
        "forwarding of packets",
        "echo 1 >/proc/sys/net/ipv4/ip_forward && echo made >/tmp/escape/bad",
    ),
];

/// All of them.
pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (number, address) in ADDRESSES.iter().enumerate() {
        let name = format!("packet-{number}-tcp");
        let script = format!(
            "printf 'GET /escaped-{name} HTTP/1.0\\r\\n\\r\\n' | timeout 3 busybox nc -w 2 '{address}' $F"
        );
        cases.push(Case::new(&name, &format!("TCP to {address}"), script));
        let name = format!("packet-{number}-udp");
        let script =
            format!("timeout 3 busybox tftp -g -l /dev/null -r escaped-{name} '{address}' $F");
        cases.push(Case::new(&name, &format!("UDP to {address}"), script));
    }
    cases.extend(PROGRAMS.iter().map(|(name, what, script)| {
        let script = script.replace('\'', "'\\''");
        Case::new(name, what, format!("timeout 4 sh -c '{script}'"))
    }));
    cases
}
