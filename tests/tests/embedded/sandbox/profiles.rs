//! Profiles of guests, taken from the real engine.

use std::{sync::Arc, time::Duration};

use podium_runtime::{Engine, Plugin, Samples};
use podium_tests::sandbox::{FakeWorld, load, measuring_engine, request, run_in, spec};
use podium_vocabulary::PluginId;

const TIME: Duration = Duration::from_millis(500);

/// Runs the plugin again and again while a profile of another one, or of itself, is taken.
async fn profiled(engine: &Arc<Engine>, running: &Plugin, named: &PluginId) -> Samples {
    let runs = async {
        loop {
            drop(run_in(running, request(), FakeWorld::default()).await);
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        samples = engine.profile(named, TIME) => samples.unwrap(),
        () = runs => unreachable!("it has no end"),
    }
}

fn total(samples: &Samples) -> u64 {
    samples.stacks().map(|(_, count)| count).sum()
}

/// Returns the samples whose innermost function has this in its name.
fn within(samples: &Samples, name: &str) -> u64 {
    let names: Vec<_> = samples.names().filter(|(_, full)| full.contains(name)).map(|(number, _)| number).collect();
    let own = samples.stacks().filter(|(stack, _)| names.contains(&stack[0]));
    own.map(|(_, count)| count).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn most_samples_are_in_the_hot_function_of_three() {
    let engine = measuring_engine();
    let hot = load(&engine, &spec("hot")).unwrap();
    // On a busy machine a profile has few samples.
    let mut all = 0;
    let mut of_hot = 0;
    let mut of_warm = 0;
    for _ in 0..60 {
        let samples = profiled(&engine, &hot, &spec("hot").id).await;
        all += total(&samples);
        of_hot += within(&samples, "3hot3hot");
        of_warm += within(&samples, "3hot4warm");
        if all >= 40 {
            break;
        }
    }
    assert!(all >= 40, "{all} samples");
    assert!(of_hot * 10 >= all * 8 && of_warm * 10 <= all * 2, "{of_hot} and {of_warm} of {all}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_plugin_of_the_profile_is_sampled() {
    let engine = measuring_engine();
    let hot = load(&engine, &spec("hot")).unwrap();
    assert_eq!(total(&profiled(&engine, &hot, &spec("other").id).await), 0);
}

/// Guests that are cut and trap while they are sampled, on several threads; each profile is dropped at some moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn guests_that_are_cut_and_trap_can_be_sampled() {
    let engine = measuring_engine();
    for name in ["spin", "panics", "recurse", "hot"] {
        let id = spec(name).id;
        let plugin = Arc::new(load(&engine, &spec(name)).unwrap());
        let mut runs = tokio::task::JoinSet::new();
        for _ in 0..3 {
            let plugin = plugin.clone();
            runs.spawn(async move {
                loop {
                    drop(run_in(&plugin, request(), FakeWorld::default()).await);
                    tokio::task::yield_now().await;
                }
            });
        }
        for micros in [1, 500, 3_000, 20_000] {
            let dropped = engine.profile(&id, Duration::from_secs(60));
            assert!(tokio::time::timeout(Duration::from_micros(micros), dropped).await.is_err());
        }
        let samples = engine.profile(&id, TIME).await.unwrap();
        assert!(total(&samples) > 0, "{name}: {samples:?}");
    }
}
