//! The journal outlives the process: it stores which plugin ran on which Pod until the Pod's deletion has settled for
//! the plugin. Thus every deletion is delivered, also of Pods that were deleted while the host was down.
//!
//! An append-only file in its own directory ([`open`]). Before a plugin's first run on a Pod its entry is
//! written; later runs on that Pod look it up in memory and do no IO. The caller writes entries in batches: it calls
//! [`Store::write`] when [`Journal::due`] returns. The journal stores no states of Pods: after a restart a deletion
//! is delivered with only the key.

mod entry;
mod file;
mod pair_set;
mod replay;

#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    ops::Bound::{Excluded, Unbounded},
    sync::Arc,
    time::Duration,
};

use entry::Entry;
pub use file::{Error, Opened, Store, open};
use pair_set::{PackedUid, PairSet};
use parking_lot::Mutex;
use podium_vocabulary::{PluginId, PodKey, is_group};
pub use replay::{Found, Recovery};
use tokio::sync::Notify;

use crate::frames::TooLong;

/// How long a first run waits for a disk that does not answer. A working disk syncs sooner, and a host with a broken
/// disk continues.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most bytes that are buffered while the disk accepts nothing: about 60,000 entries. Further entries are
/// dropped; a later run on the same Pod records them. The plugins of one namespace have at most half of it.
const MAX_UNWRITTEN: usize = 8 << 20;
/// The bytes between two copies of an entry without which others have no meaning: a disk loses sectors of up to this
/// size.
const APART: usize = 4 << 10;
/// How long the entries of an unloaded plugin are kept, so that a configuration can be corrected, or a plugin returns
/// that was removed for a test. After a week the plugin is assumed to be gone.
const KEEP_ABSENT_MILLIS: u64 = 7 * 24 * 3_600 * 1_000;
/// The most unloaded plugins of a namespace that keep their entries. The longest unloaded lose them first.
const MAX_ABSENT: usize = 100;
/// The most pending deletions of the unloaded plugins of a namespace, as many as tombstones of the loaded ones.
const MAX_ABSENT_DELETIONS: usize = 250_000;

/// A plugin's number in the journal, kept across restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number(u32);

/// The journal's state in memory, shared by all users.
#[derive(Debug)]
pub struct Journal {
    state: Mutex<State>,
    /// Notified when there are entries to write.
    due: Notify,
    /// Notified when entries were written, or writing failed.
    progress: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The uid of the cluster's namespace kube-system, if it was ever known.
    cluster: Option<Arc<str>>,
    pairs: PairSet,
    /// The plugins by their number.
    plugins: Vec<Option<NumberedPlugin>>,
    /// The unloaded plugins: namespace, since when, and number.
    absent: BTreeSet<(Option<Arc<str>>, u64, Number)>,
    /// Gone Pods whose deletion has not settled, in the order in which they are queued.
    pending_deletions: BTreeMap<Number, BTreeSet<PodKey>>,
    /// The groups that each plugin ran for, by their uids. Nothing but the plugin knows when the last Pod of one goes,
    /// so the ends of those that have no Pod are pending whenever it is loaded.
    groups: BTreeMap<Number, BTreeMap<Arc<str>, PodKey>>,
    /// Entries that were not passed to the store yet.
    unwritten: Batch,
    /// The plugins, and with `None` the cluster, of which `unwritten` has an entry. A batch begins with their present
    /// entries and a filler, such that the loss of one sector leaves one copy of each.
    changed: BTreeSet<Option<Number>>,
    /// Bytes in the store that could not be written.
    stuck: usize,
    /// Bytes of entries of each namespace's plugins since the last write that succeeded; `None` for cluster plugins.
    noted_by: BTreeMap<Option<Arc<str>>, usize>,
    /// The number of entries that were ever added to `unwritten`.
    noted: u64,
    written: u64,
    /// Why writing fails at present.
    failing: Option<String>,
    /// Entries that were dropped because the buffer was full.
    dropped_entries: u64,
    /// The file's length in bytes.
    bytes: u64,
    /// Damaged places of the file as it was opened.
    damaged: u64,
}

#[derive(Debug, Clone)]
struct NumberedPlugin {
    id: PluginId,
    /// Since when the plugin is not loaded, in epoch milliseconds.
    absent_since: Option<u64>,
}

/// The journal is of another cluster. The uids are those of the namespace kube-system.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the journal is of another cluster: its namespace kube-system has the uid {noted}, and that of this API server \
    {present}; use a separate state directory for each cluster, or remove this one, and with it the deletions that are \
    still pending"
)]
pub struct OtherCluster {
    /// The uid in the journal.
    pub noted: Arc<str>,
    /// The uid that the API server returned.
    pub present: Arc<str>,
}

