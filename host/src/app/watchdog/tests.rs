//! Claims about loops that stand still, and about those that do not.

use tokio::{sync::mpsc::Receiver, time::advance};

use super::*;

/// A loop whose events wait in a channel.
fn watched() -> (Arc<Watchdog>, Steps, mpsc::Sender<()>, Receiver<()>) {
    let ((sender, receiver), steps, watchdog) = (mpsc::channel(4), Steps::default(), Arc::<Watchdog>::default());
    watchdog.watch(Watched::new(
        Part::Ingest,
        "events wait, and none was processed",
        steps.clone(),
        is_waiting(&sender),
    ));
    tokio::spawn(watchdog.clone().run());
    (watchdog, steps, sender, receiver)
}

/// Advances the time. The watchdog has one tick at the end.
async fn pass(seconds: u64) {
    tokio::task::yield_now().await;
    advance(Duration::from_secs(seconds)).await;
    tokio::task::yield_now().await;
}

#[tokio::test(start_paused = true)]
async fn a_step_that_never_returns_is_unready_after_30_s_and_dead_after_120_s() {
    let (watchdog, steps, sender, _receiver) = watched();
    sender.send(()).await.unwrap();
    steps.completed();
    let state = || (watchdog.unready().is_some(), watchdog.dead().is_some());
    for tick in 0..200 {
        // The first tick sees a step.
        let expected = (tick >= 31, tick >= 121);
        assert_eq!(state(), expected, "after {tick} s");
        pass(1).await;
    }
    assert_eq!(watchdog.dead().unwrap(), "events wait, and none was processed for 199 s");
    steps.completed();
    pass(1).await;
    assert_eq!(state(), (false, false), "it goes on");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_stopped_is_healthy() {
    let (watchdog, steps, sender, mut receiver) = watched();
    sender.send(()).await.unwrap();
    for _ in 0..20 {
        pass(600).await;
        assert_eq!((watchdog.unready(), watchdog.dead()), (None, None), "a late tick counts as one");
    }
    receiver.recv().await.unwrap();
    steps.completed();
    for _ in 0..200 {
        pass(1).await;
        assert_eq!(watchdog.unready(), None, "no event waits");
    }
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_is_slow_does_not_stand_still() {
    let (watchdog, steps, sender, _receiver) = watched();
    sender.send(()).await.unwrap();
    for _ in 0..20 {
        for _ in 0..29 {
            pass(1).await;
        }
        assert_eq!(watchdog.unready(), None);
        steps.completed();
    }
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_has_ended_is_not_kept_alive() {
    let (watchdog, _steps, sender, mut receiver) = watched();
    drop(sender);
    assert_eq!(receiver.recv().await, None);
    pass(1).await;
    assert_eq!(watchdog.unready(), None);
}
