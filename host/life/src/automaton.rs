//! [`Life`]: which version of each plugin runs, and what is done about the others.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use podium_pods::model::{PluginId, PluginSpec, Tenant};

use crate::{
    Bounds, Effect, Event, From, Object, Parts, Plugin, Record, Recorded, Report, Source, Ticket, Tried, Want, Work,
    plugin::{Restore, State},
    slots::Slots,
};

/// The most effects of a kind: components that are fetched, compiled and tried.
const BOUNDS: [(Work, Bounds); 3] = [
    (Work::Fetch, Bounds { all: 4, tenant: 2 }),
    (Work::Compile, Bounds { all: 2, tenant: 1 }),
    (Work::Probe, Bounds { all: 2, tenant: 1 }),
];

/// Which version of each plugin runs, and what is done about the others.
#[derive(Clone)]
pub struct Life<P: Parts> {
    rules: P::Rules,
    /// Objects have records.
    keeps: bool,
    pub(crate) plugins: BTreeMap<PluginId, Plugin<P>>,
    /// The tenants whose plugins the host may not run.
    unowned: BTreeSet<Tenant>,
    pub(crate) slots: BTreeMap<Work, Slots>,
    pub(crate) attempts: u64,
}

type Effects<P> = Vec<Effect<P>>;

impl<P: Parts> Life<P> {
    /// Returns an automaton without plugins. `keeps` if there is a disk for the records of objects.
    pub fn new(rules: P::Rules, keeps: bool) -> Self {
        let slots = BOUNDS.into_iter().map(|(work, bounds)| (work, Slots::new(bounds))).collect();
        Self { rules, keeps, plugins: BTreeMap::new(), unowned: BTreeSet::new(), slots, attempts: 0 }
    }

    /// Returns the platform's requirements.
    pub fn rules(&self) -> &P::Rules {
        &self.rules
    }

    /// Returns the state of a plugin.
    pub fn plugin(&self, id: &PluginId) -> Option<&Plugin<P>> {
        self.plugins.get(id)
    }

    /// Returns true if the attempt is the present one.
    pub fn is_present(&self, ticket: &Ticket) -> bool {
        self.plugins.get(&ticket.plugin).is_some_and(|plugin| plugin.ticket == *ticket)
    }

    /// Returns when [`Event::Time`] is due.
    pub fn due(&self) -> Option<Duration> {
        let due = |plugin: &Plugin<P>| match plugin.state {
            State::Waiting { due } => Some(due),
            _ => None,
        };
        self.plugins.values().filter_map(due).min()
    }

    /// Processes an event at a time, which never goes back. Returns the effects; those that end permissions come first.
    pub fn step(&mut self, event: Event<P>, now: Duration) -> Vec<Effect<P>> {
        let mut effects = Vec::new();
        self.process(event, now, &mut effects);
        self.start(&mut effects);
        effects.sort_by_key(|effect| !matches!(effect, Effect::Restrict(_) | Effect::Remove(_)));
        effects
    }

    fn process(&mut self, event: Event<P>, now: Duration, effects: &mut Effects<P>) {
        match event {
            Event::Seen(id, source, want) => self.seen(&id, source, want, now, effects),
            Event::Meant(id, object) => self.meant(&id, object, effects),
            Event::Gone(id, is_file) => self.gone(&id, is_file, now, effects),
            Event::Install(id, load) => {
                if let Some(plugin) = self.plugins.get_mut(&id).filter(|plugin| plugin.load == load) {
                    plugin.may_install = true;
                    self.ready(&id, effects);
                }
            }
            Event::Restricted(spec) => {
                if let Some(plugin) = self.plugins.get_mut(&spec.id) {
                    restrict(plugin, &spec, effects);
                    effects.push(Effect::Publish(spec.id.clone()));
                }
            }
            Event::Rules(rules) => {
                self.rules = rules;
                for id in self.plugins.keys().cloned().collect::<Vec<_>>() {
                    self.stop_refused(&id, effects);
                    self.begin(&id, now, effects);
                }
            }
            Event::Owned(tenant, is_owned) => self.owned(&tenant, is_owned, now, effects),
            Event::Time => self.retry(now, effects),
            Event::Read(ticket, recorded) => self.read(&ticket, recorded, now, effects),
            Event::Fetched(ticket, result) => self.fetched(&ticket, result, now, effects),
            Event::Compiled(ticket, result) => self.compiled(&ticket, result, now, effects),
            Event::Probed(ticket, result) => self.probed(&ticket, result, now, effects),
            Event::Installed(ticket) => {
                if let Some(plugin) = self.present(&ticket)
                    && matches!(plugin.state, State::Installing)
                {
                    plugin.state = State::Running;
                }
            }
            Event::Tried(ticket, result) => self.tried(&ticket, result, effects),
            Event::Removed(id) => self.ended(&id, |plugin| plugin.removals -= 1, effects),
            Event::Saved(id) => {
                self.ended(&id, |plugin| plugin.saves = false, effects);
                effects.push(Effect::Publish(id));
            }
        }
    }

