//! A load returns exactly the Pods that were saved.

use std::{
    cell::Cell,
    ops::Range,
    os::unix::fs::{PermissionsExt, symlink},
};

use podium_encoding::{
    Scratch,
    testing::{pod_json as pod, written},
};
use podium_engine::frames::HEADER_BYTES;
use podium_vocabulary::Prune;
use podium_wire::Section;
use proptest::prelude::*;
use serde_json::json;
use tempfile::TempDir;

use super::*;

const REVISION: Revision = Revision(9_000);

/// Pods of three workloads in the order of their names, and one unshared Pod.
fn pods(pool: &Pool) -> Vec<Arc<CachedPod>> {
    let mut scratch = Scratch::default();
    let mut json: Vec<String> =
        (0..90).map(|at| written(&pod(at % 3, at as u64, ["Running", "Pending"][at % 2]))).collect();
    json.push(
        json!({"metadata": {"namespace": "shop", "name": "plain", "uid": "u", "resourceVersion": "7"}}).to_string(),
    );
    json.push(
        "{ \"spec\": {\"nodeName\": \"a\\u0062\"}, \"metadata\": \
        {\"namespace\":\"shop\",\"name\":\"odd\",\"uid\":\"o\",\"resourceVersion\":\"8\"}}"
            .to_owned(),
    );
    let read = |json: String| CachedPod::read(json.as_bytes(), pool, &mut scratch, |_, _| None).unwrap().0;
    let mut pods: Vec<_> = json.into_iter().map(read).map(Arc::new).collect();
    pods.sort_by(|one, other| one.key.cmp(&other.key));
    pods
}

fn coverage() -> Coverage {
    Coverage::new(None, &Prune::default())
}

fn saved(pods: &[Arc<CachedPod>]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    saver(&directory).save(pods.iter().cloned(), REVISION, 1, None).unwrap();
    directory
}

fn saver(directory: &TempDir) -> Saver {
    Saver::new(directory.path().to_owned(), coverage())
}

fn same(one: &CachedPod, other: &CachedPod) {
    assert_eq!(one, other);
    same_contents(one, other);
}

/// Compares Pods that may be packed differently.
fn same_contents(one: &CachedPod, other: &CachedPod) {
    assert_eq!((one.header(), one.node(), one.phase()), (other.header(), other.node(), other.phase()));
    for section in Section::ALL {
        assert_eq!(one.section_bytes(section), other.section_bytes(section), "{} of {}", section.name(), one.key);
    }
}

#[test]
fn loaded_pods_equal_the_saved_ones_and_share_texts() {
    let pool = Pool::new(1);
    let pods = pods(&pool);
    let directory = saved(&pods);
    let others = Pool::new(2);
    let loaded = load(directory.path(), &coverage(), &others).unwrap();
    assert_eq!((loaded.revision, loaded.pods.len()), (REVISION, pods.len()));
    for (pod, record) in pods.iter().zip(&loaded.pods) {
        same(pod, &record.pod());
    }
    // The unshared Pod was written compactly, and shares texts in this form.
    let texts = others.shared_texts();
    assert_eq!(texts, pool.shared_texts() + 2);
    let json = written(&pod(1, 1_000, "Running"));
    CachedPod::read(json.as_bytes(), &others, &mut Scratch::default(), |_, _| None).unwrap();
    assert_eq!(others.shared_texts(), texts);
}

#[test]
fn the_file_is_private_and_stores_shared_text_once() {
    let directory = saved(&pods(&Pool::new(1)));
    let file = fs::metadata(directory.path().join(FILE)).unwrap();
    assert_eq!(file.permissions().mode() & 0o777, 0o600);
    // Each Pod has 3 kB of JSON.
    assert!(file.len() < 90 * 600, "{} bytes", file.len());
}

