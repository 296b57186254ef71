//! [`ListenAddress`]: the value of a flag that names a port to listen on, in the syntax of Go's `net.Listen`, which
//! users of other controllers know.

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

/// Where to listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenAddress {
    /// Nowhere; written `0`.
    Off,
    /// On every address of the host, IPv4 and IPv6; written `:8081`.
    All(u16),
    /// On one address.
    One(SocketAddr),
}

impl ListenAddress {
    /// Returns true if only clients of the same machine, or in Kubernetes of the same Pod, can connect.
    #[must_use]
    pub fn is_loopback(&self) -> bool {
        match self {
            Self::Off | Self::All(_) => false,
            Self::One(address) => address.ip().to_canonical().is_loopback(),
        }
    }
}

/// Returns true if the host of a URL is of the loopback interface, without asking a resolver. An IPv6 address has
/// brackets.
#[must_use]
pub fn is_loopback(host: &str) -> bool {
    let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host.eq_ignore_ascii_case("localhost") || address.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}

/// The value of a flag is not a valid [`ListenAddress`].
#[derive(Debug, thiserror::Error)]
#[error("not a listen address; use :PORT for all addresses, IP:PORT for one, or 0 for none")]
pub struct AddressError;

impl FromStr for ListenAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        if text == "0" {
            return Ok(Self::Off);
        }
        if let Some(port) = text.strip_prefix(':') {
            // `u16::from_str` accepts a sign.
            let digits = port.bytes().all(|byte| byte.is_ascii_digit());
            return port.parse().ok().filter(|_| digits).map(Self::All).ok_or(AddressError);
        }
        text.parse().map(Self::One).map_err(|_| AddressError)
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => formatter.write_str("0"),
            Self::All(port) => write!(formatter, ":{port}"),
            Self::One(address) => address.fmt(formatter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_written_as_it_is_read() {
        for text in ["0", ":8081", ":0", "127.0.0.1:8080", "0.0.0.0:1", "[::1]:8080"] {
            assert_eq!(text.parse::<ListenAddress>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn only_addresses_of_the_loopback_interface_are_loopback() {
        for (text, loopback) in [
            ("127.0.0.1:1", true),
            ("127.9.9.9:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            (":1", false),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
            ("10.0.0.7:1", false),
        ] {
            assert_eq!(text.parse::<ListenAddress>().unwrap().is_loopback(), loopback, "{text}");
        }
    }

    #[test]
    fn a_text_that_is_not_an_address_is_refused() {
        for text in ["", ":", ":x", ":+1", ":65536", "8081", "localhost:8081", "127.0.0.1", "::1:8080"] {
            assert!(text.parse::<ListenAddress>().is_err(), "{text:?}");
        }
    }
}
