//! The journal against a naive model: random steps and restarts, and files that are truncated and corrupted at every
//! place.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

use proptest::prelude::*;

use super::files::{enter, id, key, pending_deletions, reopen, write};
use crate::{
    frames::{HEADER, HEADER_BYTES},
    journal::*,
};

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
        self.pairs = self.on_disk.clone();
        self.gone = Pairs::new();
        self.waiting = Pairs::new();
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

/// A pair is entered, or has settled.
type Entered = (usize, usize, bool);

const GROWN: [Entered; 6] = [(0, 0, true), (1, 0, true), (0, 1, true), (0, 0, false), (2, 3, true), (1, 0, false)];

/// Returns a file with the plugins and these entries, and the length of the file before each of them and at the end.
fn grown(entered: &[Entered]) -> (tempfile::TempDir, Vec<usize>) {
    let directory = tempfile::tempdir().unwrap();
    let mut opened = reopen(directory.path());
    let accounts = PLUGINS.map(|name| opened.journal.plugin_entries(&id(name)));
    write(&mut opened);
    let length = |opened: &Opened| usize::try_from(opened.journal.figures().bytes).unwrap();
    let mut ends = vec![length(&opened)];
    for &(plugin, pod, enters) in entered {
        if enters {
            enter(&accounts[plugin], &key(pod));
        } else {
            accounts[plugin].settled(&key(pod));
        }
        write(&mut opened);
        ends.push(length(&opened));
    }
    (directory, ends)
}

/// Returns all offsets, except most of those within fillers.
fn places(whole: &[u8]) -> impl Iterator<Item = usize> {
    let is_filler = |at: usize| whole[at.saturating_sub(1)..].starts_with(b"---");
    (0..whole.len()).filter(move |at| !is_filler(*at) || at % 997 == 0)
}

/// Returns the pairs that are left after these entries.
fn live<'a>(entered: impl IntoIterator<Item = &'a Entered>) -> Pairs {
    let mut live = Pairs::new();
    for &(plugin, pod, enters) in entered {
        if enters {
            live.insert((plugin, pod));
        } else {
            live.remove(&(plugin, pod));
        }
    }
    live
}

#[test]
fn a_truncated_file_keeps_the_entries_before_the_cut() {
    let (directory, ends) = grown(&GROWN);
    let whole = fs::read(directory.path().join("journal")).unwrap();
    assert_eq!(whole.len(), *ends.last().unwrap());
    for length in places(&whole).chain([whole.len()]) {
        fs::write(directory.path().join("journal"), &whole[..length]).unwrap();
        let kept = ends[1..].iter().filter(|end| **end <= length).count();
        let mut wanted = live(&GROWN[..kept]);
        let mut opened = reopen(directory.path());
        assert_eq!(opened.journal.figures().damaged, 0, "a torn end is no damage, cut at {length}");
        enter(&opened.journal.plugin_entries(&id(PLUGINS[2])), &key(5));
        write(&mut opened);
        drop(opened);
        wanted.insert((2, 5));
        assert_eq!(read(directory.path()), wanted, "cut at {length} and gone on");
    }
}

#[test]
fn a_changed_byte_loses_only_the_entry_that_contains_it() {
    let (directory, ends) = grown(&GROWN);
    let whole = fs::read(directory.path().join("journal")).unwrap();
    for at in places(&whole).skip(HEADER_BYTES) {
        for change in [0x01, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] ^= change;
            fs::write(directory.path().join("journal"), &bytes).unwrap();
            let lost = ends.iter().filter(|end| **end <= at).count();
            let mut wanted =
                live(GROWN.iter().enumerate().filter(|(of, _)| of + 1 != lost).map(|(_, entered)| entered));
            let mut opened = reopen(directory.path());
            let is_last = lost == GROWN.len();
            assert_eq!(opened.journal.figures().damaged, u64::from(!is_last), "{change:x} at {at}");
            assert_eq!(opened.journal.figures().entries, wanted.len(), "{change:x} at {at}");
            enter(&opened.journal.plugin_entries(&id(PLUGINS[2])), &key(5));
            write(&mut opened);
            drop(opened);
            wanted.insert((2, 5));
            assert_eq!(read(directory.path()), wanted, "{change:x} at {at}");
            assert_eq!(reopen(directory.path()).journal.figures().damaged, 0, "the file is not repaired: {at}");
        }
    }
}

