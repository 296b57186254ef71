use podium_vocabulary::WriteResult;

use super::*;
use crate::ports::{FailureKind, Subject};

/// A run of a plugin of this name, with an error or without.
fn run(plugin: &str, error: Option<&str>) -> RunRecord {
    let result = match error {
        None => Ok(Outcome::Settled),
        Some(message) => Err(Failure { kind: FailureKind::Retry, message: message.to_owned() }),
    };
    RunRecord {
        number: 0,
        plugin: PluginId { namespace: Some("shop".into()), name: plugin.into() },
        pod: PodKey::new("shop", "cart", "1"),
        group: None,
        why: Why::default(),
        deleted: false,
        attempt: 1,
        read: Revision(1),
        wrote: Revision(0),
        waited: Duration::ZERO,
        took: Duration::ZERO,
        ended: Instant::now(),
        usage: Usage::default(),
        result,
        unsettled: false,
        writes: Vec::new(),
        unlisted: 0,
        stopped: Vec::new(),
        trace: None,
    }
}

/// The id of the only plugin of a tenant.
fn id(tenant: u32) -> PluginId {
    PluginId { namespace: Some(tenant.to_string().into()), name: "plugin".into() }
}

fn bytes(ring: &Ring) -> usize {
    ring.latest(usize::MAX, |_| true).iter().map(|record| record.bytes()).sum()
}

#[test]
fn a_noisy_tenant_displaces_only_its_own_records() {
    let mut records = Records::default();
    let [quiet, noisy] = [1, 2].map(|tenant| records.book(&id(tenant)));
    quiet.add(run("quiet", None));
    quiet.add(run("quiet", Some("late")));
    (0..10_000).for_each(|at| drop(noisy.add(run("noisy", (at % 2 == 0).then_some("again")))));
    assert_eq!(quiet.ring.latest(9, |_| true).len(), 2);
    assert!((TENANT_BYTES * 9 / 10..=TENANT_BYTES).contains(&bytes(&noisy.ring)), "{} bytes", bytes(&noisy.ring));
    let numbers: Vec<_> = noisy.ring.latest(4, |_| true).iter().map(|record| record.number).collect();
    assert_eq!(numbers, [10_002, 10_001, 10_000, 9_999], "the latest are kept");
}

#[test]
fn failed_runs_are_kept_longest_up_to_half_of_the_bytes() {
    let mut records = Records::default();
    let ring = records.book(&id(1));
    ring.add(run("plugin", Some("the first failure")));
    ring.add(RunRecord { unsettled: true, ..run("plugin", None) });
    (0..10_000).for_each(|_| drop(ring.add(run("plugin", None))));
    let failures = ring.ring.latest(9, RunRecord::is_failure);
    assert_eq!(failures.iter().map(|record| record.number).collect::<Vec<_>>(), [2, 1]);
    (0..10_000).for_each(|_| drop(ring.add(run("plugin", Some("again")))));
    let of_failures: usize =
        ring.ring.latest(usize::MAX, RunRecord::is_failure).iter().map(|record| record.bytes()).sum();
    assert!((TENANT_BYTES * 4 / 10..=TENANT_BYTES / 2).contains(&of_failures), "{of_failures} bytes of failures");
    assert!(ring.ring.latest(9, |record| !record.is_failure()).len() == 9, "other runs keep the other half");
}

#[test]
fn the_records_of_all_tenants_stay_within_the_bytes_of_the_host() {
    let mut records = Records::default();
    let fill = |book: &Book, runs| (0..runs).for_each(|_| drop(book.add(run("plugin", None))));
    (0..1_000).for_each(|tenant| fill(&records.book(&id(tenant)), 300));
    (0..1_000).for_each(|tenant| fill(&records.book(&id(tenant)), 1));
    let total: usize = records.all().0.iter().map(|ring| bytes(ring)).sum();
    assert!((HOST_BYTES * 8 / 10..=HOST_BYTES).contains(&total), "{total} bytes");
    (0..1_000).filter(|tenant| *tenant != 7).for_each(|tenant| drop(records.forget(&id(tenant)).unwrap()));
    let book = records.book(&id(7));
    fill(&book, 300);
    assert!(bytes(&book.ring) > TENANT_BYTES * 9 / 10, "a tenant that is left has its whole ring again");
    assert!(records.find(&id(8)).is_none());
}

#[test]
fn a_run_is_the_last_one_only_if_none_after_it_was_displaced() {
    let mut records = Records::default();
    let book = records.book(&id(1));
    let last = |of: &str| book.ring.last(|run| *run.plugin.name == *of).map(|run| run.number);
    assert_eq!(last("a"), Err(0));
    book.add(run("a", Some("a failure")));
    (0..100).for_each(|_| drop(book.add(run("a", None))));
    assert_eq!(last("a"), Ok(101));
    // Good runs of others displace those, and the older failure stays.
    (0..200).for_each(|_| drop(book.add(run("b", None))));
    assert_eq!(last("b"), Ok(301));
    let displaced = last("a").unwrap_err();
    assert!((101..300).contains(&displaced), "{displaced}");
    assert!(book.ring.latest(1, |run| *run.plugin.name == *"a")[0].is_failure());
    // Failures displace a later failure.
    book.add(run("c", None));
    book.add(run("c", Some("the last")));
    assert_eq!(last("c"), Ok(303));
    (0..200).for_each(|_| drop(book.add(run("d", Some("again")))));
    assert!(last("c").unwrap_err() >= 303);
}

#[test]
fn a_plugin_of_a_name_that_was_used_before_inherits_no_records() {
    let mut records = Records::default();
    let [before, other] = ["a", "b"].map(|name| PluginId { name: name.into(), ..id(1) });
    let late = records.book(&before);
    let stays = records.book(&other);
    for (name, error) in [("a", None), ("a", Some("no")), ("b", None)] {
        late.add(RunRecord { plugin: PluginId { name: name.into(), ..id(1) }, ..run(name, error) });
    }
    records.forget(&before).unwrap().remove(&before);
    let after = records.book(&before);
    late.add(run("a", None));
    let names = || stays.ring.latest(9, |_| true).iter().map(|run| run.plugin.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(), ["b"], "also none of a run that ends later");
    let counted = stays.ring.inner.lock().others.bytes;
    assert_eq!(counted, bytes(&stays.ring));
    after.add(run("a", None));
    assert_eq!(names(), ["a", "b"]);
}

#[test]
fn a_record_of_the_largest_texts_is_small() {
    let writes = RunWrites::new(&Subject::Deleted(None), 0);
    let text = "\u{1f980}".repeat(10_000);
    let report = |id| WriteReport { id, description: text.clone(), result: WriteResult::Invalid(text.clone()) };
    writes.note(&(0..50).map(report).collect::<Vec<_>>());
    let (listed, count, _) = writes.take_results();
    assert_eq!((listed.len(), count), (WRITES, 50));
    let mut message = text;
    cut(&mut message);
    let record = RunRecord { writes: listed, ..run("plugin", Some(&message)) };
    assert!(record.bytes() < 12 << 10, "{} bytes", record.bytes());
}