    fn present(&mut self, ticket: &Ticket) -> Option<&mut Plugin<P>> {
        self.plugins.get_mut(&ticket.plugin).filter(|plugin| plugin.ticket == *ticket)
    }

    fn seen(&mut self, id: &PluginId, source: Source, want: Want<P>, now: Duration, effects: &mut Effects<P>) {
        let plugin = self.plugins.entry(id.clone()).or_insert_with(|| Plugin::new(id.clone()));
        match source {
            Source::File(may_install) => {
                if plugin.file.is_none() && plugin.is_wanted() {
                    self.unload(id, effects);
                }
                let Some(plugin) = self.plugins.get_mut(id) else { return };
                (plugin.file, plugin.may_install) = (Some(want), may_install);
            }
            Source::Object(object) => {
                let is_other = plugin.object.as_ref().is_none_or(|(before, _)| before.uid != object.uid);
                if plugin.file.is_some() {
                    plugin.object = Some((object, want));
                    return;
                }
                if is_other {
                    self.unload(id, effects);
                }
                let Some(plugin) = self.plugins.get_mut(id) else { return };
                if is_other {
                    plugin.is_of(&object, self.keeps);
                }
                plugin.may_install = true;
                plugin.object = Some((object, want));
            }
        }
        self.begin(id, now, effects);
    }

    fn meant(&mut self, id: &PluginId, object: Object, effects: &mut Effects<P>) {
        let Some(plugin) = self.plugins.get_mut(id) else { return };
        let Some((before, _)) = plugin.object.as_mut().filter(|(before, _)| before.uid == object.uid) else { return };
        if *before == object {
            return;
        }
        let (generation, spec) = (object.generation, object.spec.clone());
        let was_of = before.spec.clone();
        *before = object;
        if plugin.is_latest
            && let Some(ran) = plugin.installed.as_mut().and_then(|version| version.ran.as_mut())
        {
            (ran.generation, ran.spec) = (generation, spec.to_string());
        }
        // A restart finds the version and the refusal under the spec that the object has then.
        plugin.note(|record, _| {
            if let Some(ran) = record.ran.as_mut().filter(|ran| *ran.spec == *was_of) {
                (ran.generation, ran.spec) = (generation, spec.to_string());
            }
            if let Some(refused) = record.refused.as_mut().filter(|refused| *refused.spec == *was_of) {
                refused.spec = spec.to_string();
            }
        });
        self.save(id, effects);
        effects.push(Effect::Publish(id.clone()));
    }

    fn gone(&mut self, id: &PluginId, is_file: bool, now: Duration, effects: &mut Effects<P>) {
        let Some(plugin) = self.plugins.get_mut(id) else { return };
        let is_there = if is_file { plugin.file.is_some() } else { plugin.object.is_some() };
        let counts = is_there && (is_file || plugin.file.is_none());
        if counts {
            self.unload(id, effects);
        }
        let Some(plugin) = self.plugins.get_mut(id) else { return };
        if !is_there {
            return;
        }
        if is_file {
            plugin.file = None;
            if let Some((object, _)) = plugin.object.clone() {
                plugin.is_of(&object, self.keeps);
                plugin.may_install = true;
            }
        } else {
            plugin.object = None;
        }
        if counts && plugin.is_wanted() {
            self.begin(id, now, effects);
        }
        self.ended(id, |_| {}, effects);
    }

