//! Claims about the time for which the journal keeps the entries of a plugin that is not loaded.

use futures::FutureExt;
use podium_engine::journal;
use podium_vocabulary::PodKey;

use super::*;

const EIGHT_DAYS: u64 = 8 * 24 * 3_600 * 1_000;

/// A driver with a journal.
struct Journaled {
    driver: Arc<Driver>,
    journal: Arc<Journal>,
    _observe: mpsc::Sender<Observation>,
    _state: tempfile::TempDir,
}

impl Journaled {
    /// The plugin has run on a Pod.
    async fn new() -> Self {
        let state = tempfile::tempdir().unwrap();
        let journal = journal::open(state.path(), 0).unwrap().journal;
        let pod = PodKey { namespace: "shop".into(), name: "cart-0".into(), uid: "u1".into() };
        // Nothing writes the entry.
        assert!(journal.plugin_entries(&spec().id).enter(&pod).now_or_never().is_none());
        let (driver, observe) =
            driver_until(Rules::default(), None, Some(journal.clone()), std::future::pending()).await;
        Self { driver, journal, _observe: observe, _state: state }
    }

    /// Returns how many entries are left after more than a week.
    fn left(&self) -> usize {
        let other = PluginId { name: "other".into(), ..spec().id };
        self.journal.absent(&other, EIGHT_DAYS);
        self.journal.figures().entries
    }
}

#[tokio::test(start_paused = true)]
async fn a_standby_keeps_the_entries_of_plugins_that_another_replica_runs() {
    let of = Journaled::new().await;
    load(&of.driver, spec()).await;
    assert!(of.driver.note_absent().is_empty());
    of.driver.feed(Event::Owned(Shards::NONE));
    turns().await;
    assert!(of.driver.dispatch.registry.all().is_empty(), "it was taken out");
    assert_eq!(of.left(), 1, "another replica runs it");
    assert!(of.driver.unload(&spec().id).await);
    assert_eq!(of.left(), 0, "none does");
}

#[tokio::test(start_paused = true)]
async fn a_standby_keeps_the_entries_of_plugins_that_it_cannot_load() {
    let of = Journaled::new().await;
    of.driver.feed(Event::Owned(Shards::NONE));
    assert!(failure_of(&of.driver, spec()).await.is_passing());
    assert!(of.driver.note_absent().is_empty());
    assert_eq!(of.left(), 1);

    let of = Journaled::new().await;
    assert!(failure_of(&of.driver, spec()).await.is_passing());
    assert_eq!(of.driver.note_absent(), [(spec().id, 1)]);
    assert_eq!(of.left(), 0, "the holder could not run it for a week");
}
