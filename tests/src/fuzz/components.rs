//! Mutated components, through the checks before a load; those that pass are compiled and run.
//!
//! The bytes choose a component of this project and a list of changes to it. Changes within a section keep the lengths
//! around it right, so that they reach beyond the parser of sections.

#![expect(clippy::unwrap_used, reason = "a panic is a finding")]

use std::sync::Arc;

use podium_runtime::{check, inspect};

use super::{abi, run::Rig};
use crate::{guests, modules::Module};

/// A larger component is not compiled, because that takes too long for a target.
const COMPILED_BYTES: usize = 24 << 10;
/// A larger one is not made.
const MAX_BYTES: usize = 1 << 20;

thread_local! {
    static RIG: (Rig, Vec<Arc<[u8]>>) = (Rig::new(), bases());
}

fn bases() -> Vec<Arc<[u8]>> {
    let small = Module {
        imports: r#"(import "podium:reconcile/log@0.1.0" "write" (func $log (param i32 i32 i32 i32 i32)))"#,
        fields: "(table $table 10 funcref) (func $mark) (elem (i32.const 0) $mark) (global (mut i64) (i64.const 7))",
        reconcile: "(call $log (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 0))
            (block (br_table 0 0 (i32.const 1))) (call_indirect $table (i32.const 0))",
        ..Module::default()
    };
    let empty = Module::default();
    let small = [small, empty].map(|module| Arc::from(module.component().unwrap()));
    let guests = ["good", "wasi"].map(|guest| guests::component(guest).unwrap());
    small.into_iter().chain(guests).chain([Arc::from(abi::component().unwrap())]).collect()
}

pub fn run(input: &[u8]) {
    RIG.with(|(rig, bases)| {
        let mut edits = Edits(input);
        let base = &bases[edits.below(bases.len())];
        let other = &bases[edits.below(bases.len())];
        let mutated = edits.apply(base, other);
        let spec = rig.spec();
        let checked = check(&spec, &mutated);
        if let Err(error) = &checked {
            let text = error.to_string();
            assert!(text.len() <= 8 << 10 && !text.contains(char::is_control), "{text:?}");
        }
        let inspected = inspect(&mutated);
        assert!(inspected.is_ok() || checked.is_err(), "{:?}", inspected.err());
        if mutated.len() <= COMPILED_BYTES
            && let Ok(plugin) = rig.engine.compile(&spec, &mutated)
        {
            assert!(checked.is_ok(), "compiled although the check refuses it");
            drop(rig.run(&plugin, input));
        }
    });
}

/// A section, or bytes that are not divided into sections.
#[derive(Debug, Clone)]
enum Part {
    Bytes(Vec<u8>),
    Section { id: u8, body: Vec<Part> },
}

const HEADER: usize = 8;

/// Reads the sections of a module or component; all of the bytes as they are, where there are none.
fn parse(bytes: &[u8]) -> Vec<Part> {
    let Some((header, mut rest)) = bytes.split_at_checked(HEADER).filter(|_| bytes.starts_with(b"\0asm")) else {
        return vec![Part::Bytes(bytes.to_vec())];
    };
    let is_component = header[6] == 1;
    let mut parts = vec![Part::Bytes(header.to_vec())];
    while let Some((body, after, id)) = section(rest) {
        let nested = is_component && (id == 1 || id == 4);
        let body = if nested { parse(body) } else { vec![Part::Bytes(body.to_vec())] };
        parts.push(Part::Section { id, body });
        rest = after;
    }
    parts.push(Part::Bytes(rest.to_vec()));
    parts
}

/// Splits off the first section: its body, the rest, its id.
fn section(bytes: &[u8]) -> Option<(&[u8], &[u8], u8)> {
    let (&id, rest) = bytes.split_first()?;
    let (mut length, mut at) = (0_usize, 0);
    loop {
        let byte = *rest.get(at)?;
        length |= usize::from(byte & 0x7f).checked_shl(7 * u32::try_from(at).ok()?)?;
        at += 1;
        if byte & 0x80 == 0 {
            break;
        }
        if at == 5 {
            return None;
        }
    }
    let (body, after) = rest[at..].split_at_checked(length)?;
    Some((body, after, id))
}

fn write(parts: &[Part]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        match part {
            Part::Bytes(part) => bytes.extend(part),
            Part::Section { id, body } => {
                let body = write(body);
                bytes.push(*id);
                let mut length = body.len();
                while length >= 0x80 {
                    bytes.push(length as u8 | 0x80);
                    length >>= 7;
                }
                bytes.push(length as u8);
                bytes.extend(body);
            }
        }
    }
    bytes
}