    /// Removes the installed version and all that is known of it.
    fn unload(&mut self, id: &PluginId, effects: &mut Effects<P>) {
        let Some(plugin) = self.plugins.get_mut(id) else { return };
        if !plugin.is_wanted() {
            return;
        }
        let was_loaded = plugin.installed.is_some() || matches!(plugin.state, State::Suspended);
        plugin.remove(effects);
        plugin.note_stopped();
        (plugin.state, plugin.failure) = (State::Gone, None);
        self.next_attempt(id);
        if was_loaded {
            effects.push(Effect::Report(id.clone(), Report::Unloaded));
        }
        self.save(id, effects);
        effects.push(Effect::Publish(id.clone()));
    }

    /// Begins a load. Runs that it does not permit have ended when the effects so far are applied.
    fn begin(&mut self, id: &PluginId, now: Duration, effects: &mut Effects<P>) {
        let load = self.next_attempt(id);
        let Some(plugin) = self.plugins.get_mut(id) else { return };
        let Some(want) = plugin.want().cloned() else { return };
        (plugin.load, plugin.failure) = (load, None);
        (plugin.is_latest, plugin.before) = (false, None);
        if let Some(spec) = want.permissions() {
            restrict(plugin, spec, effects);
        }
        // Another spec may be tried, and this one after it.
        plugin.note(|record, object| {
            record.refused = record.refused.take().filter(|refused| *refused.spec == *object.spec);
        });
        effects.push(Effect::Publish(id.clone()));
        match want {
            Want::Run(_) => self.attempt(id, now, effects),
            Want::Mistaken { failure, .. } => self.fail(id, failure, None, effects),
        }
    }

    /// Removes the version that runs, if the platform's requirements do not permit it any more.
    fn stop_refused(&mut self, id: &PluginId, effects: &mut Effects<P>) {
        let Some(plugin) = self.plugins.get_mut(id) else { return };
        if plugin.installed.as_ref().is_some_and(|version| P::refuse(&self.rules, &version.spec).is_some()) {
            plugin.remove(effects);
            plugin.note_stopped();
            effects.push(Effect::Report(id.clone(), Report::Stopped));
            self.save(id, effects);
        }
    }

    /// Gives the plugin a new ticket; what comes back with the one before changes nothing. Returns its number.
    fn next_attempt(&mut self, id: &PluginId) -> u64 {
        self.attempts += 1;
        if let Some(plugin) = self.plugins.get(id) {
            let (attempt, state) = (plugin.ticket.attempt, &plugin.state);
            // What is fetched and waits for its compilation is dropped.
            let is_fetched = matches!(state, State::Compiling { waits: true, .. });
            self.slots.values_mut().for_each(|slots| slots.give_up(attempt));
            if is_fetched {
                self.end_work(Work::Fetch, attempt);
            }
        }
        if let Some(plugin) = self.plugins.get_mut(id) {
            let object = plugin.object();
            let (uid, generation) =
                object.map_or_else(|| ("".into(), 0), |object| (object.uid.clone(), object.generation));
            plugin.ticket = Ticket { plugin: id.clone(), uid, generation, attempt: self.attempts };
            plugin.restoring = false;
        }
        self.attempts
    }

    /// Begins an attempt: with the version that ran before the host's start, if there is one.
    fn attempt(&mut self, id: &PluginId, now: Duration, effects: &mut Effects<P>) {
        let is_owned = self.is_owned(id);
        let Some(plugin) = self.plugins.get_mut(id) else { return };
        let Some(Want::Run(spec)) = plugin.want().cloned() else { return };
        let recorded = match &plugin.restore {
            _ if spec.suspend => return self.attempt_spec(id, "", now, effects),
            Restore::Done => return self.attempt_spec(id, "", now, effects),
            Restore::Wanted(_) if !is_owned => return self.attempt_spec(id, "", now, effects),
            Restore::Unread => {
                plugin.state = State::Reading;
                effects.push(Effect::Read(plugin.ticket.clone()));
                return;
            }
            Restore::Wanted(recorded) => recorded.clone(),
        };
        let refuse = |before: &PluginSpec| P::refuse(&self.rules, before).map(|failure| failure.to_string());
        let found = recorded.spec.and_then(|before| match refuse(&before) {
            _ if !spec.permits(&before) => Err("the spec does not permit all that it may do".to_owned()),
            Some(error) => Err(error),
            None => Ok(before),
        });
        match found {
            Err(error) => self.not_restored(id, error, now, effects),
            Ok(before) => {
                plugin.restoring = true;
                self.fetch(id, &before);
            }
        }
    }

