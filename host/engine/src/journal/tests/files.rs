//! The journal on a real disk, with a directory per test.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use futures::FutureExt;
use tempfile::TempDir;

use crate::{frames::HEADER_BYTES, journal::*};

/// Returns the journal as a restart opens it.
pub(super) fn reopen(directory: &Path) -> Opened {
    open(directory, 0).unwrap()
}

pub(super) fn id(name: &str) -> PluginId {
    PluginId { namespace: Some("shop".into()), name: name.into() }
}

pub(super) fn key(number: usize) -> PodKey {
    PodKey::new("shop", &format!("cart-{number}"), &format!("00000000-0000-4000-8000-{number:012x}"))
}

/// Records a first run without waiting for the write.
pub(super) fn enter(entries: &PluginEntries, key: &PodKey) {
    let _ = entries.note(key);
}

pub(super) fn write(opened: &mut Opened) {
    opened.store.write(&opened.journal).unwrap();
}

/// Returns the pending deletions of a plugin after a restart, if no Pod is left.
pub(super) fn pending_deletions(directory: &Path, plugin: &str) -> Vec<PodKey> {
    let Opened { journal, recovery, .. } = reopen(directory);
    let _ = recovery.record_deletions(&journal, None, |_| Found::Absent);
    journal.plugin_entries(&id(plugin)).pending_deletions()
}

/// Returns a closed journal in which two plugins ran on Pods 0 and 1, and the first one settled on 0.
fn used() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut opened = reopen(directory.path());
    let [tidy, count] = ["tidy", "count"].map(|name| opened.journal.plugin_entries(&id(name)));
    for number in 0..2 {
        enter(&tidy, &key(number));
        enter(&count, &key(number));
    }
    tidy.settled(&key(0));
    write(&mut opened);
    directory
}

#[test]
fn a_restart_has_pending_deletions_of_the_plugins_that_ran() {
    let directory = used();
    assert_eq!(pending_deletions(directory.path(), "tidy"), [key(1)]);
    assert_eq!(pending_deletions(directory.path(), "count"), [key(0), key(1)]);
    assert_eq!(pending_deletions(directory.path(), "other"), []);
}

#[test]
fn deletions_are_pending_only_for_pods_missing_from_a_list() {
    let directory = used();
    for (namespace, held, pending) in
        [(None, Some(1), vec![key(0)]), (Some("shop"), None, vec![key(0), key(1)]), (Some("bank"), None, vec![])]
    {
        let Opened { journal, recovery, .. } = reopen(directory.path());
        let has = |uid: &str| held.is_some_and(|held| *uid == *key(held).uid);
        let found = |uid: &str| if has(uid) { Found::Cached } else { Found::Absent };
        assert_eq!(recovery.record_deletions(&journal, namespace, found), []);
        assert_eq!(journal.plugin_entries(&id("count")).pending_deletions(), pending, "{namespace:?} {held:?}");
        assert_eq!(journal.figures().entries, 3, "entries of Pods that exist are kept");
    }
}

#[test]
fn a_second_host_on_the_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let first = reopen(directory.path());
    let error = open(directory.path(), 0).unwrap_err();
    assert!(matches!(error, Error::Locked(_)), "{error}");
    assert!(error.to_string().contains(&directory.path().display().to_string()), "{error}");
    drop(first);
    reopen(directory.path());
}

#[test]
fn a_directory_that_cannot_be_made_is_an_error_that_names_it() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("file"), "").unwrap();
    let error = open(&directory.path().join("file/state"), 0).unwrap_err();
    assert!(matches!(&error, Error::Io { .. }) && error.to_string().contains("file/state"), "{error}");
}

