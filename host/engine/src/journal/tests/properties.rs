//! The journal against a naive model: random steps and restarts, and files that are truncated and corrupted at every
//! place.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use proptest::prelude::*;

use super::files::{enter, id, key, pending_deletions, reopen, write};
use crate::{frames::HEADER_BYTES, journal::*};

const PLUGINS: [&str; 3] = ["tidy", "count", "label"];
const PODS: usize = 6;

#[derive(Debug, Clone)]
enum Step {
    Enter(usize, usize),
    Settle(usize, usize),
    Gone(usize),
    Write,
    /// The process ends, with or without writing the pending entries, and another one starts.
    Restart {
        written: bool,
    },
    Compact,
}

fn step() -> impl Strategy<Value = Step> {
    let pair = || (0..PLUGINS.len(), 0..PODS);
    prop_oneof![
        6 => pair().prop_map(|(plugin, pod)| Step::Enter(plugin, pod)),
        4 => pair().prop_map(|(plugin, pod)| Step::Settle(plugin, pod)),
        2 => (0..PODS).prop_map(Step::Gone),
        3 => Just(Step::Write),
        1 => any::<bool>().prop_map(|written| Step::Restart { written }),
        1 => Just(Step::Compact),
    ]
}

type Pairs = BTreeSet<(usize, usize)>;

/// Returns the pairs that a restart reads if every Pod is gone.
fn read(directory: &std::path::Path) -> Pairs {
    let pods: BTreeMap<PodKey, usize> = (0..PODS).map(|number| (key(number), number)).collect();
    let pairs = |(plugin, name)| {
        pending_deletions(directory, name).into_iter().map(|key| (plugin, pods[&key])).collect::<Vec<_>>()
    };
    PLUGINS.into_iter().enumerate().flat_map(pairs).collect()
}

#[derive(Default)]
struct Model {
    pairs: Pairs,
    gone: Pairs,
    /// The pairs that a restart would read.
    on_disk: Pairs,
    /// Pairs with an entry in the file, regardless of later entries.
    named: Pairs,
    waiting: Pairs,
}

impl Model {
    fn write(&mut self) {
        self.named.append(&mut self.waiting);
        self.on_disk = self.pairs.clone();
    }

    /// Removes settled pairs. Pairs that were entered again stay, although neither entry was written yet.
    fn compact(&mut self) {
        self.on_disk = self.pairs.intersection(&self.named).copied().collect();
        self.named = self.on_disk.clone();
    }

    fn restart(&mut self) {
        (self.pairs, self.gone, self.waiting) = (self.on_disk.clone(), Pairs::new(), Pairs::new());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_journal_equals_a_naive_model_after_any_steps(steps in prop::collection::vec(step(), 1..60)) {
        let directory = tempfile::tempdir().unwrap();
        let mut opened = reopen(directory.path());
        let mut model = Model::default();
        for step in steps {
            let entries = |plugin: usize| opened.journal.plugin_entries(&id(PLUGINS[plugin]));
            match step {
                Step::Enter(plugin, pod) => {
                    enter(&entries(plugin), &key(pod));
                    if model.pairs.insert((plugin, pod)) {
                        model.waiting.insert((plugin, pod));
                    }
                }
                Step::Settle(plugin, pod) => {
                    entries(plugin).settled(&key(pod));
                    model.pairs.remove(&(plugin, pod));
                    model.gone.remove(&(plugin, pod));
                }
                Step::Gone(pod) => {
                    let plugins = opened.journal.gone(&key(pod)).len();
                    let ran: Vec<_> = model.pairs.iter().filter(|(_, of)| *of == pod).copied().collect();
                    prop_assert_eq!(plugins, ran.len());
                    model.gone.extend(ran);
                }
                Step::Write => {
                    write(&mut opened);
                    model.write();
                }
                Step::Restart { written } => {
                    if written {
                        write(&mut opened);
                        model.write();
                    }
                    drop(opened);
                    prop_assert_eq!(&read(directory.path()), &model.on_disk);
                    opened = reopen(directory.path());
                    model.restart();
                }
                Step::Compact => {
                    opened.store.compact_now(&opened.journal);
                    model.compact();
                }
            }
            prop_assert_eq!(opened.journal.figures().entries, model.pairs.len());
            prop_assert_eq!(opened.journal.figures().pending_deletions, model.gone.len());
        }
        write(&mut opened);
        opened.store.compact_now(&opened.journal);
        drop(opened);
        prop_assert_eq!(read(directory.path()), model.pairs);
    }
}

/// Returns a file with some entries, and for each entry the length of the file and the valid pairs.
fn grown() -> (tempfile::TempDir, Vec<(usize, Pairs)>) {
    let directory = tempfile::tempdir().unwrap();
    let mut opened = reopen(directory.path());
    let accounts = PLUGINS.map(|name| opened.journal.plugin_entries(&id(name)));
    write(&mut opened);
    let length = |opened: &Opened| usize::try_from(opened.journal.figures().bytes).unwrap();
    let (mut live, mut after) = (Pairs::new(), vec![(HEADER_BYTES, Pairs::new()), (length(&opened), Pairs::new())]);
    for (plugin, pod, enters) in [(0, 0, true), (1, 0, true), (0, 1, true), (0, 0, false), (2, 3, true), (1, 0, false)]
    {
        if enters {
            enter(&accounts[plugin], &key(pod));
            live.insert((plugin, pod));
        } else {
            accounts[plugin].settled(&key(pod));
            live.remove(&(plugin, pod));
        }
        write(&mut opened);
        after.push((length(&opened), live.clone()));
    }
    (directory, after)
}

/// Returns the pairs of the file at this length.
fn before(after: &[(usize, Pairs)], length: usize) -> Pairs {
    let whole = after.iter().take_while(|(end, _)| *end <= length);
    whole.last().map(|(_, live)| live.clone()).unwrap_or_default()
}

#[test]
fn a_truncated_file_keeps_the_entries_before_the_cut() {
    let (directory, after) = grown();
    let whole = fs::read(directory.path().join("journal")).unwrap();
    assert_eq!(whole.len(), after.last().unwrap().0);
    for length in 0..=whole.len() {
        fs::write(directory.path().join("journal"), &whole[..length]).unwrap();
        let mut wanted = before(&after, length);
        assert_eq!(read(directory.path()), wanted, "cut at {length}");
        let mut opened = reopen(directory.path());
        enter(&opened.journal.plugin_entries(&id(PLUGINS[2])), &key(5));
        write(&mut opened);
        drop(opened);
        wanted.insert((2, 5));
        assert_eq!(read(directory.path()), wanted, "cut at {length} and gone on");
    }
}

#[test]
fn a_flipped_bit_does_not_affect_earlier_entries() {
    let (directory, after) = grown();
    let whole = fs::read(directory.path().join("journal")).unwrap();
    for at in HEADER_BYTES..whole.len() {
        for bit in [0, 7] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            fs::write(directory.path().join("journal"), &bytes).unwrap();
            assert_eq!(read(directory.path()), before(&after, at), "bit {bit} of byte {at}");
        }
    }
}

proptest! {
    #[test]
    fn arbitrary_bytes_after_the_header_are_damage(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let directory = tempfile::tempdir().unwrap();
        let file = [&entry::FORMAT.header()[..], &bytes].concat();
        fs::write(directory.path().join("journal"), file).unwrap();
        let opened = reopen(directory.path());
        prop_assert_eq!(opened.journal.figures().entries, 0);
    }
}