    /// Goes on without the version that ran before the host's start.
    fn not_restored(&mut self, id: &PluginId, error: String, now: Duration, effects: &mut Effects<P>) {
        self.next_attempt(id);
        let Some(plugin) = self.plugins.get_mut(id) else { return };
        let generation = plugin.record.ran.as_ref().map_or(0, |ran| ran.generation);
        plugin.restore = Restore::Done;
        let note = format!("; the version of generation {generation} cannot be run again: {error}");
        effects.push(Effect::Report(id.clone(), Report::NotRestored(generation, error)));
        self.attempt_spec(id, &note, now, effects);
    }

    /// Begins an attempt with the present configuration. `note` says why no version before it runs.
    fn attempt_spec(&mut self, id: &PluginId, note: &str, now: Duration, effects: &mut Effects<P>) {
        let Some(plugin) = self.plugins.get_mut(id) else { return };
        let Some(Want::Run(spec)) = plugin.want().cloned() else { return };
        let refused = plugin.refused().filter(|_| !spec.suspend).map(|refused| P::tried(&refused, note));
        if let Some(failure) = refused.or_else(|| P::refuse(&self.rules, &spec)) {
            self.fail(id, failure, Some(now), effects);
        } else if spec.suspend {
            plugin.state = State::Ready { code: None, pods: None };
            self.ready(id, effects);
        } else {
            self.fetch(id, &spec);
        }
    }

    fn fetch(&mut self, id: &PluginId, spec: &PluginSpec) {
        let Some(plugin) = self.plugins.get_mut(id) else { return };
        let (state, work) = match spec.source.file() {
            Some(_) => (State::Compiling { waits: true, fetched: None }, Work::Compile),
            None => (State::Fetching { waits: true }, Work::Fetch),
        };
        plugin.state = state;
        let attempt = plugin.ticket.attempt;
        self.wait(work, attempt, id);
    }

    fn wait(&mut self, work: Work, attempt: u64, id: &PluginId) {
        if let Some(slots) = self.slots.get_mut(&work) {
            slots.wait(attempt, id);
        }
    }

    fn end_work(&mut self, work: Work, attempt: u64) {
        if let Some(slots) = self.slots.get_mut(&work) {
            slots.end(attempt);
        }
    }

    /// Begins the effects that have waited for their slots.
    fn start(&mut self, effects: &mut Effects<P>) {
        for work in Work::ALL {
            while let Some((attempt, id)) = self.slots.get_mut(&work).and_then(Slots::next) {
                let plugin = self.plugins.get_mut(&id).filter(|plugin| plugin.ticket.attempt == attempt);
                match plugin.and_then(Plugin::begun) {
                    Some(effect) => effects.push(effect),
                    None => self.end_work(work, attempt),
                }
                if work == Work::Compile {
                    self.end_work(Work::Fetch, attempt);
                }
            }
        }
    }

    fn read(&mut self, ticket: &Ticket, recorded: Option<Recorded>, now: Duration, effects: &mut Effects<P>) {
        let Some(plugin) = self.present(ticket) else { return };
        let Some(object) = plugin.object().cloned() else { return };
        plugin.restore = Restore::Done;
        if let Some(recorded) = recorded.filter(|recorded| *recorded.record.uid == *object.uid) {
            plugin.record = recorded.record.clone();
            // The same version is loaded as any other.
            if plugin.record.ran.as_ref().is_some_and(|ran| *ran.spec != *object.spec) {
                plugin.restore = Restore::Wanted(recorded);
            }
        }
        self.attempt(&ticket.plugin, now, effects);
    }

