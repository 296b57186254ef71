//! Profiles of this process and of its guests, for `/debug/pprof`.

#[cfg(target_os = "linux")]
mod modules;
#[cfg(target_os = "linux")]
mod signal;

use std::{io, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use podium_engine::status::Status;
use podium_runtime::{Engine, Samples};

use crate::admin::{Profile, Profiles, Unprofiled};

/// Samples in a second of processor time, as of Go's profiles.
const HERTZ: u32 = 100;

/// Samples the process of this host, and the guests of its engine.
pub(super) struct Profiler {
    pub(super) engine: Arc<Engine>,
    pub(super) status: Arc<Status>,
}

impl Profiles for Profiler {
    fn process(&self, time: Duration) -> BoxFuture<'_, Result<Profile, Unprofiled>> {
        Box::pin(async move {
            let samples = process(time, HERTZ).await.map_err(Unprofiled::Failed)?;
            Ok(Profile { samples, every: Duration::from_secs(1) / HERTZ, took: time })
        })
    }

    fn guests(&self, plugin: String, time: Duration) -> BoxFuture<'_, Result<Profile, Unprofiled>> {
        Box::pin(async move {
            let known = self.status.loads().into_iter().find(|state| state.id.to_string() == plugin);
            let id = known.ok_or(Unprofiled::NoPlugin)?.id;
            let samples = self.engine.profile(&id, time).await;
            let samples = samples.ok_or_else(|| Unprofiled::Failed(io::ErrorKind::Unsupported.into()))?;
            Ok(Profile { samples, every: Engine::SAMPLED_EVERY, took: time })
        })
    }
}

/// Samples this process. Dropping the future ends it.
#[cfg(target_os = "linux")]
async fn process(time: Duration, hertz: u32) -> io::Result<Samples> {
    use tokio::{
        task::spawn_blocking,
        time::{Instant, MissedTickBehavior, interval},
    };

    let mut stacks = spawn_blocking(modules::Stacks::new).await?;
    let sampling = signal::Sampling::start(hertz)?;
    let end = Instant::now() + time;
    // Often enough for the copies of one process that uses all of several processors.
    let mut ticks = interval(Duration::from_millis(50));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while Instant::now() < end {
        ticks.tick().await;
        sampling.drain(|sample| stacks.add(sample));
    }
    let dropped = sampling.dropped();
    drop(sampling);
    if dropped > 0 {
        tracing::warn!(dropped, "the profile lacks samples: too many threads use the processor at once");
    }
    Ok(spawn_blocking(move || stacks.named()).await?)
}

#[cfg(not(target_os = "linux"))]
async fn process(_: Duration, _: u32) -> io::Result<Samples> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::{
        hint::black_box,
        sync::atomic::{AtomicBool, Ordering::SeqCst},
    };

    use super::*;

    #[inline(never)]
    fn computes_until(stop: &AtomicBool) -> u64 {
        let mut turns = 0_u64;
        while !stop.load(SeqCst) {
            turns = black_box(turns.wrapping_add(1));
        }
        turns
    }

    #[tokio::test]
    async fn a_dropped_profile_ends_and_the_next_one_has_names() {
        let begun = async {
            // The process is sampled once at a time.
            while signal::Sampling::start(HERTZ).is_ok() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            _ = process(Duration::from_secs(60), HERTZ) => unreachable!("it is dropped"),
            () = begun => {}
        }
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let computing = tokio::task::spawn_blocking(move || computes_until(&stopped));
        let samples = process(Duration::from_millis(500), 1_000).await;
        stop.store(true, SeqCst);
        let samples = samples.unwrap();
        assert!(computing.await.unwrap() > 0);
        let names: Vec<_> = samples.names().collect();
        let (number, _) = names.iter().find(|(_, name)| name.contains("computes_until")).unwrap();
        let of_it: u64 = samples.stacks().filter(|(stack, _)| stack.contains(number)).map(|(_, count)| count).sum();
        // The other tests of this process are in the profile too.
        assert!(of_it > 0, "{} stacks", samples.stacks().count());
    }
}
