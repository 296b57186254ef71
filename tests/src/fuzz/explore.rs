//! Random changes to the seeds of a target, without libFuzzer: for the bounded runs of the suites, and for long runs
//! where no C++ compiler is.

use super::Target;
use crate::programs::Choices;

/// The most bytes of an input.
const MAX_BYTES: usize = 16 << 10;

/// Runs a target on a number of inputs. The same seed makes the same inputs.
///
/// An input is printed before it is tried, where `show` is set, because a panic does not name it.
pub fn explore(target: Target, seeds: &[Vec<u8>], runs: u64, seed: u64, show: bool) {
    let mut choices = Choices::new(seed);
    for _ in 0..runs {
        let mut input = choices.one(seeds).clone();
        for _ in 0..=choices.below(6) {
            change(&mut input, seeds, &mut choices);
        }
        input.truncate(MAX_BYTES);
        if show {
            println!("{input:?}");
        }
        target(&input);
    }
}

fn change(input: &mut Vec<u8>, seeds: &[Vec<u8>], choices: &mut Choices) {
    let at = choices.below(input.len());
    let byte = choices.number() as u8;
    match choices.below(8) {
        0 | 1 if !input.is_empty() => input[at] = byte,
        2 if !input.is_empty() => input[at] ^= 1 << (byte % 8),
        3 => input.insert(at, byte),
        4 => drop(input.drain(at..input.len().min(at + choices.below(8)))),
        5 => {
            let other = choices.one(seeds);
            let part = other[choices.below(other.len())..].to_vec();
            drop(input.splice(at..at, part));
        }
        6 => {
            let copy = input[at..input.len().min(at + choices.below(32))].to_vec();
            drop(input.splice(at..at, copy));
        }
        _ => input.extend((0..choices.below(8)).map(|_| choices.number() as u8)),
    }
}