    fn fetched(
        &mut self,
        ticket: &Ticket,
        result: Result<P::Fetched, P::Failure>,
        now: Duration,
        effects: &mut Effects<P>,
    ) {
        let is_present = self.is_present(ticket);
        match result {
            Ok(fetched) if is_present => {
                let Some(plugin) = self.present(ticket) else { return };
                plugin.state = State::Compiling { waits: true, fetched: Some(fetched) };
                self.wait(Work::Compile, ticket.attempt, &ticket.plugin);
            }
            result => {
                self.end_work(Work::Fetch, ticket.attempt);
                if let (Err(failure), true) = (result, is_present) {
                    self.attempt_failed(&ticket.plugin, failure, now, effects);
                }
            }
        }
    }

    fn compiled(
        &mut self,
        ticket: &Ticket,
        result: Result<P::Code, P::Failure>,
        now: Duration,
        effects: &mut Effects<P>,
    ) {
        self.end_work(Work::Compile, ticket.attempt);
        let is_owned = self.is_owned(&ticket.plugin);
        let Some(plugin) = self.present(ticket) else { return };
        let Some(spec) = plugin.attempted() else { return };
        match result {
            Err(failure) => self.attempt_failed(&ticket.plugin, failure, now, effects),
            Ok(code) if plugin.restoring => self.restored(&ticket.plugin, spec, code, now, effects),
            Ok(code) if is_owned && plugin.running().is_some_and(|before| is_tried::<P>(before, &spec, &code)) => {
                plugin.state = State::Probing { waits: true, code };
                self.wait(Work::Probe, ticket.attempt, &ticket.plugin);
            }
            Ok(code) => {
                plugin.state = State::Ready { code: Some(code), pods: None };
                self.ready(&ticket.plugin, effects);
            }
        }
    }

    /// The version that ran before the host's start runs again, and the present configuration is loaded.
    fn restored(
        &mut self,
        id: &PluginId,
        spec: Arc<PluginSpec>,
        code: P::Code,
        now: Duration,
        effects: &mut Effects<P>,
    ) {
        let Some(plugin) = self.plugins.get_mut(id) else { return };
        let version = plugin.version(spec.clone(), code.clone());
        let generation = version.ran.as_ref().map_or(0, |ran| ran.generation);
        (plugin.installed, plugin.is_revoked) = (Some(version), false);
        (plugin.restore, plugin.unprobed) = (Restore::Done, false);
        effects.push(Effect::Install { ticket: plugin.ticket.clone(), spec, code, trial: false });
        effects.push(Effect::Report(id.clone(), Report::Restored(generation)));
        effects.push(Effect::Publish(id.clone()));
        self.next_attempt(id);
        self.attempt_spec(id, "", now, effects);
    }

    fn attempt_failed(&mut self, id: &PluginId, failure: P::Failure, now: Duration, effects: &mut Effects<P>) {
        match self.plugins.get(id) {
            Some(plugin) if plugin.restoring => self.not_restored(id, failure.to_string(), now, effects),
            _ => self.fail(id, failure, Some(now), effects),
        }
    }

    fn probed(&mut self, ticket: &Ticket, result: Result<usize, String>, now: Duration, effects: &mut Effects<P>) {
        self.end_work(Work::Probe, ticket.attempt);
        let id = &ticket.plugin;
        let Some(plugin) = self.present(ticket) else { return };
        match (result, std::mem::replace(&mut plugin.state, State::Gone)) {
            (Ok(pods), State::Probing { code, .. }) => {
                plugin.state = State::Ready { code: Some(code), pods: Some(pods) };
                self.ready(id, effects);
            }
            (Err(error), State::Probing { .. }) => {
                let failure = P::tried(&plugin.note_refused(Tried::Before, &error), "");
                self.fail(id, failure, Some(now), effects);
            }
            (_, state) => plugin.state = state,
        }
    }

