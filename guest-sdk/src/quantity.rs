//! [`Quantity`]: an amount of a resource, such as "500m" of `cpu` or "1Gi" of `memory`.

use std::{
    error, fmt,
    iter::Sum,
    ops::{Add, AddAssign},
    str::FromStr,
};

/// An amount of a resource as Kubernetes writes it, exact to a billionth as there: a finer one is rounded up.
///
/// ```
/// # use podium_sdk::Quantity;
/// let both = "500m".parse::<Quantity>()? + "1".parse()?;
/// assert_eq!((both.to_string(), both.millis(), both.value()), ("1.5".to_owned(), 1_500, 2));
/// assert!("1Gi".parse::<Quantity>()? > "1G".parse()?);
/// # Ok::<(), podium_sdk::InvalidQuantity>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity {
    /// Billionths. The largest quantity of Kubernetes is 2^63-1, which needs 94 bits.
    nanos: i128,
}

const UNIT: i128 = 1_000_000_000;
/// The largest amount that Kubernetes stores; a larger one becomes this one, as there.
const MOST: i128 = i64::MAX as i128 * UNIT;
/// The suffixes of Kubernetes, each with its factor as a fraction.
const SUFFIXES: [(&str, i128, i128); 16] = [
    ("Ki", 1 << 10, 1),
    ("Mi", 1 << 20, 1),
    ("Gi", 1 << 30, 1),
    ("Ti", 1 << 40, 1),
    ("Pi", 1 << 50, 1),
    ("Ei", 1 << 60, 1),
    ("n", 1, 1_000_000_000),
    ("u", 1, 1_000_000),
    ("m", 1, 1_000),
    ("k", 1_000, 1),
    ("M", 1_000_000, 1),
    ("G", 1_000_000_000, 1),
    ("T", 1_000_000_000_000, 1),
    ("P", 1_000_000_000_000_000, 1),
    ("E", 1_000_000_000_000_000_000, 1),
    ("", 1, 1),
];

impl Quantity {
    /// Returns the amount in whole units, rounded up: bytes of memory, processors.
    #[must_use]
    pub fn value(self) -> i64 {
        self.in_parts_of(UNIT)
    }

    /// Returns the amount in thousandths, rounded up: millicores of `cpu`.
    #[must_use]
    pub fn millis(self) -> i64 {
        self.in_parts_of(UNIT / 1_000)
    }

    fn in_parts_of(self, part: i128) -> i64 {
        let rounded = self.nanos.div_euclid(part) + i128::from(self.nanos.rem_euclid(part) != 0);
        i64::try_from(rounded).unwrap_or(if rounded < 0 { i64::MIN } else { i64::MAX })
    }
}

impl FromStr for Quantity {
    type Err = InvalidQuantity;

    /// Parses `<number><suffix>`: a decimal number, and a suffix of Kubernetes or an exponent such as `e3`.
    fn from_str(text: &str) -> Result<Self, InvalidQuantity> {
        parse(text).map(|nanos| Self { nanos }).ok_or_else(|| InvalidQuantity(text.chars().take(64).collect()))
    }
}

/// Returns the billionths, as whole and fraction over one denominator: the product of the largest whole amount and a
/// denominator has 123 bits.
fn parse(text: &str) -> Option<i128> {
    const DIGITS: usize = 18;
    let (sign, number) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = number.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(number.len());
    let (number, suffix) = number.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let (times, over) = factor(suffix)?;
    let append = |amount: i128, digit: u8| (amount * 10 + i128::from(digit - b'0')).min(i64::MAX.into());
    let whole = whole.bytes().fold(0, append) * times;
    if whole / over > i64::MAX.into() {
        return Some(sign * MOST);
    }
    let (first, beyond) = fraction.as_bytes().split_at(fraction.len().min(DIGITS));
    let fraction = first.iter().copied().chain(std::iter::repeat(b'0')).take(DIGITS).fold(0, append) * times;
    let numerator = whole * UNIT * UNIT + fraction;
    let denominator = over * UNIT;
    let inexact = numerator % denominator != 0 || beyond.iter().any(|digit| *digit != b'0');
    Some(sign * (numerator / denominator + i128::from(inexact)).min(MOST))
}

