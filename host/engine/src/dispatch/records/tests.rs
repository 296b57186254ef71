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
    }
}

fn bytes(ring: &Ring) -> usize {
    ring.latest(usize::MAX, |_| true).iter().map(|record| record.bytes()).sum()
}

#[test]
fn a_noisy_tenant_displaces_only_its_own_records() {
    let mut records = Records::default();
    let [quiet, noisy] = [1, 2].map(|tenant| records.ring(tenant));
    quiet.add(run("quiet", None));
    quiet.add(run("quiet", Some("late")));
    (0..10_000).for_each(|at| noisy.add(run("noisy", (at % 2 == 0).then_some("again"))));
    assert_eq!(quiet.latest(9, |_| true).len(), 2);
    assert!((TENANT_BYTES * 9 / 10..=TENANT_BYTES).contains(&bytes(&noisy)), "{} bytes", bytes(&noisy));
    let numbers: Vec<_> = noisy.latest(4, |_| true).iter().map(|record| record.number).collect();
    assert_eq!(numbers, [10_002, 10_001, 10_000, 9_999], "the latest are kept");
}

#[test]
fn failed_runs_are_kept_longest_up_to_half_of_the_bytes() {
    let mut records = Records::default();
    let ring = records.ring(1);
    ring.add(run("plugin", Some("the first failure")));
    ring.add(RunRecord { unsettled: true, ..run("plugin", None) });
    (0..10_000).for_each(|_| ring.add(run("plugin", None)));
    let failures = ring.latest(9, RunRecord::is_failure);
    assert_eq!(failures.iter().map(|record| record.number).collect::<Vec<_>>(), [2, 1]);
    (0..10_000).for_each(|_| ring.add(run("plugin", Some("again"))));
    let of_failures: usize = ring.latest(usize::MAX, RunRecord::is_failure).iter().map(|record| record.bytes()).sum();
    assert!((TENANT_BYTES * 4 / 10..=TENANT_BYTES / 2).contains(&of_failures), "{of_failures} bytes of failures");
    assert!(ring.latest(9, |record| !record.is_failure()).len() == 9, "other runs keep the other half");
}

#[test]
fn the_records_of_all_tenants_stay_within_the_bytes_of_the_host() {
    let mut records = Records::default();
    let fill = |ring: &Ring| (0..300).for_each(|_| ring.add(run("plugin", None)));
    (0..1_000).for_each(|tenant| fill(&records.ring(tenant)));
    let total: usize = records.all().0.iter().map(|ring| bytes(ring)).sum();
    assert!((HOST_BYTES * 8 / 10..=HOST_BYTES).contains(&total), "{total} bytes");
    records.retain(&BTreeSet::from([7]));
    let ring = records.find(7).unwrap();
    fill(&ring);
    assert!(bytes(&ring) > TENANT_BYTES * 9 / 10, "a tenant that is left has its whole ring again");
    assert!(records.find(8).is_none());
}

#[test]
fn a_record_of_the_largest_texts_is_small() {
    let writes = RunWrites::new(&Subject::Deleted(None), 0);
    let text = "\u{1f980}".repeat(10_000);
    let report = |id| WriteReport { id, description: text.clone(), result: WriteResult::Invalid(text.clone()) };
    writes.note(&(0..50).map(report).collect::<Vec<_>>());
    let (listed, count, _) = writes.take_results();
    assert_eq!((listed.len(), count), (WRITES, 50));
    let record = RunRecord { writes: listed, ..run("plugin", Some(&cut(&text))) };
    assert!(record.bytes() < 12 << 10, "{} bytes", record.bytes());
}