    /// Installs the version that is ready, or takes out the one of a plugin that is suspended, if that is permitted.
    fn ready(&mut self, id: &PluginId, effects: &mut Effects<P>) {
        let is_owned = self.is_owned(id);
        let Some(plugin) = self.plugins.get_mut(id) else { return };
        let (State::Ready { code, pods }, true) = (&plugin.state, plugin.may_install) else { return };
        let (Some(spec), code, pods) = (plugin.attempted(), code.clone(), *pods) else { return };
        let Some(code) = code else {
            plugin.remove(effects);
            plugin.note_stopped();
            plugin.state = State::Suspended;
            effects.push(Effect::Report(id.clone(), Report::Suspended));
            self.save(id, effects);
            effects.push(Effect::Publish(id.clone()));
            return;
        };
        if !is_owned {
            return;
        }
        let before = pods.and_then(|_| plugin.running().filter(|before| spec.permits(&before.spec)).cloned());
        let trial = before.is_some();
        plugin.installed = Some(plugin.version(spec.clone(), code.clone()));
        (plugin.before, plugin.is_revoked, plugin.is_latest) = (before, false, true);
        (plugin.unprobed, plugin.failure, plugin.restore) = (pods == Some(0), None, Restore::Done);
        plugin.state = State::Installing;
        if !trial {
            plugin.note_ran();
        }
        effects.push(Effect::Install { ticket: plugin.ticket.clone(), spec, code, trial });
        self.save(id, effects);
        effects.push(Effect::Publish(id.clone()));
    }

    fn tried(&mut self, ticket: &Ticket, result: Result<(), String>, effects: &mut Effects<P>) {
        let id = &ticket.plugin;
        let Some(plugin) = self.present(ticket) else { return };
        let Some(before) = plugin.before.take() else { return };
        match result {
            _ if plugin.is_revoked => return,
            Ok(()) => plugin.note_ran(),
            Err(error) => {
                let failure = P::tried(&plugin.note_refused(Tried::After, &error), "");
                let (spec, code) = (before.spec.clone(), before.code.clone());
                (plugin.installed, plugin.is_latest, plugin.unprobed) = (Some(before), false, false);
                (plugin.state, plugin.failure) = (State::Refused, Some((failure.clone(), 1)));
                effects.push(Effect::Install { ticket: ticket.clone(), spec, code, trial: false });
                effects.push(Effect::Report(id.clone(), Report::RolledBack(failure)));
            }
        }
        self.save(id, effects);
        effects.push(Effect::Publish(id.clone()));
    }

    /// Ends an attempt. A version that runs goes on only if the new configuration permits all that it may do. `now` if
    /// there may be another attempt.
    fn fail(&mut self, id: &PluginId, failure: P::Failure, now: Option<Duration>, effects: &mut Effects<P>) {
        let Some(plugin) = self.plugins.get_mut(id) else { return };
        let failures = plugin.failure.as_ref().map_or(1, |(_, failures)| failures.saturating_add(1));
        let wait = now.and_then(|now| Some((now, P::retry(&failure, failures)?)));
        plugin.state = wait.map_or(State::Refused, |(now, wait)| State::Waiting { due: now + wait });
        plugin.failure = Some((failure.clone(), failures));
        plugin.may_install = true;
        let wait = wait.map(|(_, wait)| wait);
        effects.push(Effect::Report(id.clone(), Report::Failed(failure, failures, wait)));
        if !plugin.may_stay() && plugin.remove(effects) {
            plugin.note_stopped();
            effects.push(Effect::Report(id.clone(), Report::Stopped));
        }
        self.save(id, effects);
        effects.push(Effect::Publish(id.clone()));
    }

    fn retry(&mut self, now: Duration, effects: &mut Effects<P>) {
        let is_due = |plugin: &&Plugin<P>| matches!(plugin.state, State::Waiting { due } if due <= now);
        let due: Vec<_> = self.plugins.values().filter(is_due).map(|plugin| plugin.id.clone()).collect();
        for id in due {
            self.next_attempt(&id);
            self.attempt(&id, now, effects);
        }
    }

    fn is_owned(&self, id: &PluginId) -> bool {
        !self.unowned.contains(&id.tenant())
    }

    /// What is not owned is fetched and compiled, and neither tried nor run.
    fn owned(&mut self, tenant: &Tenant, is_owned: bool, now: Duration, effects: &mut Effects<P>) {
        let has_changed = if is_owned { self.unowned.remove(tenant) } else { self.unowned.insert(tenant.clone()) };
        let of_tenant = self.plugins.keys().filter(|id| has_changed && id.tenant() == *tenant);
        for id in of_tenant.cloned().collect::<Vec<_>>() {
            let Some(plugin) = self.plugins.get_mut(&id) else { continue };
            let was_there = plugin.remove(effects);
            let begins = match plugin.state {
                State::Gone | State::Suspended => false,
                State::Installing | State::Running => was_there,
                State::Probing { .. } => true,
                _ => plugin.restoring || is_owned && matches!(plugin.restore, Restore::Wanted(_)),
            };
            if begins {
                self.next_attempt(&id);
                self.attempt(&id, now, effects);
            } else if is_owned {
                self.ready(&id, effects);
            }
            effects.push(Effect::Publish(id));
        }
    }

