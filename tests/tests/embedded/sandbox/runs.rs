//! Isolation of runs: no run leaves state behind, no run waits for another one, and a dropped run releases everything.

use std::{sync::Arc, time::Duration};

use podium_engine::ports::{FailureKind, Outcome, Reconcile, Subject};
use podium_runtime::{Engine, EngineOptions};
use podium_tests::sandbox::*;
use podium_vocabulary::{WriteReport, WriteResult};

#[tokio::test]
async fn a_good_guest_reads_stages_and_requeues() {
    let (report, _) = run(&spec("good")).await;
    assert_eq!(report.result, Ok(Outcome::RequeueAfter(Duration::from_millis(1_500))));
    assert_eq!(report.staged.writes[0].get().action.describe(), "set label guests.example/seen=yes on shop/cart-0");
    assert_eq!(report.usage.host_calls, 2);
    assert!(report.usage.fuel > 0 && report.usage.fuel < 1_000_000, "{}", report.usage.fuel);
}

#[tokio::test]
async fn each_end_of_a_run_arrives_as_it_was_meant() {
    let engine = engine();
    for (line, expected) in [
        ("stop", Ok(Outcome::Stop)),
        ("requeue 18446744073709551615", Ok(Outcome::RequeueAfter(Duration::from_secs(30 * 24 * 60 * 60)))),
        ("retry later", Err((FailureKind::Retry, "later"))),
        ("terminal never", Err((FailureKind::Terminal, "never"))),
    ] {
        let plugin = load(&engine, &probe(&["label guests.example/a 1", line])).unwrap();
        let (report, _) = run_in(&plugin, request(), FakeWorld::default()).await;
        let (result, staged) = (report.result, report.staged.writes.len());
        assert_eq!(staged, usize::from(expected.is_ok()), "{line}");
        assert_eq!(result.as_ref().map_err(|failure| (failure.kind, failure.message.as_str())).copied(), expected);
    }
}

#[tokio::test]
async fn the_request_reaches_the_guest_whole() {
    let engine = engine();
    let plugin = load(&engine, &probe(&["subject", "unsettled"])).unwrap();
    let mut request = request();
    request.subject = Subject::Deleted(Some(pod("shop", "cart-0")));
    request.unsettled =
        vec![WriteReport { id: 3, description: "evict".into(), result: WriteResult::Blocked("pdb".into()) }];
    let (_, notes) = run_in(&plugin, request, FakeWorld::default()).await;
    assert!(notes.lines()[0].starts_with("deleted Some("), "{}", notes.lines()[0]);
    assert!(notes.lines()[1].contains("Blocked(\"pdb\")"), "{}", notes.lines()[1]);
}

#[tokio::test]
async fn commit_sends_the_staged_writes_before_the_run_ends() {
    let script = ["label guests.example/a 1", "commit", "commit", "label guests.example/b 2"];
    let (report, notes) = run(&probe(&script)).await;
    assert_eq!(notes.committed, [0]);
    assert!(notes.lines()[1].contains("Applied"), "{}", notes.lines()[1]);
    assert_eq!(notes.lines()[2], "Ok([])");
    let left: Vec<_> = report.staged.writes.iter().map(|write| write.get().id).collect();
    assert_eq!(left, [1], "numbers continue after a commit");
}

#[tokio::test]
async fn no_run_finds_what_another_left_in_memory() {
    let engine = engine();
    let plugin = load(&engine, &spec("poison")).unwrap();
    for _ in 0..20 {
        let (report, _) = run_in(&plugin, request(), FakeWorld::default()).await;
        assert_eq!(report.result, Ok(Outcome::Settled));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn good_plugins_finish_beside_more_spinning_ones_than_threads() {
    let engine = Engine::new(EngineOptions { concurrent_runs: 8, ..EngineOptions::default() }).unwrap();
    let mut spinning = spec("spin");
    spinning.limits.cpu = Duration::from_secs(3_600);
    spinning.limits.wall = Duration::from_secs(3_600);
    let spin = Arc::new(load(&engine, &spinning).unwrap());
    let good = load(&engine, &spec("good")).unwrap();
    let spinners: Vec<_> = (0..4)
        .map(|_| {
            let spin = Arc::clone(&spin);
            tokio::spawn(async move { spin.reconcile(request(), Box::new(FakeWorld::default())).await })
        })
        .collect();
    let ten = async {
        for _ in 0..10 {
            let (report, _) = run_in(&good, request(), FakeWorld::default()).await;
            assert!(report.result.is_ok(), "{:?}", report.result);
        }
    };
    tokio::time::timeout(Duration::from_secs(30), ten).await.expect("good runs starved");
    for spinner in &spinners {
        assert!(!spinner.is_finished(), "the spinners were there all the time");
        spinner.abort();
    }
    for spinner in spinners {
        assert!(spinner.await.unwrap_err().is_cancelled());
    }
}

#[tokio::test]
async fn a_dropped_run_returns_its_sandbox() {
    let engine = Engine::new(EngineOptions { concurrent_runs: 1, ..EngineOptions::default() }).unwrap();
    let plugin = load(&engine, &probe(&["live shop cart-0"])).unwrap();
    for _ in 0..3 {
        let mut world = FakeWorld::default();
        world.live = LiveReads::NeverAnswer;
        let notes = Arc::clone(&world.notes);
        let mut waiting = plugin.reconcile(request(), Box::new(world));
        while notes.lock().unwrap().live == 0 {
            assert!(futures::poll!(&mut waiting).is_pending());
            tokio::task::yield_now().await;
        }
        drop(waiting);
        assert_eq!(Arc::strong_count(&notes), 1, "the world went with the run");
    }
    let (report, _) = run_in(&plugin, request(), FakeWorld::default()).await;
    assert_eq!(report.result, Ok(Outcome::Settled));
}

#[tokio::test]
async fn a_plugin_outlives_the_engine_that_made_it() {
    let engine = engine();
    let plugin = load(&engine, &spec("spin")).unwrap();
    drop(engine);
    let (report, _) = run_in(&plugin, request(), FakeWorld::default()).await;
    failed(report, FailureKind::Cpu);
}