#[test]
fn a_file_of_another_version_or_kind_is_renamed_and_replaced() {
    for (at, byte, aside) in [(6, 9, "journal.version-9"), (0, b'P', "journal.unreadable")] {
        let directory = used();
        let file = directory.path().join("journal");
        let mut bytes = fs::read(&file).unwrap();
        bytes[at] = byte;
        fs::write(&file, &bytes).unwrap();
        let mut opened = reopen(directory.path());
        assert_eq!(opened.journal.figures().entries, 0);
        assert_eq!(fs::read(directory.path().join(aside)).unwrap(), bytes);
        enter(&opened.journal.plugin_entries(&id("tidy")), &key(7));
        write(&mut opened);
        drop(opened);
        assert_eq!(pending_deletions(directory.path(), "tidy"), [key(7)]);
    }
}

#[test]
fn a_file_that_ends_within_its_header_is_begun_again() {
    for length in 0..HEADER_BYTES {
        let directory = used();
        let file = fs::OpenOptions::new().write(true).open(directory.path().join("journal")).unwrap();
        file.set_len(length as u64).unwrap();
        let mut opened = reopen(directory.path());
        enter(&opened.journal.plugin_entries(&id("tidy")), &key(7));
        write(&mut opened);
        drop(opened);
        assert_eq!(pending_deletions(directory.path(), "tidy"), [key(7)], "{length}");
    }
}

#[test]
fn a_long_journal_is_compacted_to_its_needed_entries() {
    let directory = tempfile::tempdir().unwrap();
    let mut opened = reopen(directory.path());
    let [tidy, count] = ["tidy", "count"].map(|name| opened.journal.plugin_entries(&id(name)));
    for number in 0..10 {
        enter(&count, &key(number));
    }
    for number in 0..6_000 {
        enter(&tidy, &key(number));
        if number >= 5 {
            tidy.settled(&key(number));
        }
        if number % 100 == 0 {
            write(&mut opened);
        }
    }
    write(&mut opened);
    // 12,010 entries of 140 bytes would be 1.6 MB; the file is rewritten after 8,222.
    let bytes = opened.journal.figures().bytes;
    assert!(bytes < 600_000, "{bytes}");
    assert_eq!(fs::metadata(directory.path().join("journal")).unwrap().len(), bytes);
    drop(opened);
    assert_eq!(pending_deletions(directory.path(), "tidy"), (0..5).map(key).collect::<Vec<_>>());
    assert_eq!(pending_deletions(directory.path(), "count"), (0..10).map(key).collect::<Vec<_>>());
}

#[test]
fn entries_of_an_unloaded_plugin_are_kept_for_a_week() {
    const DAY: u64 = 24 * 3_600 * 1_000;
    let directory = used();
    let absent = |now| reopen_at(directory.path(), now).journal.all_absent_but(&[id("count")], now);
    let start = |now| {
        let mut opened = reopen_at(directory.path(), now);
        let absent = opened.journal.all_absent_but(&[id("count")], now);
        write(&mut opened);
        absent
    };
    assert_eq!(start(DAY), [(id("tidy"), 1)]);
    assert_eq!(start(5 * DAY), [(id("tidy"), 1)], "counted from the first start without it");
    assert_eq!(start(8 * DAY - 1), [(id("tidy"), 1)]);
    assert_eq!(absent(8 * DAY), []);
    // Entries that were not written are kept; and a plugin that is loaded again starts from nothing.
    let mut opened = reopen_at(directory.path(), 7 * DAY);
    assert_eq!(opened.journal.plugin_entries(&id("tidy")).number(), Number(0));
    write(&mut opened);
    drop(opened);
    assert_eq!(start(30 * DAY), [(id("tidy"), 1)]);
    assert_eq!(start(37 * DAY), []);
    assert_eq!(
        (pending_deletions(directory.path(), "tidy"), pending_deletions(directory.path(), "count").len()),
        (vec![], 2)
    );
    // The number is reused for another plugin, which gets none of the entries.
    let opened = reopen(directory.path());
    let other = opened.journal.plugin_entries(&id("other"));
    let _ = opened.recovery.record_deletions(&opened.journal, None, |_| Found::Absent);
    assert_eq!((other.number(), other.pending_deletions()), (Number(0), vec![]));
}

fn reopen_at(directory: &Path, now_millis: u64) -> Opened {
    open(directory, now_millis).unwrap()
}