/// Returns the factor of a suffix as a fraction, of which one part is 1.
fn factor(suffix: &str) -> Option<(i128, i128)> {
    if let Some((_, times, over)) = SUFFIXES.iter().find(|(name, ..)| *name == suffix) {
        return Some((*times, *over));
    }
    let power = suffix.strip_prefix(['e', 'E'])?.parse::<i8>().ok()?;
    let factor = 10_i128.pow(u32::from(power.unsigned_abs()).min(18));
    (-18..=18).contains(&power).then_some(if power < 0 { (1, factor) } else { (factor, 1) })
}

impl Add for Quantity {
    type Output = Self;

    /// Saturates at the largest quantity.
    fn add(self, other: Self) -> Self {
        Self { nanos: (self.nanos + other.nanos).clamp(-MOST, MOST) }
    }
}

impl AddAssign for Quantity {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Quantity {
    fn sum<I: Iterator<Item = Self>>(quantities: I) -> Self {
        quantities.fold(Self::default(), Self::add)
    }
}

impl fmt::Display for Quantity {
    /// Formats a decimal number without a suffix, which Kubernetes accepts for each resource.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.nanos < 0 { "-" } else { "" };
        let whole = self.nanos.abs() / UNIT;
        let fraction = self.nanos.abs() % UNIT;
        let text = format!("{sign}{whole}.{fraction:09}");
        formatter.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// A text that is no quantity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidQuantity(String);

impl fmt::Display for InvalidQuantity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?} is no quantity, such as 500m, 2, 1.5Gi or 1e3", self.0)
    }
}

impl error::Error for InvalidQuantity {}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(text: &str) -> Option<i128> {
        text.parse::<Quantity>().ok().map(|quantity| quantity.nanos)
    }

    #[test]
    fn quantities_of_kubernetes_are_exact() {
        for (text, expected) in [
            ("0", 0),
            ("1", UNIT),
            ("+1", UNIT),
            ("-1.5", -UNIT * 3 / 2),
            ("500m", UNIT / 2),
            (".5", UNIT / 2),
            ("5.", 5 * UNIT),
            ("100n", 100),
            ("7u", 7_000),
            ("1k", 1_000 * UNIT),
            ("1Ki", 1_024 * UNIT),
            ("1.5Gi", (3 << 29) * UNIT),
            ("2E", 2_000_000_000_000_000_000 * UNIT),
            ("1e3", 1_000 * UNIT),
            ("1E3", 1_000 * UNIT),
            ("12e-3", UNIT * 12 / 1_000),
            ("0.000000000000000001Ei", 1_152_921_505),
        ] {
            assert_eq!(nanos(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_finer_than_a_billionth_is_rounded_away_from_zero() {
        for text in ["0.1n", "0.0000000001", "1e-18", "0.0000000000000000000000001"] {
            assert_eq!((nanos(text), nanos(&format!("-{text}"))), (Some(1), Some(-1)), "{text}");
        }
        assert_eq!(nanos("0.1000000000000000000000000000"), Some(UNIT / 10));
    }

    #[test]
    fn amounts_saturate_and_never_overflow() {
        for text in ["9223372036854775807", "9223372036854775808", "10E", "8Ei", "99e18", &"9".repeat(500)] {
            assert_eq!(nanos(text), Some(MOST), "{text}");
        }
        let most: Quantity = "9223372036854775807.999999999Ei".parse().unwrap();
        assert_eq!((most.value(), most.millis()), (i64::MAX, i64::MAX));
        assert_eq!(most + most, most);
        let least: Quantity = "-99E".parse().unwrap();
        assert_eq!((least.millis(), (least + least) == least), (i64::MIN, true));
    }

    #[test]
    fn other_texts_are_no_quantities() {
        for text in [
            "", "-", ".", "m", "1.2.3", "1 Gi", "1gi", "1KI", "0x10", "1e", "1e19", "1e+", "1e18E", "--1", "1_000", "٣",
        ] {
            let message = text.parse::<Quantity>().unwrap_err().to_string();
            assert!(message.contains("is no quantity"), "{text}: {message}");
        }
    }

    #[test]
    fn a_formatted_quantity_is_the_same_quantity() {
        for text in ["0", "1", "0.5", "-0.000000001", "1073741824", "9223372036854775807"] {
            assert_eq!(text.parse::<Quantity>().unwrap().to_string(), text);
        }
        let total: Quantity = ["250m", "0.25", "1Ki"].iter().map(|text| text.parse::<Quantity>().unwrap()).sum();
        assert_eq!((total.to_string(), total.value(), total.millis()), ("1024.5".to_owned(), 1_025, 1_024_500));
    }
}
