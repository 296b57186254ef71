//! [`Life`]: the versions of all plugins that run, and the steps towards the next ones. `steps` has those of one
//! plugin.

mod steps;

use std::{collections::BTreeMap, mem, time::Duration};

use podium_vocabulary::{PluginId, Shards};

use crate::{Bounds, Effect, Event, Parts, Plugin, Ticket, Work, plugin::State, slots::Slots};

/// The most effects of a kind: components that are fetched, compiled and tried.
const BOUNDS: [(Work, Bounds); 3] = [
    (Work::Fetch, Bounds { all: 8, tenant: 2 }),
    (Work::Compile, Bounds { all: 2, tenant: 1 }),
    (Work::Probe, Bounds { all: 2, tenant: 1 }),
];

/// The versions of all plugins that run, and the steps towards the next ones.
#[derive(Clone)]
pub struct Life<P: Parts> {
    pub(crate) plugins: BTreeMap<PluginId, Plugin<P>>,
    pub(crate) common: Common<P>,
}

/// The part that the plugins share.
#[derive(Clone)]
pub(crate) struct Common<P: Parts> {
    rules: P::Rules,
    /// Objects have records.
    keeps: bool,
    /// The shards of tenants whose plugins the host may run.
    owns: Shards,
    pub(crate) slots: BTreeMap<Work, Slots>,
    /// Attempts so far.
    attempts: u64,
    now: Duration,
    effects: Vec<Effect<P>>,
}

impl<P: Parts> Life<P> {
    /// Returns an automaton without plugins. `keeps` if there is a disk for the records of objects.
    pub fn new(rules: P::Rules, keeps: bool) -> Self {
        let slots = BOUNDS.into_iter().map(|(work, bounds)| (work, Slots::new(bounds))).collect();
        let now = Duration::ZERO;
        let common = Common { rules, keeps, owns: Shards::ALL, slots, attempts: 0, now, effects: Vec::new() };
        Self { plugins: BTreeMap::new(), common }
    }

    /// Returns the platform's requirements.
    pub fn rules(&self) -> &P::Rules {
        &self.common.rules
    }

    /// Returns the shards whose plugins the host may run.
    pub fn owns(&self) -> Shards {
        self.common.owns
    }

    /// Returns the names of the plugins.
    pub fn plugins(&self) -> impl Iterator<Item = &PluginId> {
        self.plugins.keys()
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
        self.plugins.values().filter_map(Plugin::due).min()
    }

    /// Processes an event at a time, which never goes back. Returns the effects; those that end permissions come first.
    pub fn step(&mut self, event: Event<P>, now: Duration) -> Vec<Effect<P>> {
        self.common.now = now;
        self.process(event);
        self.start();
        let mut effects = mem::take(&mut self.common.effects);
        effects.sort_by_key(|effect| !matches!(effect, Effect::Restrict(_) | Effect::Remove(_)));
        effects
    }