/// Entries on their way to the file.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    entries: usize,
    /// The value of `noted` after the last of them.
    upto: u64,
}

/// The figures of the journal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Figures {
    /// Pairs of a plugin and a Pod that it ran on.
    pub entries: usize,
    /// Pairs whose Pod is gone and whose deletion has not settled.
    pub pending_deletions: usize,
    /// The file's length.
    pub bytes: u64,
    /// True while entries cannot be written. Runs continue.
    pub failing: bool,
    /// Entries that were dropped since the start because too many waited for the disk.
    pub dropped_entries: u64,
    /// Damaged places that the file had when it was opened, except at its end. Each has lost at least one entry.
    pub damaged: u64,
}

impl Journal {
    fn new(state: State) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(state), due: Notify::new(), progress: Notify::new() })
    }

    /// Sets the cluster by the uid of its namespace kube-system. The first one is kept.
    ///
    /// # Errors
    /// Returns an error if the journal belongs to another cluster, in which its entries have no meaning.
    pub fn of_cluster(&self, uid: &Arc<str>) -> Result<(), OtherCluster> {
        let mut state = self.state.lock();
        match state.cluster.clone() {
            Some(noted) if noted == *uid => return Ok(()),
            Some(noted) => return Err(OtherCluster { noted, present: Arc::clone(uid) }),
            None => state.cluster = Some(Arc::clone(uid)),
        }
        // It never exceeds the limit of an entry.
        let _ = state.note(&Entry::Cluster { uid: Cow::Borrowed(uid) });
        state.changed.insert(None);
        drop(state);
        self.due.notify_one();
        Ok(())
    }

    /// Returns the entries of a loaded plugin.
    #[must_use]
    pub fn plugin_entries(self: &Arc<Self>, id: &PluginId) -> PluginEntries {
        let mut state = self.state.lock();
        let known = NumberedPlugin { id: id.clone(), absent_since: None };
        let number = match state.number_of(id) {
            Some(number) if state.known(number).is_some_and(|known| known.absent_since.is_none()) => number,
            there => {
                let free = there.or_else(|| position(&state.plugins, Option::is_none));
                state.set_plugin(free, Some(known))
            }
        };
        drop(state);
        self.due.notify_one();
        PluginEntries { journal: self.clone(), number, id: id.clone() }
    }

    /// Records that the plugin is not loaded from now on. Its entries are kept for a while, within the bounds of its
    /// namespace; without entries its number is free.
    pub fn absent(&self, id: &PluginId, now_millis: u64) {
        let mut state = self.state.lock();
        match state.number_of(id) {
            Some(number) if state.pairs.count_of(number) == 0 => _ = state.set_plugin(Some(number), None),
            Some(number) => state.mark_absent(number, now_millis),
            None => {}
        }
        state.enforce(id.namespace.as_ref(), now_millis);
        drop(state);
        self.due.notify_one();
    }

    /// Calls [`Self::absent`] for all plugins except the loaded ones. Returns them with the number of Pods on which
    /// they ran.
    pub fn all_absent_but(&self, loaded: &[PluginId], now_millis: u64) -> Vec<(PluginId, usize)> {
        let loaded: BTreeSet<_> = loaded.iter().collect();
        let mut state = self.state.lock();
        let mut absent = Vec::new();
        for number in state.all_numbers() {
            let Some(id) = state.known(number).map(|known| known.id.clone()) else { continue };
            if !loaded.contains(&id) {
                state.mark_absent(number, now_millis);
                absent.push((id, state.pairs.count_of(number)));
            }
        }
        state.enforce_all(now_millis);
        drop(state);
        self.due.notify_one();
        absent
    }

    /// Records that the Pod is gone. Returns the plugins to which its deletion has to be delivered, loaded or not.
    pub fn gone(&self, key: &PodKey) -> Vec<Number> {
        let mut state = self.state.lock();
        let plugins = state.pairs.plugins_of(PackedUid::pack(&key.uid));
        for plugin in &plugins {
            state.pending_deletions.entry(*plugin).or_default().insert(key.clone());
        }
        let absent = plugins.iter().filter_map(|plugin| state.known(*plugin)).filter(|it| it.absent_since.is_some());
        let tenants: BTreeSet<_> = absent.filter_map(|known| known.id.namespace.clone()).collect();
        tenants.iter().for_each(|tenant| state.enforce(Some(tenant), 0));
        drop(state);
        self.due.notify_one();
        plugins
    }

    /// Returns the journal's figures, for metrics.
    #[must_use]
    pub fn figures(&self) -> Figures {
        let state = self.state.lock();
        Figures {
            entries: state.pairs.len(),
            pending_deletions: state.pending_deletions.values().map(BTreeSet::len).sum(),
            bytes: state.bytes,
            failing: state.failing.is_some(),
            dropped_entries: state.dropped_entries,
            damaged: state.damaged,
        }
    }

    /// Returns when there are entries to write. Cancel safe.
    pub async fn due(&self) {
        loop {
            let notified = self.due.notified();
            if !self.state.lock().unwritten.bytes.is_empty() {
                return;
            }
            notified.await;
        }
    }

    /// Records that writing or syncing failed: until it succeeds again no run waits for its entry. Only the first
    /// failure is logged.
    pub fn failed(&self, why: &str) {
        let mut state = self.state.lock();
        let before = state.failing.replace(why.to_owned());
        drop(state);
        self.progress.notify_waiters();
        if before.is_none() {
            tracing::error!(
                error = why,
                "journal writes failed; runs continue, but deletions during a restart may not be delivered: check \
                 the disk of --state-dir"
            );
        }
    }

    fn take_unwritten(&self) -> Batch {
        let mut state = self.state.lock();
        let changed = std::mem::take(&mut state.changed);
        let mut batch = std::mem::take(&mut state.unwritten);
        if !changed.is_empty() {
            let cluster = state.cluster.as_ref().filter(|_| changed.contains(&None));
            let cluster = cluster.map(|uid| Entry::Cluster { uid: Cow::Borrowed(uid) });
            let plugins = changed.iter().flatten().map(|number| plugin_entry(*number, state.known(*number)));
            let mut bytes = Vec::new();
            for entry in cluster.into_iter().chain(plugins).chain([filler()]) {
                batch.entries += usize::from(entry.append_to(&mut bytes).is_ok());
            }
            bytes.append(&mut batch.bytes);
            batch.bytes = bytes;
        }
        batch
    }

    /// Records a successful write. `bytes` is the file's length.
    fn record_written(&self, upto: u64, bytes: u64) {
        let mut state = self.state.lock();
        state.written = state.written.max(upto);
        state.bytes = bytes;
        state.stuck = 0;
        state.noted_by.clear();
        let failed = state.failing.take();
        drop(state);
        self.progress.notify_waiters();
        if failed.is_some() {
            tracing::info!("journal writes restored");
        }
    }

    /// Waits until all entries up to `note` are in the file, or until writing fails or takes too long.
    async fn written(&self, note: u64) {
        let written = async {
            loop {
                let mut notified = std::pin::pin!(self.progress.notified());
                // From here on no notification is missed.
                notified.as_mut().enable();
                {
                    let state = self.state.lock();
                    if state.written >= note || state.failing.is_some() {
                        return;
                    }
                }
                notified.await;
            }
        };
        if tokio::time::timeout(PATIENCE, written).await.is_err() {
            self.failed("the disk does not respond");
        }
    }
}