#[test]
fn a_damaged_file_is_ignored() {
    let pool = Pool::new(1);
    let directory = saved(&pods(&pool)[..1]);
    let path = directory.path().join(FILE);
    let whole = fs::read(&path).unwrap();
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&path, bytes).unwrap();
        assert!(load(directory.path(), &coverage(), &pool).is_none(), "byte {at}");
        fs::write(&path, &whole[..at]).unwrap();
        assert!(load(directory.path(), &coverage(), &pool).is_none(), "cut at {at}");
    }
    fs::write(&path, whole).unwrap();
    assert!(load(directory.path(), &coverage(), &pool).is_some());
}

#[test]
fn without_changes_only_the_revision_is_written() {
    let pool = Pool::new(1);
    let pods = pods(&pool);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(FILE);
    let revision = || load(directory.path(), &coverage(), &pool).map(|loaded| (loaded.pods.len(), loaded.revision.0));
    let mut saver = saver(&directory);
    saver.save(pods[..2].iter().cloned(), Revision(10), 1, None).unwrap();
    let short = fs::metadata(&path).unwrap().len();
    for revision in [11, 12, 12] {
        saver.save(std::iter::empty(), Revision(revision), 1, None).unwrap();
    }
    assert_eq!(revision(), Some((2, 12)));
    let whole = fs::read(&path).unwrap();
    let end = (whole.len() as u64 - short) / 2;
    assert!((1..64).contains(&end), "{end} bytes");
    for at in short as usize..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        fs::write(&path, bytes).unwrap();
        assert_eq!(revision(), Some((2, if at < (short + end) as usize { 10 } else { 11 })), "byte {at}");
        fs::write(&path, &whole[..at]).unwrap();
        assert_eq!(revision(), Some((2, if at < (short + end) as usize { 10 } else { 11 })), "cut at {at}");
    }
    saver.save(pods.iter().cloned(), Revision(13), 2, None).unwrap();
    assert_eq!(revision(), Some((pods.len(), 13)));
}

#[test]
fn inconsistent_entries_with_correct_checksums_are_ignored() {
    let pool = Pool::new(1);
    let pods = pods(&pool);
    let of = Entry::Of { coverage: coverage(), cluster: None };
    let end = |pods| Entry::End { pods, revision: 1 };
    let key = || Entry::Text(Bytes(b"{}".to_vec()));
    let pod = |group, name: &str, own: &[u8]| Entry::Pod {
        group,
        name: name.to_owned(),
        uid: "u".to_owned(),
        revision: 1,
        own: Bytes(own.to_vec()),
    };
    let unshared = |at: usize| Entry::Whole(Bytes(pods[at].section_bytes(Section::Full).into_owned()));
    let full = |at: usize| pods[at].section_bytes(Section::Full).into_owned();
    let piece = |at, range: Range<usize>| Entry::Piece(Bytes(full(at)[range].to_vec()));
    let rest = |at, from: usize| Entry::Whole(Bytes(full(at)[from..].to_vec()));
    let cases = [
        (vec![], false),
        (vec![of.clone()], false),
        (vec![end(0)], false),
        (vec![of.clone(), of.clone(), end(0)], false),
        (vec![of.clone(), end(0)], true),
        (vec![of.clone(), end(1)], false),
        (vec![of.clone(), end(0), end(0)], true),
        (vec![of.clone(), Entry::Group([0, 0, 0]), end(0)], false),
        (vec![of.clone(), key(), Entry::Group([0, 0, 0]), end(0)], true),
        (vec![of.clone(), key(), Entry::Group([0, 0, 0]), pod(0, "a", &[0, 0]), end(1)], false),
        (vec![of.clone(), pod(0, "a", &[]), end(1)], false),
        (vec![of.clone(), unshared(0), unshared(1), end(2)], true),
        (vec![of.clone(), unshared(1), unshared(0), end(2)], false),
        (vec![of.clone(), unshared(0), unshared(0), end(2)], false),
        (vec![of.clone(), Entry::Whole(Bytes(b"[]".to_vec())), end(1)], false),
        (vec![of.clone(), piece(0, 0..9), piece(0, 9..20), rest(0, 20), end(1)], true),
        (vec![of.clone(), piece(0, 1..9), rest(0, 9), end(1)], false),
        (vec![of.clone(), piece(0, 0..9), end(0)], false),
        (vec![of.clone(), key(), piece(0, 0..9), Entry::Group([0, 0, 0]), rest(0, 9), end(1)], false),
    ];
    let directory = tempfile::tempdir().unwrap();
    for (entries, good) in cases {
        let mut bytes = FORMAT.header().to_vec();
        for entry in &entries {
            FORMAT.append(&podium_wire::encode(entry).unwrap(), &mut bytes).unwrap();
        }
        fs::write(directory.path().join(FILE), bytes).unwrap();
        assert_eq!(load(directory.path(), &coverage(), &pool).is_some(), good, "{entries:?}");
    }
}