#[test]
fn an_unloaded_plugin_gets_the_deletions_when_it_is_back() {
    let directory = tempfile::tempdir().unwrap();
    let opened = reopen(directory.path());
    enter(&opened.journal.plugin_entries(&id("tidy")), &key(1));
    opened.journal.absent(&id("tidy"), 0);
    assert_eq!(opened.journal.gone(&key(1)), [Number(0)]);
    assert_eq!(opened.journal.gone(&key(2)), []);
    assert_eq!(opened.journal.plugin_entries(&id("tidy")).pending_deletions(), [key(1)]);
}

#[tokio::test]
async fn a_failing_disk_is_logged_once_and_entries_are_written_later() {
    let directory = tempfile::tempdir().unwrap();
    let mut opened = reopen(directory.path());
    let entries = opened.journal.plugin_entries(&id("tidy"));
    // A read-only handle simulates a full disk.
    let good = opened.store.replace_file(fs::File::open(directory.path().join("journal")).unwrap());
    let pod = key(0);
    let mut first = Box::pin(entries.enter(&pod));
    assert!(first.as_mut().now_or_never().is_none(), "it waits to be written");
    for _ in 0..2 {
        let error = opened.store.write(&opened.journal).unwrap_err();
        opened.journal.failed(&error.to_string());
    }
    assert!(first.now_or_never().is_some() && opened.journal.figures().failing, "runs continue");
    assert!(entries.enter(&key(1)).now_or_never().is_some(), "at once");
    opened.store.replace_file(good);
    write(&mut opened);
    assert!(!opened.journal.figures().failing);
    drop(opened);
    assert_eq!(pending_deletions(directory.path(), "tidy"), [key(0), key(1)]);
}

#[test]
fn a_tenant_leaves_others_half_of_the_buffer_of_a_silent_disk() {
    let directory = tempfile::tempdir().unwrap();
    let mut opened = reopen(directory.path());
    let of = |namespace: &str| PluginId { namespace: Some(namespace.into()), name: "tidy".into() };
    let [shop, bank] = ["shop", "bank"].map(|namespace| opened.journal.plugin_entries(&of(namespace)));
    opened.journal.failed("a full disk");
    let mut number = 0;
    while opened.journal.figures().dropped_entries == 0 {
        enter(&shop, &key(number));
        number += 1;
    }
    let there = opened.journal.figures().entries;
    enter(&bank, &key(number));
    assert_eq!(opened.journal.figures().entries, there + 1);
    write(&mut opened);
    assert!(shop.note(&key(number + 1)).is_some(), "after a write that succeeded");
}

#[test]
fn pending_entries_are_bounded_and_recorded_by_a_later_run() {
    let directory = tempfile::tempdir().unwrap();
    let mut opened = reopen(directory.path());
    let entries = opened.journal.plugin_entries(&id("tidy"));
    opened.journal.failed("a full disk");
    let mut number = 0;
    while opened.journal.figures().dropped_entries == 0 {
        enter(&entries, &key(number));
        number += 1;
    }
    assert!((25_000..50_000).contains(&number), "{number}");
    assert_eq!(opened.journal.figures().entries, number - 1);
    write(&mut opened);
    enter(&entries, &key(number - 1));
    write(&mut opened);
    assert_eq!(opened.journal.figures().entries, number);
    drop(opened);
    assert_eq!(pending_deletions(directory.path(), "tidy").len(), number);
}

#[tokio::test]
async fn a_run_on_a_recorded_pod_neither_writes_nor_waits() {
    let directory = tempfile::tempdir().unwrap();
    let mut opened = reopen(directory.path());
    let entries = opened.journal.plugin_entries(&id("tidy"));
    enter(&entries, &key(0));
    write(&mut opened);
    let bytes = opened.journal.figures().bytes;
    assert!(entries.enter(&key(0)).now_or_never().is_some());
    assert!(opened.journal.due().now_or_never().is_none());
    assert_eq!(opened.journal.figures().bytes, bytes);
}