fn position<T>(of: &[T], wanted: impl FnMut(&T) -> bool) -> Option<Number> {
    of.iter().position(wanted).and_then(|at| u32::try_from(at).ok()).map(Number)
}

impl State {
    fn known(&self, number: Number) -> Option<&NumberedPlugin> {
        self.plugins.get(number.0 as usize)?.as_ref()
    }

    fn all_numbers(&self) -> Vec<Number> {
        (0..u32::try_from(self.plugins.len()).unwrap_or(u32::MAX)).map(Number).collect()
    }

    fn number_of(&self, id: &PluginId) -> Option<Number> {
        position(&self.plugins, |known| known.as_ref().is_some_and(|known| known.id == *id))
    }

    /// Assigns a number to a plugin, or frees a number; `None` selects the next number. Entries of another plugin
    /// with that number are forgotten, as when the file is read.
    fn set_plugin(&mut self, number: Option<Number>, known: Option<NumberedPlugin>) -> Number {
        let number = number.unwrap_or_else(|| Number(u32::try_from(self.plugins.len()).unwrap_or(u32::MAX)));
        // A name never exceeds the limit of an entry.
        let _ = self.note(&plugin_entry(number, known.as_ref()));
        self.changed.insert(Some(number));
        self.put_plugin(number, known);
        number
    }

