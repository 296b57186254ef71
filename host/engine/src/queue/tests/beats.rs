//! Claims about the key of the host's own, which shows that workers come for keys.

use super::*;

const HOLD: Duration = Duration::from_secs(2);
const SECOND: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Holding;

impl Claims<u8> for Holding {
    fn claim(&self, lane: u8) -> Claim {
        Claim { tenant: lane.into(), bytes: 1 }
    }

    fn hold(&self, _: u8) -> Duration {
        HOLD
    }
}

/// Returns a queue of two workers, both of which have a run.
async fn held() -> (TestQueue, [Job<u8, &'static str, u32>; 2]) {
    let queue = queue().shared(Occupancy::new(2)).within(MemoryBudget::new(1 << 30), Arc::new(Holding));
    queue.add([(1, "web", 7), (2, "web", 7)]);
    let first = now(&queue).await.unwrap();
    queue.ran(&first, Duration::ZERO);
    queue.done(&first, Next::Settled);
    // The last worker is kept for a tenant whose runs are short.
    let second = now(&queue).await.unwrap();
    queue.add([(first.lane, "web", 7)]);
    let third = now(&queue).await.unwrap();
    assert_ne!(second.lane, third.lane);
    (queue, [second, third])
}

#[tokio::test(start_paused = true)]
async fn a_beat_is_late_if_no_worker_came_since_the_one_before() {
    let queue = queue();
    assert!(!queue.beat());
    assert!(queue.beat() && queue.beat());
    assert_eq!(now(&queue).await, None, "it is no job");
    assert!(!queue.beat());
    assert!(queue.beat());
    queue.add([(1, "web", 7)]);
    let job = now(&queue).await.unwrap();
    assert!(!queue.beat(), "a worker that takes a key has come");
    queue.done(&job, Next::Settled);
    assert!(queue.beat());
    assert!(queue.is_idle() && queue.tenants().values().all(|of| of.waiting == 0));
    queue.close();
    assert!(!queue.beat() && !queue.beat(), "no worker comes any more");
}

#[tokio::test(start_paused = true)]
async fn a_beat_wakes_a_worker_that_sleeps() {
    let queue = Arc::new(queue());
    let sleeping = queue.clone();
    let worker = tokio::spawn(async move { sleeping.next().await });
    for _ in 0..3 {
        tokio::time::sleep(SECOND).await;
        assert!(!queue.beat());
    }
    worker.abort();
    assert!(worker.await.unwrap_err().is_cancelled());
    assert!(queue.beat());
}

#[tokio::test(start_paused = true)]
async fn no_beat_is_late_while_a_run_may_still_hold_the_last_worker() {
    let (queue, [older, _]) = held().await;
    assert!(!queue.beat());
    advance(HOLD + Duration::from_secs(59)).await;
    assert!(!queue.beat(), "it may have waited for 60 s");
    advance(SECOND).await;
    assert!(queue.beat());
    queue.ran(&older, SECOND);
    assert!(queue.beat(), "its worker has not come");
    assert_eq!(now(&queue).await, None);
    assert!(!queue.beat());
}
