//! Claims about items that rest between two jobs.

use super::*;
use crate::queue::Why;

const REST: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Resting;

impl Claims<u8> for Resting {
    fn claim(&self, _: u8) -> Claim {
        Claim { tenant: 1, bytes: 1 }
    }

    fn rest(&self, _: u8) -> Duration {
        REST
    }
}

fn resting() -> TestQueue {
    queue().within(MemoryBudget::new(1 << 30), Arc::new(Resting))
}

#[tokio::test(start_paused = true)]
async fn an_item_is_due_at_once_and_then_once_for_all_changes_of_a_rest() {
    let queue = resting();
    queue.add([(1, "web", 7)]);
    let job = now(&queue).await.unwrap();
    queue.add([(1, "web", 7)]);
    queue.done(&job, Next::Settled);
    for _ in 0..9 {
        advance(SECOND).await;
        queue.add([(1, "web", 7)]);
        assert_eq!(now(&queue).await, None);
    }
    advance(SECOND).await;
    let job = now(&queue).await.unwrap();
    queue.done(&job, Next::Settled);
    advance(REST).await;
    assert_eq!(now(&queue).await, None, "nothing has asked for it");
    queue.add([(1, "web", 7)]);
    assert!(now(&queue).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn an_item_that_has_ended_does_not_rest_unless_it_was_added_again() {
    let queue = resting();
    queue.add([(1, "web", 7)]);
    let job = now(&queue).await.unwrap();
    queue.done(&job, Next::Settled);
    assert_eq!(queue.kept(1), 1);
    queue.add([(1, "web", 7)]);
    advance(REST).await;
    let job = now(&queue).await.unwrap();
    queue.add([(1, "web", 7)]);
    assert_eq!(queue.done(&job, Next::Ended), Done::Kept);
    assert_eq!(now(&queue).await, None);
    advance(REST).await;
    let job = now(&queue).await.unwrap();
    assert_eq!((queue.done(&job, Next::Ended), queue.kept(1)), (Done::Forgotten, 0));
}

#[tokio::test(start_paused = true)]
async fn a_start_without_a_run_costs_no_rest_and_a_load_does_not_wait() {
    let queue = resting();
    queue.add([(1, "web", 7)]);
    let job = now(&queue).await.unwrap();
    queue.done(&job, Next::Postponed(SECOND));
    advance(SECOND).await;
    let job = now(&queue).await.unwrap();
    queue.done(&job, Next::Settled);
    queue.add([(1, "web", 7)]);
    assert_eq!(now(&queue).await, None);
    queue.add_because([(1, "web", 7, Why::LOAD)], false);
    assert!(now(&queue).await.is_some(), "another version was loaded");
}