#[test]
fn a_lost_sector_loses_only_the_runs_in_it() {
    const ALL: usize = 60;
    let pods = |opened: &Opened| {
        for name in PLUGINS {
            (0..ALL).for_each(|pod| enter(&opened.journal.plugin_entries(&id(name)), &key(pod)));
        }
    };
    for compacted in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let mut opened = reopen(directory.path());
        opened.journal.of_cluster(&"c".into()).unwrap();
        pods(&opened);
        write(&mut opened);
        if compacted {
            opened.store.compact_now(&opened.journal);
        }
        drop(opened);
        let path = directory.path().join("journal");
        let whole = fs::read(&path).unwrap();
        for sector in [512, 4_096] {
            for from in (0..whole.len()).step_by(sector) {
                let mut bytes = whole.clone();
                bytes[from..whole.len().min(from + sector)].fill(0);
                fs::write(&path, &bytes).unwrap();
                let opened = reopen(directory.path());
                let lost = PLUGINS.len() * ALL - opened.journal.figures().entries;
                // One of these takes 25 bytes at least.
                assert!(lost <= sector / 25 + 2, "{compacted}: {lost} runs lost with {sector} bytes at {from}");
                let other = opened.journal.of_cluster(&"other".into());
                assert!(other.is_err(), "the cluster is lost with {sector} bytes at {from}");
                drop(opened);
                assert_eq!(reopen(directory.path()).journal.figures().damaged, 0, "not repaired: {from}");
            }
        }
    }
}

#[test]
fn damage_while_the_journal_is_open_is_not_compacted_away() {
    let (directory, ends) = grown(&GROWN);
    let mut opened = reopen(directory.path());
    let path = directory.path().join("journal");
    let mut bytes = fs::read(&path).unwrap();
    bytes[ends[2] + 9] ^= 1;
    fs::write(&path, &bytes).unwrap();
    opened.store.rewrite(&opened.journal).unwrap_err();
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

#[test]
fn pods_are_not_reported_to_the_plugin_that_had_a_number_before() {
    let directory = tempfile::tempdir().unwrap();
    let plugin = |namespace: &'static str| {
        let plugin = entry::Plugin { namespace: Some(namespace.into()), name: "tidy".into(), absent_since: None };
        Entry::Plugin { number: 0, plugin: Some(plugin) }
    };
    let mut bytes = HEADER.to_vec();
    plugin("bank").append_to(&mut bytes).unwrap();
    // The entries of the plugin that had the number after it are damaged.
    let damaged = bytes.len();
    plugin("shop").append_to(&mut bytes).unwrap();
    plugin("shop").append_to(&mut bytes).unwrap();
    bytes[damaged..].fill(0);
    runs_entry(Number(0), &key(1)).append_to(&mut bytes).unwrap();
    fs::write(directory.path().join("journal"), &bytes).unwrap();
    let of_bank = PluginId { namespace: Some("bank".into()), name: "tidy".into() };
    let Opened { journal, recovery, .. } = reopen(directory.path());
    let _ = recovery.record_deletions(&journal, None, |_| Found::Absent);
    assert_eq!(journal.plugin_entries(&of_bank).pending_deletions(), []);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn changed_bytes_lose_at_most_the_entries_that_contain_them(
        entered in prop::collection::vec((0..PLUGINS.len(), 0..PODS, any::<bool>()), 1..30),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 1..=u8::MAX, 1..100_usize), 1..4),
    ) {
        // Each is written only if it changes something.
        let mut pairs = Pairs::new();
        let changed = |&(plugin, pod, enters): &Entered| match enters {
            true => pairs.insert((plugin, pod)),
            false => pairs.remove(&(plugin, pod)),
        };
        let entered: Vec<_> = entered.into_iter().filter(changed).collect();
        let (directory, ends) = grown(&entered);
        let path = directory.path().join("journal");
        let whole = fs::read(&path).unwrap();
        let mut bytes = whole.clone();
        let mut lost = BTreeSet::new();
        for (at, change, length) in changes {
            if entered.is_empty() {
                break;
            }
            let from = ends[0] + at.index(bytes.len() - ends[0]);
            for at in from..bytes.len().min(from + length) {
                bytes[at] = whole[at] ^ change;
                lost.insert(ends.iter().filter(|end| **end <= at).count() - 1);
            }
        }
        fs::write(&path, &bytes).unwrap();
        let kept = entered.iter().enumerate().filter(|(at, _)| !lost.contains(at)).map(|(_, entered)| entered);
        prop_assert_eq!(read(directory.path()), live(kept));
    }

    #[test]
    fn arbitrary_bytes_after_the_header_are_damage(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let directory = tempfile::tempdir().unwrap();
        let file = [&HEADER[..], &bytes].concat();
        fs::write(directory.path().join("journal"), file).unwrap();
        let opened = reopen(directory.path());
        prop_assert_eq!(opened.journal.figures().entries, 0);
    }
}
