//! The objects that plugins receive as inputs: read when a plugin is loaded, then watched, as the plugin's account. A
//! change is in the next run of each plugin that has the input, and queues all its Pods.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use podium_api::{Api, watch::Counters};
use podium_engine::intervals::Intervals;
use podium_vocabulary::{Input, PluginId, PluginSpec, Tenant, text};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, sleep_until},
};

use super::{
    life::Driver,
    spaced::{Pace, Spaced},
    turns::ListTurns,
    watches::Watches,
};
use crate::objects::{Change, FetchFailure, Fields, InputKind, InputObject, InputState, ObjectWatch, Step, Unread};

/// The most inputs of a tenant and of the host that are watched. Equal ones of one account count once.
const OF_TENANT: usize = 16;
const OF_HOST: usize = 1_024;
/// The sweeps of a plugin.
const SWEEPS: Pace = Pace { at_once: 2, seconds: 60 };
/// The shortest time between two comparisons of the watches with the plugins.
const SETTLE: Duration = Duration::from_secs(1);
/// The shortest time between two times at which plugins receive changes, for which the inputs of all plugins are looked
/// at. One object may change hundreds of times a second.
const APPLY: Duration = Duration::from_secs(1);
/// Capacity of the channel of changes.
const CHANGES: usize = 16;

/// The states of all inputs.
pub(super) struct InputStates {
    api: Api,
    states: Mutex<BTreeMap<Arc<InputKind>, InputState>>,
    pub(super) turns: Arc<ListTurns>,
}

impl InputStates {
    pub(super) fn new(api: Api) -> Self {
        Self { api, states: Mutex::default(), turns: Arc::new(ListTurns::new()) }
    }

    /// Reads the inputs of a plugin that is being loaded, except those that are watched already. With `ran`, for a
    /// version that ran before, one that cannot be read is not available to it and no reason to refuse it, and neither
    /// are the bounds.
    ///
    /// # Errors
    /// Returns an error if one cannot be read, or is beyond the bounds, or if they are too large.
    pub(super) async fn read(&self, spec: &PluginSpec, ran: bool) -> Result<(), FetchFailure> {
        let mut bytes = 0;
        for (id, input) in InputKind::of_plugin(spec) {
            let failed = |reason, message: &str| {
                let field = format!("spec.inputs[{id}]");
                FetchFailure { step: Step::Granted, ..FetchFailure::fetching(&field, reason, message) }
            };
            // Others may be added while this one is read.
            let bound = |states: &BTreeMap<Arc<InputKind>, InputState>| {
                let of_tenant = || states.keys().filter(|other| other.tenant == input.tenant).count();
                let is_new = !ran && !states.contains_key(&input);
                if is_new && (states.len() >= OF_HOST || of_tenant() >= OF_TENANT) {
                    let message = format!("is beyond the {OF_TENANT} inputs of a tenant, or the {OF_HOST} of the host");
                    return Err(failed("TooManyInputs", &message));
                }
                Ok(())
            };
            let known = {
                let states = self.states.lock();
                bound(&states)?;
                states.get(&input).cloned()
            };
            let turn = self.turns.of_tenant(&input.tenant);
            let is_tolerated = ran || known.is_some();
            let state = match known {
                Some(state) if !state.is_unavailable() => state,
                _ => {
                    let turns = [&*turn, &*self.turns.of_host];
                    let read = input.read(&self.api.for_tenant(spec.tenant()), &spec.id, turns).await;
                    if let Err(Unread { reason, message }) = &read
                        && !is_tolerated
                    {
                        return Err(failed(reason, message));
                    }
                    let state = read.unwrap_or_else(|failure| InputState::Unavailable(failure.message.into()));
                    let mut states = self.states.lock();
                    bound(&states)?;
                    let held = states.entry(input.clone()).or_insert_with(|| state.clone());
                    // The watch knows better, also why there is none.
                    if held.is_unavailable() && !state.is_unavailable() {
                        held.clone_from(&state);
                    }
                    state
                }
            };
            bytes += state.size();
            if bytes > Input::MOST_BYTES && !ran {
                let most = Input::MOST_BYTES;
                let message =
                    format!("the inputs up to this one have {bytes} bytes; at most {most}: name fewer fields");
                return Err(failed("InputTooLarge", &message));
            }
        }
        Ok(())
    }

    /// Returns the objects of a plugin's inputs as a JSON mapping; `None` if it has no inputs. An object that does not
    /// exist is null. One that is not available, or for which too many bytes are there, has no member.
    pub(super) fn mapping(&self, spec: &PluginSpec) -> Option<Arc<str>> {
        if spec.inputs.is_empty() {
            return None;
        }
        let received = self.received(spec).into_iter();
        let members = received.filter_map(|(id, object)| Some(format!("\"{id}\":{}", object.ok()?)));
        Some(format!("{{{}}}", members.collect::<Vec<_>>().join(",")).into())
    }