    /// Like [`Self::set_plugin`], without writing an entry.
    fn put_plugin(&mut self, number: Number, known: Option<NumberedPlugin>) {
        let at = number.0 as usize;
        if self.plugins.len() <= at {
            self.plugins.resize_with(at + 1, || None);
        }
        if self.plugins[at].as_ref().map(|known| &known.id) != known.as_ref().map(|known| &known.id) {
            self.pairs.remove_plugin(number);
            self.pending_deletions.remove(&number);
            self.groups.remove(&number);
        }
        if let Some(NumberedPlugin { id, absent_since: Some(since) }) = &self.plugins[at] {
            self.absent.remove(&(id.namespace.clone(), *since, number));
        }
        if let Some(NumberedPlugin { id, absent_since: Some(since) }) = &known {
            self.absent.insert((id.namespace.clone(), *since, number));
        }
        self.plugins[at] = known;
    }

    /// Removes the plugins of a tenant that are unloaded for too long, and those of a namespace beyond the bounds.
    fn enforce(&mut self, tenant: Option<&Arc<str>>, now_millis: u64) {
        let at = |since, number| (tenant.cloned(), since, Number(number));
        let pending = |state: &Self, number| {
            let groups = state.groups.get(&number).map_or(0, BTreeMap::len);
            groups + state.pending_deletions.get(&number).map_or(0, BTreeSet::len)
        };
        let absent: Vec<_> = self.absent.range(at(0, 0)..=at(u64::MAX, u32::MAX)).cloned().collect();
        let mut plugins = absent.len();
        let mut deletions: usize = absent.iter().map(|(.., number)| pending(self, *number)).sum();
        for (_, since, number) in absent {
            let its = pending(self, number);
            let is_old = now_millis.saturating_sub(since) >= KEEP_ABSENT_MILLIS;
            let is_beyond = plugins > MAX_ABSENT || (deletions > MAX_ABSENT_DELETIONS && its > 0);
            if !is_old && (tenant.is_none() || !is_beyond) {
                continue;
            }
            plugins -= 1;
            deletions -= its;
            if let Some(NumberedPlugin { id, .. }) = self.known(number) {
                let pods = self.pairs.count_of(number);
                tracing::warn!(
                    plugin = %id, pods,
                    "plugin was not loaded for a week, or its namespace has too many unloaded plugins; its journal \
                     entries are removed"
                );
            }
            self.set_plugin(Some(number), None);
        }
    }

    fn enforce_all(&mut self, now_millis: u64) {
        let tenants: BTreeSet<_> = self.absent.iter().map(|(tenant, ..)| tenant.clone()).collect();
        tenants.iter().for_each(|tenant| self.enforce(tenant.as_ref(), now_millis));
    }

    fn mark_absent(&mut self, number: Number, now_millis: u64) {
        if let Some(known) = self.known(number).filter(|known| known.absent_since.is_none()).cloned() {
            self.set_plugin(Some(number), Some(NumberedPlugin { absent_since: Some(now_millis), ..known }));
        }
    }

    /// Adds the pair of a plugin and a Pod or group that it runs for.
    fn insert(&mut self, plugin: Number, key: PodKey) {
        self.pairs.insert(plugin, PackedUid::pack(&key.uid));
        if is_group(&key.uid) {
            self.groups.entry(plugin).or_default().insert(key.uid.clone(), key);
        }
    }

    /// Removes a pair. Returns false if it was absent.
    fn remove(&mut self, plugin: Number, uid: &str) -> bool {
        if let Some(groups) = self.groups.get_mut(&plugin) {
            groups.remove(uid);
            if groups.is_empty() {
                self.groups.remove(&plugin);
            }
        }
        self.pairs.remove(plugin, PackedUid::pack(uid))
    }

    /// # Errors
    /// Returns an error if the entry is too long.
    fn note(&mut self, entry: &Entry<'_>) -> Result<(), TooLong> {
        let unwritten = &mut self.unwritten;
        entry.append_to(&mut unwritten.bytes)?;
        self.noted += 1;
        unwritten.entries += 1;
        unwritten.upto = self.noted;
        Ok(())
    }

    /// Returns false if the entry of a plugin is too long, or finds no place.
    fn note_of(&mut self, plugin: Number, entry: &Entry<'_>) -> bool {
        let tenant = self.known(plugin).and_then(|known| known.id.namespace.clone());
        let before = self.unwritten.bytes.len();
        let of_tenant = self.noted_by.get(&tenant).copied().unwrap_or_default();
        if before + self.stuck > MAX_UNWRITTEN || of_tenant > MAX_UNWRITTEN / 2 || self.note(entry).is_err() {
            return false;
        }
        *self.noted_by.entry(tenant).or_default() += self.unwritten.bytes.len() - before;
        true
    }
}

/// Returns an entry of [`APART`] bytes that changes nothing, also for earlier versions of the host.
fn filler() -> Entry<'static> {
    Entry::Settled { plugin: u32::MAX, uid: Cow::Owned("-".repeat(APART)) }
}

