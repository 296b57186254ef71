//! Ingest loop, queue and workers on several threads, with Pods that are created and deleted while runs on them are
//! under way.

use std::collections::HashMap;

use parking_lot::Mutex;
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::*;

/// The number of Pods; `just test-deletions` uses more.
const PODS: usize = 10_000;
/// The number of Pods at a time.
const ALIVE: usize = 200;
const WORKERS: usize = 4;
/// Without progress for this long, a delivery is lost.
const STANDSTILL: Duration = Duration::from_secs(60);

/// Returns an outcome that fails sometimes.
fn outcome(request: &Request) -> RunOutcome {
    // Differs between runs.
    match (request.seed >> 40) % 7 {
        0 => failure(),
        1 => Ok(Outcome::RequeueAfter(Duration::ZERO)),
        _ => Ok(Outcome::Settled),
    }
}

/// The last states of settled deletions, by uid.
type Settled = Mutex<HashMap<Arc<str>, Vec<Option<u64>>>>;

/// Returns events as a cluster sends them: Pods are created, change their status and are deleted soon, interleaved.
/// Names are reused.
fn history(pods: usize, deleted: &mut HashMap<Arc<str>, u64>) -> Vec<Vec<PodEvent>> {
    let mut random = SmallRng::seed_from_u64(7);
    let mut names: Vec<_> = (0..ALIVE).map(|name| format!("cart-{name}")).collect();
    let mut batches = Vec::new();
    let mut alive = Vec::<(usize, String)>::new();
    let mut made = 0;
    let mut revision = 1;
    while made < pods || !alive.is_empty() {
        let mut batch = Vec::new();
        for _ in 0..random.random_range(1..20) {
            revision += 1;
            let state =
                |(number, name): &(usize, String), app: &str| pod(name, &format!("uid-{number}"), app, revision);
            if made < pods
                && let Some(name) = names.pop()
            {
                alive.push((made, name));
                made += 1;
                batch.extend(alive.last().map(|pod| PodEvent::applied(state(pod, "web"))));
            } else if !alive.is_empty() {
                let at = random.random_range(0..alive.len());
                if random.random_range(0..3) == 0 {
                    batch.push(PodEvent::applied(state(&alive[at], ["web", "api"][revision as usize % 2])));
                } else {
                    let gone = alive.swap_remove(at);
                    let last = state(&gone, ["web", "other"][gone.0 % 2]);
                    deleted.insert(last.key.uid.clone(), last.revision.0);
                    batch.push(PodEvent::deleted(last));
                    names.push(gone.1);
                }
            }
        }
        batches.push(batch);
    }
    batches
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_deletion_is_delivered_once_with_the_last_state() {
    let pods = std::env::var("PODIUM_DELETIONS").map_or(PODS, |text| text.parse().unwrap());
    let backoff = Backoff { first: Duration::from_millis(1), most: Duration::from_millis(4) };
    let mut harness = Harness::plain(backoff);
    let settled = Arc::new(Settled::default());
    let noted = settled.clone();
    harness.load(None, move |request, delivered| {
        let noted = noted.clone();
        async move {
            // Yields, so that other runs continue meanwhile.
            tokio::task::yield_now().await;
            let outcome = outcome(&request);
            if let (Delivered::Deleted(last), Ok(Outcome::Settled)) = (delivered, &outcome) {
                noted.lock().entry(request.key.uid).or_default().push(last);
            }
            outcome
        }
    });
    harness.work(WORKERS);
    let mut deleted = HashMap::new();
    let history = history(pods, &mut deleted);
    let Harness { ingest, observed, dispatch, lane, mut workers, .. } = harness;
    let mut ingesting = JoinSet::new();
    ingesting.spawn(ingest.run());
    for batch in history {
        observed.send(Observation::Events(batch)).await.unwrap();
    }
    // The loop ends after the last observation.
    drop(observed);
    ingesting.join_next().await.unwrap().unwrap();
    let mut left = usize::MAX;
    let mut since = Instant::now();
    let in_time = loop {
        let now = deleted.len().abs_diff(settled.lock().len()) + dispatch.expectations.tombstones.figures(lane).all;
        if now == 0 && dispatch.queue.is_idle() {
            break true;
        }
        if now != left {
            left = now;
            since = Instant::now();
        }
        if since.elapsed() > STANDSTILL {
            break false;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    dispatch.queue.close();
    while workers.join_next().await.is_some() {}
    let settled = settled.lock();
    let wrong: Vec<_> = deleted.iter().filter(|(uid, last)| settled.get(*uid) != Some(&vec![Some(**last)])).collect();
    assert!(
        in_time && wrong.is_empty(),
        "{} of {pods} deletions were not delivered once with the last state: {:?}",
        wrong.len(),
        wrong.iter().take(5).map(|(uid, last)| (uid, last, settled.get(*uid))).collect::<Vec<_>>()
    );
}