    /// Returns the inputs of a plugin that its runs do not receive, with the reason of each.
    pub(super) fn missing(&self, spec: &PluginSpec) -> Vec<(String, Arc<str>)> {
        let received = self.received(spec).into_iter();
        received.filter_map(|(id, object)| Some((id.to_owned(), object.err()?))).collect()
    }

    /// Returns what runs receive of each input by its id, or why they receive nothing.
    fn received<'a>(&self, spec: &'a PluginSpec) -> BTreeMap<&'a str, Result<Arc<str>, Arc<str>>> {
        let states: BTreeMap<&str, InputState> = {
            let states = self.states.lock();
            let unread = || InputState::Unavailable("is not read yet".into());
            let state = |input| states.get(&input).cloned().unwrap_or_else(unread);
            InputKind::of_plugin(spec).map(|(id, input)| (id, state(input))).collect()
        };
        let mut bytes = 0;
        let mut object = |state| match state {
            InputState::Present(object) if bytes + object.len() > Input::MOST_BYTES => {
                let most = Input::MOST_BYTES;
                Err(format!("with it, all inputs have more than {most} bytes; name fewer fields").into())
            }
            InputState::Present(object) => {
                bytes += object.len();
                Ok(object)
            }
            InputState::Absent => Ok("null".into()),
            InputState::Unavailable(reason) => Err(reason),
        };
        states.into_iter().map(|(id, state)| (id, object(state))).collect()
    }

    /// Records a state that a watch has shown, and returns true if it is another one than before.
    fn set(&self, input: &Arc<InputKind>, state: InputState) -> bool {
        match self.states.lock().get_mut(input) {
            Some(held) if *held != state => {
                *held = state;
                true
            }
            // No plugin has it any more.
            Some(_) | None => false,
        }
    }
}

/// Watches the inputs of all plugins.
pub(super) struct Inputs {
    api: Api,
    driver: Arc<Driver>,
    states: Arc<InputStates>,
    pods: Arc<Counters>,
    sender: mpsc::Sender<Seen>,
    changes: mpsc::Receiver<Seen>,
    /// The plugins whose Pods are queued.
    sweeps: Spaced<PluginId, ()>,
    /// The objects of those that are watched, by their names, within the bounds of an input.
    objects: BTreeMap<Arc<InputKind>, BTreeMap<String, Fields>>,
    /// Inputs that have changed since plugins received them the last time.
    dirty: BTreeSet<Arc<InputKind>>,
    /// Those that no plugin had at the latest comparison: the next one drops them if that is still so. A plugin that is
    /// being loaded may find them meanwhile.
    unwanted: BTreeSet<Arc<InputKind>>,
    /// The ids of the inputs that the runs of each plugin do not receive, as they were logged.
    missing: BTreeMap<PluginId, Vec<String>>,
    /// These log lines, by tenant.
    lines: BTreeMap<Tenant, Intervals>,
}

type Seen = (Arc<InputKind>, Change<InputObject>);

impl Inputs {
    /// Lists again also when the watch of Pods (`pods`) has found that the API server's history was set back.
    pub(super) fn new(api: &Api, pods: &Arc<Counters>, driver: &Arc<Driver>) -> Self {
        let (sender, changes) = mpsc::channel(CHANGES);
        let sweeps = Spaced::new(SWEEPS);
        let states = driver.components.inputs.clone();
        Self {
            api: api.clone(),
            pods: pods.clone(),
            driver: driver.clone(),
            states,
            sender,
            changes,
            sweeps,
            objects: BTreeMap::new(),
            dirty: BTreeSet::new(),
            unwanted: BTreeSet::new(),
            missing: BTreeMap::new(),
            lines: BTreeMap::new(),
        }
    }

    /// Never returns.
    ///
    /// # Errors
    /// Returns an error if a task panicked.
    pub(super) async fn run(mut self) -> anyhow::Result<()> {
        let mut watches = Watches::new();
        let mut changed = self.driver.changed();
        // When the watches are compared next, and whether there is a reason.
        let mut compare = Instant::now();
        let mut is_due = true;
        // When plugins receive changes next.
        let mut apply = Instant::now();
        loop {
            let next = self.sweeps.next();
            tokio::select! {
                Some((input, change)) = self.changes.recv() => self.seen(input, change, &mut watches),
                () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {
                    while let Some((plugin, ())) = self.sweeps.due(Instant::now()) {
                        let Some(loaded) = self.driver.dispatch.registry.by_id(&plugin) else { continue };
                        let ingest = self.driver.ingest_handle.clone();
                        watches.begin(async move { ingest.inputs_changed(loaded.lane).await });
                    }
                }
                () = sleep_until(apply), if !self.dirty.is_empty() => {
                    self.apply();
                    apply = Instant::now() + APPLY;
                }
                ended = changed.changed() => {
                    ended.map_err(|_| anyhow::anyhow!("the life cycle of plugins ended"))?;
                    is_due = true;
                }
                () = sleep_until(compare), if is_due => {
                    // Until nothing waits to be dropped.
                    is_due = self.compare(&mut watches);
                    compare = Instant::now() + SETTLE;
                }
                error = watches.panicked() => return Err(error.into()),
            }
        }
    }