#[test]
fn a_journal_keeps_its_first_cluster_and_refuses_another_one() {
    let [one, other]: [Arc<str>; 2] = ["one", "other"].map(Arc::from);
    let directory = used();
    let mut opened = reopen(directory.path());
    assert_eq!(opened.journal.of_cluster(&one), Ok(()));
    write(&mut opened);
    drop(opened);
    // The number is in the file, also after a rewrite, although this process did not assign it.
    let mut opened = reopen(directory.path());
    assert!(opened.journal.of_cluster(&other).is_err());
    opened.store.compact_now(&opened.journal);
    drop(opened);
    let opened = reopen(directory.path());
    assert!(opened.journal.of_cluster(&other).is_err());
    assert_eq!(opened.journal.of_cluster(&one), Ok(()));
    let refused = opened.journal.of_cluster(&other).unwrap_err();
    assert_eq!((&refused.noted, &refused.present), (&one, &other));
    let text = refused.to_string();
    assert!(text.contains("uid one") && text.contains("API server other"), "{text}");
}

#[test]
fn an_unreadable_journal_is_not_replaced_by_its_readable_part() {
    let directory = used();
    let mut opened = reopen(directory.path());
    let file = directory.path().join("journal");
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() - 9]).unwrap();
    opened.store.rewrite(&opened.journal).unwrap_err();
    assert_eq!(fs::read(&file).unwrap(), whole[..whole.len() - 9]);
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn only_the_hosts_user_can_read_the_files() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("above/state");
    let mut opened = reopen(&directory);
    enter(&opened.journal.plugin_entries(&id("tidy")), &key(1));
    write(&mut opened);
    let modes = || ["", "journal", "lock"].map(|name| mode(&directory.join(name)));
    assert_eq!((mode(&root.path().join("above")), modes()), (0o700, [0o700, 0o600, 0o600]));
    // Left by an earlier version.
    for name in ["journal", "lock", "journal.next"] {
        fs::write(directory.join("journal.next"), "").unwrap();
        fs::set_permissions(directory.join(name), Permissions::from_mode(0o664)).unwrap();
    }
    opened.store.compact_now(&opened.journal);
    assert_eq!(modes()[1], 0o600);
    fs::set_permissions(directory.join("journal"), Permissions::from_mode(0o644)).unwrap();
    drop(opened);
    assert_eq!(pending_deletions(&directory, "tidy"), [key(1)]);
    assert_eq!(modes(), [0o700, 0o600, 0o600]);
}

#[test]
fn no_file_is_written_through_a_link() {
    for name in ["journal", "lock", "journal.next"] {
        for target in ["important", "missing"] {
            let directory = used();
            let link = directory.path().join(name);
            let target = directory.path().join(target);
            let _ = fs::remove_file(&link);
            fs::write(directory.path().join("important"), "text").unwrap();
            symlink(&target, &link).unwrap();
            match open(directory.path(), 0) {
                Ok(mut opened) => {
                    assert_eq!(name, "journal.next");
                    opened.store.compact_now(&opened.journal);
                    assert!(!fs::symlink_metadata(directory.path().join("journal")).unwrap().is_symlink());
                }
                Err(error) => assert!(error.to_string().contains(name), "{error}"),
            }
            assert_eq!(fs::read_to_string(directory.path().join("important")).unwrap(), "text", "{name}");
            assert!(!directory.path().join("missing").exists(), "{name}");
        }
    }
}

#[test]
fn a_journal_that_became_a_link_is_not_read() {
    let directory = used();
    let mut opened = open(directory.path(), 0).unwrap();
    let journal = directory.path().join("journal");
    let moved = directory.path().join("moved");
    fs::rename(&journal, &moved).unwrap();
    symlink(&moved, &journal).unwrap();
    assert!(opened.store.rewrite(&opened.journal).is_err());
    assert!(fs::symlink_metadata(&journal).unwrap().is_symlink());
}