/// The rest of the input.
struct Edits<'a>(&'a [u8]);

impl Edits<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// A number below `end`; zero if there is none.
    fn below(&mut self, end: usize) -> usize {
        let first = usize::from(self.byte());
        let wide = if end > 256 { first << 8 | usize::from(self.byte()) } else { first };
        // Two bytes reach everywhere in a large text, though not to every byte.
        if end > 1 << 16 { wide * (end >> 16) } else { wide % end.max(1) }
    }

    fn apply(&mut self, base: &[u8], other: &[u8]) -> Vec<u8> {
        let (mut parts, other) = (parse(base), parse(other));
        while !self.0.is_empty() {
            self.edit(&mut parts, &other, 0);
        }
        let mut bytes = write(&parts);
        bytes.truncate(MAX_BYTES);
        bytes
    }

    fn edit(&mut self, parts: &mut Vec<Part>, other: &[Part], depth: u8) {
        let (at, kind) = (self.below(parts.len()), self.byte());
        match (kind, parts.get_mut(at)) {
            (_, None) => {}
            // Edits the section; a module or component in it has its own sections.
            (0..=159, Some(Part::Section { id, body })) if depth < 8 => {
                let same = other.iter().find_map(|part| match part {
                    Part::Section { id: other, body } if other == id => Some(&body[..]),
                    _ => None,
                });
                self.edit(body, same.unwrap_or_default(), depth + 1);
            }
            (0..=199, Some(Part::Bytes(bytes))) => self.edit_bytes(bytes),
            (200..=209, Some(part)) => {
                let copy = part.clone();
                let place = self.below(parts.len());
                parts.insert(place, copy);
            }
            (210..=219, _) => drop(parts.remove(at)),
            (220..=229, _) => {
                let with = self.below(parts.len());
                parts.swap(at, with);
            }
            (230..=239, _) if !other.is_empty() => {
                let from = self.below(other.len());
                parts.insert(at, other[from].clone());
            }
            (240..=244, Some(Part::Section { id, .. })) => *id = self.byte(),
            (245..=249, _) => {
                // A component around all of it, some times.
                for _ in 0..self.below(8) {
                    let body = std::mem::take(parts);
                    *parts = vec![Part::Bytes(b"\0asm\x0d\0\x01\0".to_vec()), Part::Section { id: 4, body }];
                }
            }
            (_, Some(part)) => {
                let (times, copy) = (self.below(64), part.clone());
                let is_small = write(parts).len() < MAX_BYTES >> 6;
                parts.extend(std::iter::repeat_n(copy, if is_small { times } else { 0 }));
            }
        }
    }

    fn edit_bytes(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len());
        match self.byte() {
            0..=99 if !bytes.is_empty() => bytes[at] = self.byte(),
            100..=139 if !bytes.is_empty() => bytes[at] ^= 1 << (self.byte() % 8),
            140..=169 => bytes.insert(at, self.byte()),
            170..=189 => drop(bytes.drain(at..bytes.len().min(at + usize::from(self.byte() % 16)))),
            // The largest number of five bytes.
            190..=209 => drop(bytes.splice(at..at, [0xff, 0xff, 0xff, 0xff, 0x0f])),
            210..=229 => {
                let copy = bytes[at..bytes.len().min(at + usize::from(self.byte()))].to_vec();
                drop(bytes.splice(at..at, copy));
            }
            230..=244 => bytes.truncate(at),
            _ => {
                let repeated = [self.byte(), self.byte()].repeat(self.below(1_024));
                drop(bytes.splice(at..at, repeated));
            }
        }
    }
}

/// Returns the components as they are, and with some changes.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> = (0..5).map(|base| vec![base, base + 1]).collect();
    for base in 0..5 {
        for at in 0..12 {
            seeds.push(vec![base, 0, at, 0, 0, 3, 0, at * 7]);
            seeds.push(vec![base, 1, at, 220, 3, at, 200, 1]);
        }
        seeds.push(vec![base, 0, 0, 246, 5]);
    }
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_without_changes_passes_the_check() {
        RIG.with(|(rig, bases)| {
            for base in bases {
                assert_eq!(write(&parse(base)), **base);
                let nested = |part: &&Part| matches!(part, Part::Section { id: 1, body } if body.len() > 3);
                assert!(parse(base).iter().any(|part| nested(&part)), "a module in it is parsed");
                assert!(check(&rig.spec(), base).is_ok(), "{:?}", check(&rig.spec(), base));
            }
        });
    }
}