    /// Keeps a watch and a state of each input of a plugin that is loaded or being loaded. Returns true if another
    /// comparison is due without a change.
    fn compare(&mut self, watches: &mut Watches<Arc<InputKind>>) -> bool {
        let wanted = self.driver.inputs();
        let kept: BTreeSet<_> = {
            let mut states = self.states.states.lock();
            states.retain(|input, _| wanted.contains(input) || !self.unwanted.contains(input));
            states.keys().cloned().collect()
        };
        self.objects.retain(|input, _| kept.contains(input));
        self.missing.retain(|plugin, _| self.driver.dispatch.registry.by_id(plugin).is_some());
        watches.keep(&kept, |input| self.watch(input, Duration::ZERO));
        self.unwanted = kept.difference(&wanted).cloned().collect();
        !self.unwanted.is_empty()
    }

    /// Watches an input, after a pause.
    fn watch(&self, input: &Arc<InputKind>, pause: Duration) -> impl Future<Output = ()> + Send + use<> {
        let api = self.api.for_tenant(input.tenant.clone());
        let watch = ObjectWatch::<InputObject>::new(api, input.clone(), None, self.driver.dispatch.seed);
        let turns = &self.states.turns;
        let watch = watch.taking(&turns.of_tenant(&input.tenant), &turns.of_host).beside(self.pods.clone());
        let changes = self.sender.clone();
        async move {
            sleep(pause).await;
            watch.run(changes).await;
        }
    }

    fn seen(&mut self, input: Arc<InputKind>, change: Change<InputObject>, watches: &mut Watches<Arc<InputKind>>) {
        let is_list = matches!(change, Change::Listed(_));
        let is_refused = matches!(change, Change::Absent);
        match change {
            Change::Listed(listed) => {
                let listed = listed.into_iter().map(|InputObject { name, fields }| (name, fields));
                self.objects.insert(input.clone(), listed.collect());
            }
            Change::Applied(object) => {
                if let Some(objects) = self.objects.get_mut(&input) {
                    objects.insert(object.name, object.fields);
                }
            }
            Change::Deleted(name) => {
                if let Some(objects) = self.objects.get_mut(&input) {
                    objects.remove(&name);
                }
            }
            Change::Absent => drop(self.objects.remove(&input)),
            Change::Left(_) => return,
        }
        let state = match self.objects.get(&input) {
            Some(objects) => input.state(objects).map_err(|excess| format!("{}: {excess}", input.describe())),
            None if is_refused => Err(input.refusal()),
            // Of a watch that has ended.
            None => return,
        };
        if state.is_err() && !input.is_named() && self.objects.remove(&input).is_some() {
            // Objects beyond the bounds are not kept, so a list shows when that ends.
            watches.replace(&input, self.watch(&input, input.pause()));
        }
        let state = state.unwrap_or_else(|reason| InputState::Unavailable(reason.into()));
        let has_changed = self.states.set(&input, state);
        // A load may have received what the watch shows only now.
        if has_changed || is_list {
            self.dirty.insert(input);
        }
    }

    /// Has the next runs of plugins receive the changes, and queues the Pods of these plugins.
    fn apply(&mut self) {
        let dirty = std::mem::take(&mut self.dirty);
        for loaded in self.driver.dispatch.registry.all() {
            let has_one = InputKind::of_plugin(&loaded.spec).any(|(_, input)| dirty.contains(&input));
            if !has_one {
                continue;
            }
            self.log_missing(&loaded.spec);
            if loaded.inputs.set(self.states.mapping(&loaded.spec)) {
                self.sweeps.add(loaded.spec.id.clone(), (), Instant::now());
            }
        }
    }

    /// Logs which inputs the runs of a plugin do not receive, if these are others than before. Its object's condition
    /// says so too.
    fn log_missing(&mut self, spec: &PluginSpec) {
        let missing = self.states.missing(spec);
        let ids: Vec<String> = missing.iter().map(|(id, _)| id.clone()).collect();
        let is_same = self.missing.get(&spec.id).map_or(ids.is_empty(), |before| *before == ids);
        if is_same {
            return;
        }
        self.missing.insert(spec.id.clone(), ids);
        let reasons: Vec<String> = missing.iter().map(|(id, reason)| format!("{id}: {reason}")).collect();
        if !reasons.is_empty()
            && let Some(count) = self.lines.entry(spec.tenant()).or_default().occurred(Instant::now())
        {
            let reasons = text::line(&reasons.join("; "));
            tracing::warn!(plugin = %spec.id, reasons, count, "runs do not receive inputs");
        }
    }
}

impl Driver {
    /// Returns the inputs of the present configurations, and of the versions that run.
    fn inputs(&self) -> BTreeSet<Arc<InputKind>> {
        let running = self.dispatch.registry.all();
        let present = self.permitted();
        let specs = running.iter().map(|loaded| &loaded.spec).chain(&present).map(|spec| &**spec);
        specs.flat_map(InputKind::of_plugin).map(|(_, input)| input).collect()
    }
}