fn plugin_entry(number: Number, known: Option<&NumberedPlugin>) -> Entry<'_> {
    let plugin = known.map(|known| entry::Plugin {
        namespace: known.id.namespace.as_deref().map(Cow::Borrowed),
        name: Cow::Borrowed(&known.id.name),
        absent_since: known.absent_since,
    });
    Entry::Plugin { number: number.0, plugin }
}

fn runs_entry<'a>(plugin: Number, key: &'a PodKey) -> Entry<'a> {
    let [namespace, name, uid] = [&key.namespace, &key.name, &key.uid].map(|text| Cow::Borrowed(&**text));
    Entry::Runs { plugin: plugin.0, namespace, name, uid }
}

/// The entries of one plugin.
#[derive(Debug, Clone)]
pub struct PluginEntries {
    journal: Arc<Journal>,
    number: Number,
    id: PluginId,
}

impl PluginEntries {
    /// Returns false after the plugin was unloaded, if its number is free or another plugin's.
    fn is_known(&self, state: &State) -> bool {
        state.known(self.number).is_some_and(|known| known.id == self.id)
    }

    /// Returns the plugin's number in the journal.
    #[must_use]
    pub fn number(&self) -> Number {
        self.number
    }

    /// Must be called before the plugin runs on the Pod; returns when the run may start. Does no IO, and waits only
    /// before the first run.
    pub async fn enter(&self, key: &PodKey) {
        if let Some(note) = self.note(key) {
            self.journal.written(note).await;
        }
    }

    /// Returns the number of the entry to wait for if this is the first run.
    fn note(&self, key: &PodKey) -> Option<u64> {
        let uid = PackedUid::pack(&key.uid);
        let mut state = self.journal.state.lock();
        if state.pairs.contains(self.number, uid) || !self.is_known(&state) {
            return None;
        }
        if !state.note_of(self.number, &runs_entry(self.number, key)) {
            state.dropped_entries += 1;
            return None;
        }
        state.insert(self.number, key.clone());
        let note = state.noted;
        drop(state);
        self.journal.due.notify_one();
        Some(note)
    }

    /// Records that a run found the Pod gone: its deletion is pending.
    pub fn gone(&self, key: &PodKey) {
        let mut state = self.journal.state.lock();
        if is_group(&key.uid) {
            return;
        }
        if self.is_known(&state) && state.pairs.contains(self.number, PackedUid::pack(&key.uid)) {
            state.pending_deletions.entry(self.number).or_default().insert(key.clone());
        }
    }

    /// Records that the Pod's deletion has settled for the plugin.
    pub fn settled(&self, key: &PodKey) {
        let mut state = self.journal.state.lock();
        if !self.is_known(&state) || !state.remove(self.number, &key.uid) {
            return;
        }
        if let Some(pending) = state.pending_deletions.get_mut(&self.number) {
            pending.remove(key);
        }
        // If this entry is lost, the deletion is delivered once more after a restart, which is harmless.
        let entry = Entry::Settled { plugin: self.number.0, uid: Cow::Borrowed(&key.uid) };
        let _ = state.note_of(self.number, &entry);
        drop(state);
        self.journal.due.notify_one();
    }

    /// Returns the deletions that have not settled for the plugin, by namespace and name, and after them the groups
    /// that the plugin ran for.
    #[must_use]
    pub fn pending_deletions(&self) -> Vec<PodKey> {
        let pods = self.pending_deletions_after(None, usize::MAX);
        pods.into_iter().chain(self.groups_after(None, usize::MAX)).collect()
    }

    /// Returns the next deletions of Pods that have not settled for the plugin, behind a key.
    #[must_use]
    pub fn pending_deletions_after(&self, key: Option<&PodKey>, most: usize) -> Vec<PodKey> {
        let state = self.journal.state.lock();
        let pending = state.pending_deletions.get(&self.number).into_iter();
        let behind = pending.flat_map(|pending| pending.range((key.map_or(Unbounded, Excluded), Unbounded)));
        behind.take(most).cloned().collect()
    }

    /// Returns the next groups that the plugin ran for, behind one by their uids. Most of them have Pods.
    #[must_use]
    pub fn groups_after(&self, uid: Option<&str>, most: usize) -> Vec<PodKey> {
        let state = self.journal.state.lock();
        let groups = state.groups.get(&self.number).into_iter();
        let behind = (uid.map_or(Unbounded, Excluded), Unbounded);
        groups.flat_map(|groups| groups.range::<str, _>(behind)).map(|(_, key)| key).take(most).cloned().collect()
    }
}
