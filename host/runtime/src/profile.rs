//! Where the guests of one plugin spend their time: at each tick of the epoch the functions under way are counted.
//!
//! A tick interrupts a guest at its next loop or call. While no profile is taken, a run pays one relaxed load at each
//! change between host and guest and at each tick.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use podium_vocabulary::{PluginId, fnv};
use wasmtime::{StoreContextMut, WasmBacktrace};

use super::{Engine, run::Run, text::cut};

/// The most frames of a stack, from the innermost one.
pub(super) const MOST_FRAMES: usize = 64;
/// The most different stacks that are counted: with 64 functions each they have 3 MB.
const MOST_STACKS: usize = 10_000;
/// The most bytes of a function's name. A component has at most 32 MiB of names.
const NAME_BYTES: usize = 512;
/// The only frame of samples whose stack is one too many.
const OTHER: &str = "[other stacks]";

/// Samples, by the functions that were under way.
#[derive(Debug, Default)]
pub struct Samples {
    names: BTreeMap<String, usize>,
    stacks: BTreeMap<Vec<usize>, u64>,
}

impl Samples {
    /// Counts samples with these functions, the innermost first; without any they are among the other stacks.
    pub fn add<'a>(&mut self, frames: impl Iterator<Item = &'a str>, count: u64) {
        let names: Vec<&str> = frames.take(MOST_FRAMES).map(|name| cut(name, NAME_BYTES)).collect();
        let known: Option<Vec<usize>> = names.iter().map(|name| self.names.get(*name).copied()).collect();
        let is_kept = self.stacks.len() < MOST_STACKS || known.is_some_and(|stack| self.stacks.contains_key(&stack));
        let stack = match names.as_slice() {
            names @ [_, ..] if is_kept => names.iter().map(|name| self.number(name)).collect(),
            _ => vec![self.number(OTHER)],
        };
        *self.stacks.entry(stack).or_default() += count;
    }

    fn number(&mut self, name: &str) -> usize {
        let next = self.names.len();
        match self.names.get(name) {
            Some(number) => *number,
            None => *self.names.entry(name.to_owned()).or_insert(next),
        }
    }

    /// Returns the functions with their numbers.
    pub fn names(&self) -> impl Iterator<Item = (usize, &str)> {
        self.names.iter().map(|(name, number)| (*number, &**name))
    }

    /// Returns the stacks as numbers of functions, the innermost first, with how often each was seen.
    pub fn stacks(&self) -> impl Iterator<Item = (&[usize], u64)> {
        self.stacks.iter().map(|(stack, count)| (&**stack, *count))
    }
}

/// The profile that an engine takes, if it takes one.
#[derive(Debug, Default)]
pub(super) struct Profiler {
    /// The number of the plugin; 0 without a profile. Runs of others do not wait for the samples.
    of: AtomicU64,
    /// Ticks of the epoch since the start.
    ticks: AtomicU64,
    taken: Mutex<Option<(PluginId, Samples)>>,
}

impl Profiler {
    fn begin(&self, plugin: &PluginId) {
        *self.taken.lock() = Some((plugin.clone(), Samples::default()));
        self.of.store(Self::number(plugin), Ordering::Relaxed);
    }

    pub(super) fn is_on(&self) -> bool {
        self.of.load(Ordering::Relaxed) != 0
    }

    /// Returns the number of a plugin, which few others have, and never 0.
    pub(super) fn number(plugin: &PluginId) -> u64 {
        fnv(&plugin.to_string()).max(1)
    }

    /// Counts a tick of the epoch.
    pub(super) fn tick(&self) {
        self.ticks.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn ticks(&self) -> u64 {
        self.ticks.load(Ordering::Relaxed)
    }

    /// Counts the functions under way of a run that a tick has interrupted. A tick of the host's own work for the run
    /// interrupts the guest as well, at its next function: such a one counts for nothing.
    pub(super) fn sample(&self, store: &StoreContextMut<'_, Run>) {
        let run = store.data();
        if self.of.load(Ordering::Relaxed) != run.context.number || self.ticks() == run.ticks {
            return;
        }
        let trace = WasmBacktrace::force_capture(store);
        let names = trace.frames().iter().map(|frame| match frame.func_name() {
            Some(name) => name.to_owned(),
            None => format!("wasm[{}]", frame.func_index()),
        });
        let names: Vec<String> = names.collect();
        let mut taken = self.taken.lock();
        if let Some((_, samples)) = taken.as_mut().filter(|(plugin, _)| *plugin == run.context.id) {
            samples.add(names.iter().map(|name| &**name), 1);
        }
    }
}

/// A profile under way. Dropping it ends it.
struct Taking<'a>(&'a Profiler);

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        self.0.of.store(0, Ordering::Relaxed);
        self.0.taken.lock().take();
    }
}