    fn process(&mut self, event: Event<P>) {
        match event {
            Event::Seen(id, source, want) => {
                self.know(&id);
                self.on(&id, |plugin, common| plugin.seen(source, want, common));
            }
            Event::Meant(id, object) => self.on(&id, |plugin, _| plugin.meant(object)),
            Event::Gone(id, is_file) => {
                // An object beyond the bounds may have a record.
                (!is_file).then(|| self.know(&id));
                self.on(&id, |plugin, common| plugin.gone(is_file, common));
            }
            Event::Beyond(id) => self.on(&id, Plugin::beyond),
            Event::Install(id, load) => self.on(&id, |plugin, common| {
                if plugin.load == load {
                    plugin.may_install = true;
                    plugin.ready(common);
                }
            }),
            Event::Restricted(spec) => self.on(&spec.id.clone(), |plugin, common| plugin.restrict(&spec, common)),
            Event::Rules(rules) => self.common.rules = rules,
            Event::Judged(id) => self.on(&id, Plugin::judge),
            Event::Owned(owns) => {
                let before = mem::replace(&mut self.common.owns, owns);
                let changed = before.without(owns).with(owns.without(before));
                self.on_all(|plugin, _| changed.has(&plugin.id.tenant()), Plugin::owned);
            }
            Event::Time => self.on_all(|plugin, now| plugin.due().is_some_and(|due| due <= now), Plugin::attempt),
            Event::Read(ticket, recorded) => self.present(&ticket, |plugin, common| plugin.read(recorded, common)),
            Event::Fetched(ticket, result) => {
                // A component keeps the slot until its compilation begins.
                if result.is_err() || !self.is_present(&ticket) {
                    self.common.end(Work::Fetch, ticket.attempt);
                }
                self.present(&ticket, |plugin, common| match result {
                    Ok(fetched) => {
                        let state = State::Compiling { waits: true, fetched: Some(fetched) };
                        plugin.wait(Work::Compile, state, common);
                    }
                    Err(failure) => plugin.attempt_failed(failure, common),
                });
            }
            Event::Compiled(ticket, result) => {
                self.common.end(Work::Compile, ticket.attempt);
                self.present(&ticket, |plugin, common| match result {
                    Ok(code) => plugin.compiled(code, common),
                    Err(failure) => plugin.attempt_failed(failure, common),
                });
            }
            Event::Probed(ticket, result) => {
                self.common.end(Work::Probe, ticket.attempt);
                self.present(&ticket, |plugin, common| plugin.probed(result, common));
            }
            Event::Installed(ticket) => self.present(&ticket, |plugin, _| {
                if matches!(plugin.state, State::Installing) {
                    plugin.state = State::Running;
                }
            }),
            Event::Tried(ticket, result) => self.present(&ticket, |plugin, common| plugin.tried(result, common)),
            Event::Removed(id) => self.on(&id, |plugin, _| plugin.removals -= 1),
            Event::Saved(id) => self.on(&id, |plugin, _| plugin.saves = false),
        }
    }

    fn know(&mut self, id: &PluginId) {
        self.plugins.entry(id.clone()).or_insert_with(|| Plugin::new(id.clone()));
    }

    /// Changes a plugin, and what follows from each change: its record is written, its state is published, and it is
    /// forgotten when nothing is left of it.
    fn on(&mut self, id: &PluginId, change: impl FnOnce(&mut Plugin<P>, &mut Common<P>)) {
        let Some(plugin) = self.plugins.get_mut(id) else { return };
        change(plugin, &mut self.common);
        plugin.save(&mut self.common);
        self.common.effects.push(Effect::Publish(id.clone()));
        if plugin.file.is_none() && plugin.object.is_none() && plugin.removals == 0 && !plugin.saves {
            self.plugins.remove(id);
        }
    }

    fn on_all(
        &mut self,
        is_concerned: impl Fn(&Plugin<P>, Duration) -> bool,
        change: impl Fn(&mut Plugin<P>, &mut Common<P>),
    ) {
        let concerned = self.plugins.values().filter(|plugin| is_concerned(plugin, self.common.now));
        for id in concerned.map(|plugin| plugin.id.clone()).collect::<Vec<_>>() {
            self.on(&id, &change);
        }
    }

    /// Changes the plugin if the attempt is the present one.
    fn present(&mut self, ticket: &Ticket, change: impl FnOnce(&mut Plugin<P>, &mut Common<P>)) {
        if self.is_present(ticket) {
            self.on(&ticket.plugin, change);
        }
    }

    /// Begins the effects that have waited for their slots.
    fn start(&mut self) {
        for work in Work::ALL {
            while let Some((attempt, id)) = self.common.slots.get_mut(&work).and_then(Slots::next) {
                let plugin = self.plugins.get_mut(&id).filter(|plugin| plugin.ticket.attempt == attempt);
                match plugin.and_then(Plugin::begun) {
                    Some(effect) => self.common.effects.push(effect),
                    None => self.common.end(work, attempt),
                }
                if work == Work::Compile {
                    self.common.end(Work::Fetch, attempt);
                }
            }
        }
    }
}

impl<P: Parts> Common<P> {
    /// Returns true if the host may run a plugin.
    pub(crate) fn owns(&self, id: &PluginId) -> bool {
        self.owns.has(&id.tenant())
    }

    /// Frees the slot of an effect.
    fn end(&mut self, work: Work, attempt: u64) {
        self.slots.get_mut(&work).into_iter().for_each(|slots| slots.end(attempt));
    }
}
