//! The objects that plugins receive as inputs: read when a plugin is loaded, then watched, as the plugin's account. A
//! change is in the next run of each plugin that has the input, and queues all its Pods.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use podium_api::{Api, watch::Counters};
use podium_vocabulary::{Input, PluginId, PluginSpec, Tenant, text};
use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinSet},
    time::{Instant, sleep_until},
};

use super::{life::Driver, spaced::Spaced};
use crate::objects::{Change, FetchFailure, InputKind, InputState, ObjectWatch};

/// The most inputs of a tenant and of the host that are watched. Equal ones of one account count once.
const OF_TENANT: usize = 16;
const OF_HOST: usize = 1_024;
/// The sweeps of a plugin at once, and the seconds of one afterwards.
const SWEEPS: (u32, u32) = (2, 60);
/// The shortest time between two comparisons of the watches with the plugins.
const SETTLE: Duration = Duration::from_secs(1);
/// Capacity of the channel of changes.
const CHANGES: usize = 16;

/// The states of all inputs.
pub(super) struct InputStates {
    api: Api,
    states: Mutex<BTreeMap<Arc<InputKind>, InputState>>,
}

impl InputStates {
    pub(super) fn new(api: Api) -> Self {
        Self { api, states: Mutex::default() }
    }

    /// Reads the inputs of a plugin that is being loaded, except those that are watched already.
    ///
    /// # Errors
    /// Returns an error if one cannot be read, is too large, or is beyond the bounds.
    pub(super) async fn read(&self, spec: &PluginSpec) -> Result<(), FetchFailure> {
        for (id, input) in InputKind::of_plugin(spec) {
            let is_known = {
                let states = self.states.lock();
                let known = states.get(&input);
                let of_tenant = || states.keys().filter(|other| other.tenant == input.tenant).count();
                if known.is_none() && (states.len() >= OF_HOST || of_tenant() >= OF_TENANT) {
                    let message = format!("is beyond the {OF_TENANT} inputs of a tenant, or the {OF_HOST} of the host");
                    return Err(FetchFailure::fetching(&format!("spec.inputs[{id}]"), "TooManyInputs", &message));
                }
                known.is_some_and(|known| *known != InputState::Unavailable)
            };
            if !is_known {
                let state = input.read(&self.api.for_tenant(spec.tenant()), &spec.id, id).await?;
                // The watch knows better.
                self.states.lock().entry(input).or_insert(state);
            }
        }
        Ok(())
    }

    /// Returns the objects of a plugin's inputs as a JSON mapping; `None` if it has no inputs. An object that does not
    /// exist is null, and one that is not available has no member.
    pub(super) fn mapping(&self, spec: &PluginSpec) -> Option<Arc<str>> {
        if spec.inputs.is_empty() {
            return None;
        }
        let states = self.states.lock();
        let mut members: Vec<(&str, &str)> = Vec::new();
        let mut bytes = 0;
        let inputs: Vec<_> = InputKind::of_plugin(spec).collect();
        for (id, input) in &inputs {
            let object = match states.get(input) {
                Some(InputState::Present(text)) => &**text,
                Some(InputState::Absent) => "null",
                Some(InputState::Unavailable) | None => continue,
            };
            bytes += object.len();
            if bytes > Input::MOST_BYTES {
                let most = Input::MOST_BYTES;
                let input = text::line(id);
                tracing::warn!(
                    plugin = %spec.id, input, most,
                    "the inputs have more bytes: runs do not receive this one"
                );
                continue;
            }
            members.push((id, object));
        }
        members.sort_unstable();
        let members: Vec<String> = members.iter().map(|(id, object)| format!("\"{id}\":{object}")).collect();
        Some(format!("{{{}}}", members.join(",")).into())
    }

    /// Records a state that a watch has shown, and returns true if it is another one.
    fn set(&self, input: &Arc<InputKind>, state: InputState) -> bool {
        match self.states.lock().entry(input.clone()) {
            Entry::Occupied(mut held) => held.insert(state.clone()) != state,
            // No plugin has it any more.
            Entry::Vacant(_) => false,
        }
    }
}

/// Watches the inputs of all plugins.
pub(super) struct Inputs {
    api: Api,
    driver: Arc<Driver>,
    states: Arc<InputStates>,
    pods: Arc<Counters>,
    changes: (mpsc::Sender<Seen>, mpsc::Receiver<Seen>),
    /// The plugins whose Pods are queued.
    sweeps: Spaced<PluginId, ()>,
}