    /// Has the record written, if it has changed and is not being written.
    fn save(&mut self, id: &PluginId, effects: &mut Effects<P>) {
        let keeps = self.keeps;
        let Some(plugin) = self.plugins.get_mut(id).filter(|plugin| plugin.is_dirty && !plugin.saves) else { return };
        plugin.is_dirty = false;
        if keeps {
            plugin.saves = true;
            let record = Some(plugin.record.clone()).filter(|record| record.ran.is_some());
            effects.push(Effect::Save(id.clone(), record));
        }
    }

    /// Records that an effect has ended, and forgets a plugin of which nothing is left.
    fn ended(&mut self, id: &PluginId, ended: impl FnOnce(&mut Plugin<P>), effects: &mut Effects<P>) {
        let Some(plugin) = self.plugins.get_mut(id) else { return };
        ended(plugin);
        self.save(id, effects);
        let is_over = |plugin: &Plugin<P>| {
            plugin.file.is_none() && plugin.object.is_none() && plugin.removals == 0 && !plugin.saves
        };
        if self.plugins.get(id).is_some_and(is_over) {
            self.plugins.remove(id);
        }
    }
}

impl<P: Parts> Plugin<P> {
    /// Returns the effect whose turn it is.
    fn begun(&mut self) -> Option<Effect<P>> {
        let (ticket, spec, object) = (self.ticket.clone(), self.attempted()?, self.object().cloned());
        match &mut self.state {
            State::Fetching { waits } => {
                *waits = false;
                let from = match &self.restore {
                    Restore::Wanted(Recorded { record, .. }) if self.restoring => {
                        From::Disk(record.ran.as_ref().and_then(|ran| ran.manifest.clone()))
                    }
                    _ => From::Source,
                };
                Some(Effect::Fetch(ticket, spec, object, from))
            }
            State::Compiling { waits, fetched } => {
                *waits = false;
                Some(Effect::Compile(ticket, spec, fetched.take()))
            }
            State::Probing { waits, code } => {
                *waits = false;
                Some(Effect::Probe(ticket, spec, code.clone()))
            }
            _ => None,
        }
    }

    /// The plugin is of an object that it was not of before.
    fn is_of(&mut self, object: &Object, keeps: bool) {
        self.record = Record::new(&object.uid);
        // What is being written or removed is of this host.
        let is_of_before = keeps && !self.is_dirty && !self.saves;
        self.restore = if is_of_before { Restore::Unread } else { Restore::Done };
    }

    /// Removes the installed version. Returns false if there is none.
    fn remove(&mut self, effects: &mut Effects<P>) -> bool {
        self.before = None;
        let was_there = self.installed.take().is_some();
        if was_there {
            (self.is_revoked, self.is_latest) = (false, false);
            self.removals += 1;
            effects.push(Effect::Remove(self.id.clone()));
        }
        was_there
    }
}

/// Ends the runs of the installed version if a configuration does not permit all that it may do.
fn restrict<P: Parts>(plugin: &mut Plugin<P>, spec: &Arc<PluginSpec>, effects: &mut Effects<P>) {
    if plugin.running().is_some_and(|version| !spec.permits(&version.spec)) {
        (plugin.is_revoked, plugin.before) = (true, None);
        effects.push(Effect::Restrict(spec.clone()));
        effects.push(Effect::Report(plugin.id.clone(), Report::Restricted));
    }
}

/// Whether a version can be kept instead of a new one, and differs from it in more than permissions and order.
fn is_tried<P: Parts>(before: &crate::Version<P::Code>, spec: &PluginSpec, code: &P::Code) -> bool {
    spec.permits(&before.spec) && (!P::is_same(&before.code, code) || before.spec.config != spec.config)
}