/// A change of the entries of a checkpoint. Numbers are taken modulo the number of entries, bytes or bits.
#[derive(Debug, Clone)]
enum Damage {
    Flip { entry: usize, bit: usize },
    Insert { entry: usize, at: usize, byte: u8 },
    Cut { entry: usize, length: usize },
    Remove { entry: usize },
    Repeat { entry: usize },
    Swap { entry: usize, other: usize },
    End { entries: usize },
}

fn damage() -> impl Strategy<Value = Damage> {
    let any = || any::<usize>();
    prop_oneof![
        6 => (any(), any()).prop_map(|(entry, bit)| Damage::Flip { entry, bit }),
        2 => (any(), any(), prop::num::u8::ANY).prop_map(|(entry, at, byte)| Damage::Insert { entry, at, byte }),
        2 => (any(), any()).prop_map(|(entry, length)| Damage::Cut { entry, length }),
        1 => any().prop_map(|entry| Damage::Remove { entry }),
        1 => any().prop_map(|entry| Damage::Repeat { entry }),
        1 => (any(), any()).prop_map(|(entry, other)| Damage::Swap { entry, other }),
        1 => any().prop_map(|entries| Damage::End { entries }),
    ]
}

impl Damage {
    fn apply(&self, entries: &mut Vec<Vec<u8>>) {
        let number = |entry: usize, entries: &Vec<Vec<u8>>| entry % entries.len();
        match *self {
            _ if entries.is_empty() => {}
            Self::Flip { entry, bit } => {
                let at = number(entry, entries);
                let bit = bit % (8 * entries[at].len()).max(1);
                if let Some(byte) = entries[at].get_mut(bit / 8) {
                    *byte ^= 1 << (bit % 8);
                }
            }
            Self::Insert { entry, at, byte } => {
                let entry = number(entry, entries);
                let at = at % (entries[entry].len() + 1);
                entries[entry].insert(at, byte);
            }
            Self::Cut { entry, length } => {
                let at = number(entry, entries);
                let length = length % entries[at].len().max(1);
                entries[at].truncate(length);
            }
            Self::Remove { entry } => drop(entries.remove(number(entry, entries))),
            Self::Repeat { entry } => entries.push(entries[number(entry, entries)].clone()),
            Self::Swap { entry, other } => {
                let (one, other) = (number(entry, entries), number(other, entries));
                entries.swap(one, other);
            }
            Self::End { entries: left } => entries.truncate(number(left, entries)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// The checksums are those of the damaged entries, so that the entries themselves are decoded.
    #[test]
    fn a_damaged_checkpoint_is_refused_or_has_only_valid_pods(damages in prop::collection::vec(damage(), 1..4)) {
        let pool = Pool::new(1);
        let directory = saved(&pods(&pool));
        let path = directory.path().join(FILE);
        let file = fs::read(&path).unwrap();
        let mut frames = Frames::new(&file[HEADER_BYTES..], &FORMAT);
        let mut entries = Vec::new();
        while let Some(payload) = frames.read().unwrap() {
            entries.push(payload.to_vec());
        }
        damages.iter().for_each(|damage| damage.apply(&mut entries));
        let mut bytes = FORMAT.header().to_vec();
        entries.iter().for_each(|entry| FORMAT.append(entry, &mut bytes).unwrap());
        fs::write(&path, &bytes).unwrap();
        let mut json_bytes = 0;
        let loaded = load(directory.path(), &coverage(), &Pool::new(2));
        for record in loaded.into_iter().flat_map(|loaded| loaded.pods) {
            let pod = record.pod();
            let json = pod.section_bytes(Section::Full).into_owned();
            json_bytes += json.len();
            let (decoded, _) =
                CachedPod::read(&json, &Pool::new(3), &mut Scratch::default(), |_, _| None).unwrap();
            same_contents(&pod, &decoded);
        }
        prop_assert!(json_bytes < 100 * file.len(), "{json_bytes} bytes from {}", file.len());
    }
}

#[test]
fn a_checkpoint_of_other_pods_is_passed_over() {
    let pool = Pool::new(1);
    let directory = saved(&pods(&pool));
    let others = [
        Coverage::new(Some("shop"), &Prune::default()),
        Coverage::new(None, &Prune::NOTHING),
        Coverage::new(None, &Prune::annotations(["a".to_owned()])),
    ];
    for other in others {
        assert!(load(directory.path(), &other, &pool).is_none(), "{other:?}");
    }
    assert!(load(tempfile::tempdir().unwrap().path(), &coverage(), &pool).is_none(), "none is there");
    fs::write(directory.path().join(NEXT), "begun").unwrap();
    remove(directory.path()).unwrap();
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0, "each has whole Pods");
    remove(directory.path()).unwrap();
    assert!(load(directory.path(), &coverage(), &pool).is_none());
}

/// Pods with up to 12 MB of JSON each, as `<` in an environment variable makes them: one that only differs in its
/// name, one with its own large value, and an unshared one.
fn giants(pool: &Pool) -> Vec<Arc<CachedPod>> {
    let escaped = r"\u003c".repeat(2 << 20);
    let of = |name: &str, prefix: &str, note: &str| {
        format!(
            "{prefix}{{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"{name}\",\
            \"namespace\":\"shop\",\"uid\":\"{name}\",\"resourceVersion\":\"7\",\
            \"annotations\":{{\"note\":\"{note}\"}}}},\"spec\":{{\"containers\":[{{\"name\":\"c\",\"image\":\"i\",\
            \"env\":[{{\"name\":\"E\",\"value\":\"{escaped}\"}}]}}]}}}}"
        )
    };
    let json = [of("a-1", "", ""), of("a-2", "", ""), of("b", "", &escaped), of("c", " ", "")];
    let mut scratch = Scratch::default();
    json.map(|json| Arc::new(CachedPod::read(json.as_bytes(), pool, &mut scratch, |_, _| None).unwrap().0)).into()
}

#[test]
fn pods_of_any_size_are_saved_and_come_back() {
    let pool = Pool::new(1);
    let pods = giants(&pool);
    let directory = saved(&pods);
    let loaded = load(directory.path(), &coverage(), &Pool::new(2)).unwrap();
    assert_eq!(loaded.pods.len(), pods.len());
    for (pod, record) in pods.iter().zip(&loaded.pods) {
        assert!(**pod == *record.pod(), "{}", pod.key);
    }
}

#[test]
fn the_cluster_is_saved_where_it_is_known() {
    let directory = tempfile::tempdir().unwrap();
    for cluster in [None, Some("c1")] {
        let mut saver = saver(&directory);
        saver.save(std::iter::empty(), REVISION, 1, cluster).unwrap();
        let loaded = load(directory.path(), &coverage(), &Pool::new(1)).unwrap();
        assert_eq!(loaded.cluster.as_deref(), cluster);
    }
}

#[test]
fn a_checkpoint_that_cannot_be_written_leaves_the_old_one() {
    let pool = Pool::new(1);
    let directory = saved(&pods(&pool));
    // A directory at the target's path: the new file is written and cannot replace it.
    fs::remove_file(directory.path().join(FILE)).unwrap();
    fs::create_dir(directory.path().join(FILE)).unwrap();
    fs::write(directory.path().join(FILE).join("in the way"), "").unwrap();
    saver(&directory).save(pods(&pool).into_iter(), REVISION, 2, None).unwrap_err();
    assert_eq!(names(&directory), [FILE]);
}

#[test]
fn a_checkpoint_is_skipped_if_the_journal_would_lack_space() {
    let pool = Pool::new(1);
    let (small, large) = (pods(&pool), giants(&pool));
    let directory = saved(&small);
    let before = fs::read(directory.path().join(FILE)).unwrap();
    let save = |free: FreeSpace, pods: &[Arc<CachedPod>]| {
        saver(&directory).with_free(free).save(pods.iter().cloned(), REVISION, 2, None)
    };
    // Less than the reserve at the beginning, and after a part was written.
    let filling = |_: &Path| Ok(if NOT_YET_FULL.replace(false) { RESERVE } else { RESERVE - 1 });
    let frees: [(FreeSpace, &[_]); 2] = [(|_| Ok(RESERVE - 1), &small), (filling, &large)];
    for (free, pods) in frees {
        NOT_YET_FULL.set(true);
        let error = save(free, pods).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert!(error.to_string().contains("are free"), "{error}");
        assert_eq!(
            (names(&directory), fs::read(directory.path().join(FILE)).unwrap()),
            (vec![FILE.to_owned()], before.clone())
        );
    }
    // Twice the last file, if that is more than the reserve.
    saver(&directory).save(large.iter().cloned(), REVISION, 2, None).unwrap();
    save(|_| Ok(RESERVE * 2), &small).unwrap_err();
    save(|_| Ok(1 << 30), &small).unwrap();
}

thread_local! {
    static NOT_YET_FULL: Cell<bool> = const { Cell::new(true) };
}

fn names(directory: &TempDir) -> Vec<String> {
    let entries = fs::read_dir(directory.path()).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// If this fails, texts, values or entries have another meaning than before: increase [`podium_encoding::FORMAT`].
#[test]
fn a_checkpoint_of_this_version_looks_like_this() {
    let directory = saved(&pods(&Pool::new(1)));
    let file = fs::read(directory.path().join(FILE)).unwrap();
    assert_eq!((FORMAT.version, file.len(), crc32fast::hash(&file)), (7, 24_201, 3_063_076_437));
}

#[test]
fn a_checkpoint_is_neither_written_nor_read_through_a_link() {
    let (directory, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let other = elsewhere.path().join("other");
    fs::write(&other, "text").unwrap();
    let pool = Pool::new(7);
    symlink(&other, directory.path().join(NEXT)).unwrap();
    let mut saver = Saver::new(directory.path().to_owned(), coverage());
    saver.save(pods(&pool).into_iter(), REVISION, 1, None).unwrap();
    assert_eq!(fs::read_to_string(&other).unwrap(), "text");
    assert!(load(directory.path(), &coverage(), &pool).is_some());
    // A file that others could read is not written on.
    fs::write(directory.path().join(NEXT), "").unwrap();
    fs::set_permissions(directory.path().join(NEXT), fs::Permissions::from_mode(0o644)).unwrap();
    saver.save(pods(&pool).into_iter(), REVISION, 2, None).unwrap();
    let saved = directory.path().join(FILE);
    assert_eq!(fs::metadata(&saved).unwrap().permissions().mode() & 0o777, 0o600);
    fs::rename(&saved, &other).unwrap();
    symlink(&other, &saved).unwrap();
    assert!(load(directory.path(), &coverage(), &pool).is_none());
}