type Seen = (Arc<InputKind>, Change<InputState>);

impl Inputs {
    /// Lists again also when the watch of Pods (`pods`) has found that the API server's history was set back.
    pub(super) fn new(api: &Api, pods: &Arc<Counters>, driver: &Arc<Driver>) -> Self {
        let changes = mpsc::channel(CHANGES);
        let sweeps = Spaced::new(SWEEPS.0, SWEEPS.1);
        let states = driver.components.inputs.clone();
        Self { api: api.clone(), pods: pods.clone(), driver: driver.clone(), states, changes, sweeps }
    }

    /// Never returns.
    ///
    /// # Errors
    /// Returns an error if a task panicked.
    pub(super) async fn run(mut self) -> anyhow::Result<()> {
        let mut tasks: JoinSet<()> = JoinSet::new();
        let mut watches: BTreeMap<Arc<InputKind>, AbortHandle> = BTreeMap::new();
        let mut changed = self.driver.changed();
        // When the watches are compared next, and whether there is a reason.
        let mut compare = Instant::now();
        let mut is_due = true;
        loop {
            let next = self.sweeps.next();
            tokio::select! {
                Some((input, change)) = self.changes.1.recv() => self.seen(&input, change),
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                    while let Some((plugin, ())) = self.sweeps.due(Instant::now()) {
                        let Some(loaded) = self.driver.dispatch.registry.by_id(&plugin) else { continue };
                        let ingest = self.driver.ingest_handle.clone();
                        tasks.spawn(async move { ingest.inputs_changed(loaded.lane).await });
                    }
                }
                ended = changed.changed() => {
                    ended.map_err(|_| anyhow::anyhow!("the life cycle of plugins ended"))?;
                    is_due = true;
                }
                () = sleep_until(compare), if is_due => {
                    self.compare(&mut watches, &mut tasks);
                    is_due = false;
                    compare = Instant::now() + SETTLE;
                }
                Some(ended) = tasks.join_next() => match ended {
                    Err(error) if error.is_panic() => return Err(error.into()),
                    Ok(()) | Err(_) => {}
                },
            }
        }
    }

    /// Keeps a watch and a state of each input of a plugin that is loaded or being loaded.
    fn compare(&self, watches: &mut BTreeMap<Arc<InputKind>, AbortHandle>, tasks: &mut JoinSet<()>) {
        let wanted = self.driver.inputs();
        let mut states = self.states.states.lock();
        states.retain(|input, _| wanted.contains(input));
        watches.retain(|input, task| {
            let stays = states.contains_key(input);
            if !stays {
                task.abort();
            }
            stays
        });
        for input in states.keys() {
            watches.entry(input.clone()).or_insert_with(|| {
                let api = self.api.for_tenant(Tenant::clone(&input.tenant));
                let watch =
                    ObjectWatch::<InputState>::new(api, input.clone(), None, input.seed(self.driver.dispatch.seed));
                tasks.spawn(watch.beside(self.pods.clone()).run(self.changes.0.clone()))
            });
        }
    }

    fn seen(&mut self, input: &Arc<InputKind>, change: Change<InputState>) {
        let state = match change {
            Change::Listed(objects) => objects.into_iter().next().unwrap_or(InputState::Absent),
            Change::Applied(object) => *object,
            Change::Deleted(()) => InputState::Absent,
            Change::Absent => InputState::Unavailable,
            Change::Left(()) => return,
        };
        if !self.states.set(input, state) {
            return;
        }
        for loaded in self.driver.dispatch.registry.all() {
            let has_it = InputKind::of_plugin(&loaded.spec).any(|(_, other)| other == *input);
            if has_it && loaded.inputs.set(self.states.mapping(&loaded.spec)) {
                self.sweeps.add(loaded.spec.id.clone(), (), Instant::now());
            }
        }
    }
}

impl Driver {
    /// Returns the inputs of the present configurations, and of the versions that run.
    fn inputs(&self) -> BTreeSet<Arc<InputKind>> {
        let running = self.dispatch.registry.all();
        let present = self.permitted();
        let specs = running.iter().map(|loaded| &loaded.spec).chain(present.iter().map(|spec| &**spec));
        specs.flat_map(InputKind::of_plugin).map(|(_, input)| input).collect()
    }
}
