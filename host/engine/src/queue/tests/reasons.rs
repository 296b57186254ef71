//! The reasons of jobs, and where items wait.

use podium_wire::{Section, SectionSet};

use super::*;

fn changed(section: Section) -> Why {
    Why::changed(SectionSet::EMPTY.with(section).with(Section::Full))
}

#[tokio::test(start_paused = true)]
async fn a_job_has_the_reasons_of_all_additions_that_it_answers() {
    let queue: Queue<u8, &str, u8> = Queue::new(Backoff::default(), 4, 1);
    let add = |why| queue.add_because([(1, "cart", 7, why)], true);
    add(changed(Section::Labels));
    add(changed(Section::Status));
    let job = queue.next().await.unwrap();
    assert_eq!(job.why.names(), ["labels", "status"]);
    add(changed(Section::Spec));
    queue.done(&job, Next::Failed);
    let job = queue.next().await.unwrap();
    assert_eq!(job.why.names(), ["labels", "spec", "status", "retry"], "a retry answers what the failed run did not");
    queue.done(&job, Next::Postponed(Duration::ZERO));
    let job = queue.next().await.unwrap();
    assert_eq!(job.why.names(), ["labels", "spec", "status", "retry"]);
    add(changed(Section::Labels));
    queue.done(&job, Next::Settled);
    let job = queue.next().await.unwrap();
    assert_eq!(job.why.names(), ["labels"], "what came during a run that settled");
    queue.done(&job, Next::After(Duration::from_secs(1)));
    let job = queue.next().await.unwrap();
    assert_eq!(job.why.names(), ["requeue"]);
    queue.done(&job, Next::Settled);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_ends_a_delay_adds_its_reason_to_what_is_not_answered() {
    let queue: Queue<u8, &str, u8> = Queue::new(Backoff::default(), 4, 1);
    let add = |why| queue.add_because([(1, "cart", 7, why)], true);
    add(changed(Section::Labels));
    for (next, why) in [
        (Next::Postponed(Duration::from_secs(5)), vec!["labels", "status"]),
        (Next::FailedFor(Duration::from_secs(5)), vec!["labels", "status", "retry"]),
        (Next::After(Duration::from_secs(5)), vec!["status"]),
        (Next::Again(Duration::from_secs(5)), vec!["status", "writes"]),
    ] {
        let job = queue.next().await.unwrap();
        queue.done(&job, next);
        add(changed(Section::Status));
        let due = queue.waiting(1, &"cart");
        assert_eq!((due[0].at, due[0].why.names()), (Place::Turn, why), "{next:?}");
    }
    // Also an event that came during the run.
    let job = queue.next().await.unwrap();
    add(changed(Section::Labels));
    queue.done(&job, Next::Again(Duration::from_secs(5)));
    assert_eq!(queue.waiting(1, &"cart")[0].why.names(), ["labels", "writes"]);
}

#[tokio::test(start_paused = true)]
async fn each_item_of_a_slot_says_where_it_waits() {
    let queue: Queue<u8, &str, u8> = Queue::new(Backoff::default(), 4, 1);
    let member = |lane, phase| Member { lane, group: 1, phase, after: Vec::new(), leads: false };
    queue.set_order(&[1], Order::new(&[member(1, 0), member(2, 1)]));
    let places = |lane| queue.waiting(lane, &"cart").into_iter().map(|of| (of.item, of.at)).collect::<Vec<_>>();
    queue.add_changed([(1, "cart", 7), (2, "cart", 7), (2, "cart", 8)]);
    let first = queue.next().await.unwrap();
    assert_eq!(places(1), [(7, Place::Running)]);
    let behind = [(7, Place::Behind(1, None)), (8, Place::BehindSlot)];
    assert_eq!(places(2), behind);
    assert!(futures::FutureExt::now_or_never(queue.next()).is_none());
    assert_eq!(places(2), behind, "also when it is parked");
    let due = Instant::now() + Duration::from_secs(5);
    queue.done(&first, Next::After(Duration::from_secs(5)));
    assert_eq!(places(1), [(7, Place::Delayed(due))]);
    assert_eq!(places(2), [(7, Place::Turn), (8, Place::BehindSlot)]);
    assert_eq!(places(3), []);
}