#[test]
fn a_file_that_is_none_is_an_error_at_once() {
    for name in ["journal", "lock"] {
        let directory = tempfile::tempdir().unwrap();
        let _ = std::os::unix::net::UnixListener::bind(directory.path().join(name)).unwrap();
        let error = open(directory.path(), 0).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn deletions_are_not_passed_to_the_next_plugin_of_a_number() {
    let directory = used();
    let Opened { journal, recovery, .. } = reopen(directory.path());
    let _ = recovery.record_deletions(&journal, None, |_| Found::Absent);
    let number = journal.plugin_entries(&id("count")).number();
    assert_eq!(journal.plugin_entries(&id("count")).pending_deletions().len(), 2);
    // As after a week without the plugin.
    journal.state.lock().set_plugin(Some(number), None);
    let other = journal.plugin_entries(&id("other"));
    assert_eq!((other.number(), other.pending_deletions()), (number, vec![]));
}

#[test]
fn a_tenant_that_rotates_plugin_names_keeps_entries_of_100_of_them() {
    let directory = tempfile::tempdir().unwrap();
    let opened = reopen(directory.path());
    let journal = &opened.journal;
    let quiet = journal.plugin_entries(&PluginId { namespace: Some("bank".into()), name: "quiet".into() });
    enter(&quiet, &key(0));
    journal.absent(&quiet.id, 0);
    for number in 0..1_000 {
        let plugin = journal.plugin_entries(&id(&format!("p{number}")));
        enter(&plugin, &key(0));
        enter(&plugin, &key(1));
        journal.absent(&plugin.id, number);
        journal.absent(&journal.plugin_entries(&id("ran-on-nothing")).id, number);
        // A run that was under way at the unload leaves nothing in the entries of the number's next plugin.
        let unloaded = journal.plugin_entries(&id("short"));
        let next = id("next");
        journal.absent(&unloaded.id, number);
        let next = journal.plugin_entries(&next);
        enter(&next, &key(2));
        enter(&unloaded, &key(3));
        unloaded.gone(&key(2));
        unloaded.settled(&key(2));
        assert_eq!((unloaded.number, next.pending_deletions()), (next.number, vec![]));
        next.settled(&key(2));
        journal.absent(&next.id, number);
    }
    assert_eq!(journal.figures().entries, 2 * 100 + 1);
    assert!(journal.state.lock().plugins.len() <= 103, "numbers are used again");
    assert_eq!(journal.gone(&key(0)).len(), 101);
    assert_eq!(journal.figures().pending_deletions, 101);
    assert_eq!(journal.plugin_entries(&quiet.id).pending_deletions(), [key(0)]);
    assert_eq!(journal.plugin_entries(&id("p999")).pending_deletions(), [key(0)]);
}

#[test]
fn unloaded_plugins_have_250000_pending_deletions_in_a_namespace() {
    let directory = tempfile::tempdir().unwrap();
    let opened = reopen(directory.path());
    let journal = &opened.journal;
    const PODS: usize = MAX_ABSENT_DELETIONS / 2 + 1;
    for (since, name) in ["first", "second"].into_iter().enumerate() {
        let plugin = journal.plugin_entries(&id(name));
        let mut state = journal.state.lock();
        (0..PODS).for_each(|pod| _ = state.pairs.insert(plugin.number, PackedUid::pack(&key(pod).uid)));
        drop(state);
        journal.absent(&plugin.id, since as u64);
    }
    (0..PODS).for_each(|pod| _ = journal.gone(&key(pod)));
    assert_eq!(journal.figures().pending_deletions, PODS);
    assert_eq!(journal.plugin_entries(&id("first")).pending_deletions(), []);
    assert_eq!(journal.plugin_entries(&id("second")).pending_deletions().len(), PODS);
}

#[test]
fn entries_of_an_unloaded_plugin_expire_while_the_host_runs() {
    let directory = tempfile::tempdir().unwrap();
    let opened = reopen(directory.path());
    let plugins = ["first", "second"].map(|name| opened.journal.plugin_entries(&id(name)));
    for (plugin, now) in plugins.iter().zip([0, KEEP_ABSENT_MILLIS]) {
        enter(plugin, &key(1));
        opened.journal.absent(&plugin.id, now);
    }
    assert_eq!(opened.journal.gone(&key(1)), [plugins[1].number]);
}
