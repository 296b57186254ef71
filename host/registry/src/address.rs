//! Which IP addresses a registry may have.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where an address leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The Internet.
    Public,
    /// This machine or a private network: only for a registry that is listed with it.
    Private,
    /// No registry: the metadata services of clouds, link-local addresses, multicast, and reserved ranges.
    Never,
}

/// Returns where an address leads. Addresses of IPv6 that contain one of IPv4 lead where that does.
pub(crate) fn reach(address: IpAddr) -> Reach {
    match address {
        IpAddr::V4(address) => of_v4(address),
        IpAddr::V6(address) => of_v6(address),
    }
}

fn of_v4(address: Ipv4Addr) -> Reach {
    match address.octets() {
        // Metadata services that are not link-local.
        [100, 100, 100, 200] | [168, 63, 129, 16] | [192, 0, 0, 192] => Reach::Never,
        [10 | 127, ..] | [172, 16..=31, ..] | [192, 168, ..] | [100, 64..=127, ..] => Reach::Private,
        [0, ..]
        | [169, 254, ..]
        | [192, 0, 0 | 2, _]
        | [192, 88, 99, _]
        | [198, 18 | 19, ..]
        | [198, 51, 100, _]
        | [203, 0, 113, _]
        | [224..=255, ..] => Reach::Never,
        _ => Reach::Public,
    }
}

fn of_v6(address: Ipv6Addr) -> Reach {
    if address == Ipv6Addr::LOCALHOST {
        return Reach::Private;
    }
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        of_v4(Ipv4Addr::new(a, b, c, d))
    };
    match address.segments() {
        // IPv4 as IPv6, NAT64 and 6to4.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => {
            embedded(high, low)
        }
        // Services of clouds in private ranges: metadata, credentials of Pods, names and time.
        [0xfd00, 0xec2 | 0xc1 | 0x42, ..] | [0xfd20, 0xce, ..] => Reach::Never,
        [0xfc00..=0xfdff, ..] => Reach::Private,
        // Teredo, benchmarks, ORCHID and documentation; the rest of 2000::/3 is public.
        [0x2001, 0..=0x1ff | 0xdb8, ..] | [0x3fff, ..] => Reach::Never,
        [0x2000..=0x3fff, ..] => Reach::Public,
        _ => Reach::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_lead_where_their_ranges_say() {
        let cases = [
            ("1.1.1.1", Reach::Public),
            ("172.15.0.1", Reach::Public),
            ("172.32.0.1", Reach::Public),
            ("100.128.0.1", Reach::Public),
            ("2606:4700::1111", Reach::Public),
            ("64:ff9b::1.1.1.1", Reach::Public),
            ("127.0.0.1", Reach::Private),
            ("127.255.0.1", Reach::Private),
            ("10.96.0.1", Reach::Private),
            ("172.16.0.1", Reach::Private),
            ("192.168.1.1", Reach::Private),
            ("100.64.0.1", Reach::Private),
            ("::1", Reach::Private),
            ("fd12::1", Reach::Private),
            ("::ffff:127.0.0.1", Reach::Private),
            ("::ffff:10.0.0.1", Reach::Private),
            ("2002:7f00:1::", Reach::Private),
            ("64:ff9b::10.0.0.1", Reach::Private),
            ("169.254.169.254", Reach::Never),
            ("::ffff:169.254.169.254", Reach::Never),
            ("64:ff9b::169.254.169.254", Reach::Never),
            ("168.63.129.16", Reach::Never),
            ("100.100.100.200", Reach::Never),
            ("::ffff:168.63.129.16", Reach::Never),
            ("64:ff9b::100.100.100.200", Reach::Never),
            ("2002:a9fe:a9fe::", Reach::Never),
            ("64:ff9b:1::a9fe:a9fe", Reach::Never),
            ("::ffff:0:a9fe:a9fe", Reach::Never),
            ("192.0.0.192", Reach::Never),
            ("fd00:ec2::254", Reach::Never),
            ("fd00:ec2::23", Reach::Never),
            ("fd20:ce::254", Reach::Never),
            ("fd00:c1::a9fe:a9fe", Reach::Never),
            ("fd00:42::42", Reach::Never),
            ("fd00:ec3::1", Reach::Private),
            ("fd20:cf::1", Reach::Private),
            ("0.0.0.0", Reach::Never),
            ("224.0.0.1", Reach::Never),
            ("255.255.255.255", Reach::Never),
            ("::", Reach::Never),
            ("::127.0.0.1", Reach::Never),
            ("fe80::1", Reach::Never),
            ("ff02::1", Reach::Never),
            ("2001::1", Reach::Never),
            ("2001:db8::1", Reach::Never),
        ];
        for (address, expected) in cases {
            assert_eq!(reach(address.parse().unwrap()), expected, "{address}");
        }
    }
}