impl Engine {
    /// The time between two samples of a guest.
    pub const SAMPLED_EVERY: Duration = Duration::from_micros(100);

    /// Samples the guests of a plugin for this time, in all its runs. Dropping the future ends it. An engine takes one
    /// profile at a time: a second call ends the first one. `None` if the engine has no ticks.
    pub async fn profile(&self, plugin: &PluginId, time: Duration) -> Option<Samples> {
        let profiler = &*self.core.profiler;
        let ticker = self.core.ticker.as_ref()?;
        let _taking = Taking(profiler);
        profiler.begin(plugin);
        ticker.end_rest();
        tokio::time::sleep(time).await;
        profiler.taken.lock().take().map(|(_, samples)| samples)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{Arc, mpsc},
        thread,
    };

    use podium_pods::testing;
    use tokio::time::timeout;
    use wasmtime::{AsContextMut, Store};

    use super::{
        super::{EngineOptions, run::PluginContext, sandboxes::NoWorld},
        *,
    };

    #[test]
    fn stacks_are_cut_and_bounded() {
        let mut samples = Samples::default();
        for number in 0..MOST_STACKS + 3 {
            samples.add([number.to_string(), "outer".to_owned()].iter().map(|name| &**name), 1);
        }
        samples.add(["0", "outer"].into_iter(), 1);
        assert_eq!(samples.stacks().count(), MOST_STACKS + 1);
        assert_eq!(samples.names().count(), MOST_STACKS + 2, "those of other stacks are not kept");
        let other = samples.names().find(|(_, name)| *name == OTHER).unwrap().0;
        assert_eq!(samples.stacks().find(|(stack, _)| **stack == [other]), Some((&[other][..], 3)));
        assert_eq!(samples.stacks().map(|(_, count)| count).sum::<u64>(), MOST_STACKS as u64 + 4);

        let mut deep = Samples::default();
        deep.add(std::iter::repeat_n("f", 1_000), 1);
        assert_eq!(deep.stacks().next().unwrap().0.len(), MOST_FRAMES);
        deep.add(std::iter::once(&*"g".repeat(10_000)), 1);
        assert_eq!(deep.names().map(|(_, name)| name.len()).max(), Some(NAME_BYTES));
    }

    #[test]
    fn a_run_of_another_plugin_waits_for_no_sample() {
        for (plugin, is_profiled) in [("other", false), ("hello", true)] {
            let context = PluginContext::new(&testing::plugin(Some("shop"), plugin), Arc::default());
            let profiler = context.profiler.clone();
            let run = Run::new(Arc::new(context), Box::new(NoWorld), None, 0, 0);
            let mut store = Store::new(&wasmtime::Engine::default(), run);
            profiler.begin(&testing::plugin(Some("shop"), "hello").id);
            profiler.tick();
            let sampler = profiler.clone();
            let (ended, end) = mpsc::channel();
            let recording = profiler.taken.lock();
            let sampling = thread::spawn(move || {
                sampler.sample(&store.as_context_mut());
                ended.send(())
            });
            if !is_profiled {
                assert_eq!(end.recv_timeout(Duration::from_secs(10)), Ok(()));
            }
            drop(recording);
            sampling.join().unwrap().ok();
            let taken = profiler.taken.lock();
            assert_eq!(taken.as_ref().unwrap().1.stacks().count(), usize::from(is_profiled), "{plugin}");
        }
    }

    #[tokio::test]
    async fn the_epoch_ticks_without_runs_during_a_profile_only() {
        let engine = Engine::new(EngineOptions { concurrent_runs: 1, ..EngineOptions::default() }).unwrap();
        let plugin = testing::plugin(Some("shop"), "hello").id;
        let ticks = || engine.core.profiler.ticks();
        // A busy machine may have none of the timer's time for a while.
        let ticking = async {
            while ticks() <= 20 {
                let samples = engine.profile(&plugin, Duration::from_millis(50)).await.unwrap();
                assert_eq!(samples.stacks().count(), 0);
            }
        };
        assert!(timeout(Duration::from_secs(10), ticking).await.is_ok(), "{} ticks", ticks());
        let dropped = engine.profile(&plugin, Duration::from_secs(60));
        assert!(timeout(Duration::from_millis(5), dropped).await.is_err());
        // The last timer runs out.
        let resting = async {
            let mut before = None;
            while before.replace(ticks()) != Some(ticks()) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        assert!(timeout(Duration::from_secs(10), resting).await.is_ok(), "it ticks on");
    }

    #[tokio::test]
    async fn an_engine_without_ticks_takes_no_profile() {
        let engine = Engine::new(EngineOptions { tick: None, ..EngineOptions::default() }).unwrap();
        let plugin = testing::plugin(None, "hello").id;
        assert!(engine.profile(&plugin, Duration::from_secs(60)).await.is_none());
    }
}
