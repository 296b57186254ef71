//! Every state that a plugin of one name can reach, whatever its sources, the policy, the ownership and the effects do.
//! This file has the world around the automaton, and its promises; `claims` visits the states.

mod claims;

use std::{
    cell::Cell,
    collections::{BTreeMap, VecDeque},
    fmt::{self, Write},
    sync::Arc,
    time::Duration,
};

use podium_pods::testing;
use podium_vocabulary::{PluginId, PluginSpec, Shards, Source as Place};

use super::*;
use crate::plugin::{Restore, State};

#[derive(Clone)]
struct Test;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Failure {
    Final,
    MayPass,
    OfRules,
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("it failed")
    }
}

thread_local! {
    /// How many specs were compared with rules.
    static JUDGED: Cell<usize> = const { Cell::new(0) };
}

impl Parts for Test {
    /// False if plugins may not delete Pods.
    type Rules = bool;
    type Fetched = ();
    /// The configuration that it was compiled for.
    type Code = String;
    type Failure = Failure;

    fn refuse(rules: &bool, spec: &PluginSpec) -> Option<Failure> {
        JUDGED.set(JUDGED.get() + 1);
        (!rules && spec.grants.write.delete).then_some(Failure::OfRules)
    }

    /// No rules know the signature of `x`.
    fn stays(rules: &bool, spec: &PluginSpec, code: &String) -> bool {
        Self::refuse(rules, spec).is_none() && code != "x"
    }

    fn depends(failure: &Failure) -> bool {
        *failure == Failure::OfRules
    }

    fn is_same(one: &String, other: &String) -> bool {
        one == other
    }

    fn manifest(_: &String) -> Option<String> {
        None
    }

    fn retry(failure: &Failure, _: u32) -> Option<Duration> {
        (*failure == Failure::MayPass).then_some(Duration::from_secs(1))
    }

    fn tried(_: &Refused, _: &str) -> Failure {
        Failure::Final
    }
}

/// `v`, `w` and `x` may delete Pods, `n` may not, and `s` is suspended.
fn spec(id: &PluginId, config: &str) -> Arc<PluginSpec> {
    let namespace = "shop".into();
    let name = "c".into();
    let key = "k".into();
    let sha256 = String::new();
    let mut spec = PluginSpec {
        source: Place::ConfigMap { namespace, name, key, sha256 },
        config: config.into(),
        ..testing::plugin(id.namespace.as_deref(), &id.name)
    };
    spec.grants.write.delete = matches!(config, "v" | "w" | "x");
    spec.suspend = config == "s";
    Arc::new(spec)
}

fn object(uid: &str, config: &str) -> Object {
    Object {
        uid: uid.into(),
        generation: i64::from(config.as_bytes()[0]),
        spec: config.into(),
        held: false,
        ran: false,
    }
}

fn id(name: &str) -> PluginId {
    PluginId { namespace: Some("shop".into()), name: name.into() }
}

fn want(id: &PluginId, config: &str) -> Want<Test> {
    match config {
        // The permissions of `n` are known.
        "m" => Want::Mistaken { failure: Failure::Final, permissions: Some(spec(id, "n")) },
        _ => Want::Run(spec(id, config)),
    }
}

/// An effect that has not ended.
#[derive(Debug, Clone, PartialEq)]
enum Pending {
    Read(Ticket),
    Fetch(Ticket),
    Compile(Ticket, String),
    Probe(Ticket),
    Installed(Ticket),
    Trial(Ticket),
    Removed(PluginId),
    Save(PluginId, Option<Record>),
}

/// How an effect ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Succeeds,
    Fails,
    MayPass,
}

/// A change from outside.
#[derive(Debug, Clone, Copy)]
enum Change {
    Object(&'static str, &'static str, &'static str),
    ObjectGone(&'static str),
    Beyond(&'static str),
    File(&'static str, &'static str),
    FileGone(&'static str),
    Rules(bool),
    Owned(bool),
    Restart,
}

/// The version in the registry.
#[derive(Debug, Clone)]
struct Installed {
    spec: Arc<PluginSpec>,
    uid: Arc<str>,
    is_revoked: bool,
}

#[derive(Clone)]
struct World {
    life: Life<Test>,
    pending: Vec<Pending>,
    registry: BTreeMap<PluginId, Installed>,
    disk: BTreeMap<PluginId, Record>,
    is_owned: bool,
    /// A record may be of an object that is not known: none has counted since the start, or it is beyond the bounds.
    may_leave: bool,
    now: Duration,
}

impl World {
    fn new() -> Self {
        let (pending, registry, disk) = <_>::default();
        let is_owned = true;
        let may_leave = true;
        let now = Duration::ZERO;
        Self { life: Life::new(true, true), pending, registry, disk, is_owned, may_leave, now }
    }

    fn step(&mut self, event: Event<Test>) {
        let effects = self.life.step(event, self.now);
        let ends = |effect: &Effect<Test>| matches!(effect, Effect::Restrict(_) | Effect::Remove(_));
        assert!(effects.is_sorted_by_key(|effect| !ends(effect)), "permissions end first");
        for effect in effects {
            match effect {
                Effect::Restrict(spec) => {
                    let installed = self.registry.get_mut(&spec.id).unwrap();
                    installed.is_revoked |= !spec.permits(&installed.spec);
                }
                Effect::Remove(id) => {
                    self.registry.remove(&id).unwrap();
                    self.pending.push(Pending::Removed(id));
                }
                Effect::Read(ticket) => self.pending.push(Pending::Read(ticket)),
                Effect::Fetch(ticket, ..) => self.pending.push(Pending::Fetch(ticket)),
                Effect::Compile(ticket, spec, _) => {
                    self.pending.push(Pending::Compile(ticket, spec.config.to_string()))
                }
                Effect::Probe(ticket, ..) => self.pending.push(Pending::Probe(ticket)),
                Effect::Install { ticket, spec, trial, .. } => {
                    let installed = Installed { spec, uid: ticket.uid.clone(), is_revoked: false };
                    self.registry.insert(ticket.plugin.clone(), installed);
                    self.pending.push(Pending::Installed(ticket.clone()));
                    self.pending.extend(trial.then_some(Pending::Trial(ticket)));
                }
                Effect::Save(id, record) => {
                    let saves = |pending: &Pending| matches!(pending, Pending::Save(other, _) if *other == id);
                    assert!(!self.pending.iter().any(saves), "one at a time");
                    self.pending.push(Pending::Save(id, record));
                }
                Effect::Publish(_) | Effect::Report(..) => {}
            }
        }
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::Object(name, uid, config) => {
                let id = id(name);
                let want = want(&id, config);
                self.may_leave &= self.life.plugin(&id).is_some_and(|plugin| plugin.file.is_some());
                self.step(Event::Seen(id, Source::Object(object(uid, config)), want));
            }
            Change::ObjectGone(name) => {
                self.may_leave = false;
                self.step(Event::Gone(id(name), false));
            }
            Change::Beyond(name) => {
                self.may_leave = true;
                self.step(Event::Beyond(id(name)));
            }
            Change::File(name, config) => {
                let id = id(name);
                let want = want(&id, config);
                self.step(Event::Seen(id, Source::File(true), want));
            }
            Change::FileGone(name) => self.step(Event::Gone(id(name), true)),
            Change::Rules(rules) => {
                self.step(Event::Rules(rules));
                self.judge();
            }
            Change::Owned(is_owned) => {
                self.is_owned = is_owned;
                self.step(Event::Owned(if is_owned { Shards::ALL } else { Shards::NONE }));
            }
            Change::Restart => {
                let disk = std::mem::take(&mut self.disk);
                *self = Self { disk, life: Life::new(self.life.rules().to_owned(), true), ..Self::new() };
            }
        }
    }

    fn judge(&mut self) {
        let plugins: Vec<_> = self.life.plugins().cloned().collect();
        for plugin in plugins {
            let judged = JUDGED.get();
            self.step(Event::Judged(plugin));
            assert!(JUDGED.get() <= judged + 4, "no step is about all plugins");
        }
    }

    fn end(&mut self, at: usize, end: End) {
        let failure = if end == End::MayPass { Failure::MayPass } else { Failure::Final };
        let is_good = end == End::Succeeds;
        let event = match self.pending.remove(at) {
            Pending::Read(ticket) => {
                let record = self.disk.get(&ticket.plugin).cloned();
                let recorded = record.map(|record| {
                    let ran = record.ran.as_ref().map_or("n", |ran| &*ran.spec);
                    Recorded { spec: Ok(spec(&ticket.plugin, ran)), record }
                });
                Event::Read(ticket, recorded.filter(|_| is_good))
            }
            Pending::Fetch(ticket) => Event::Fetched(ticket, if is_good { Ok(()) } else { Err(failure) }),
            Pending::Compile(ticket, config) => {
                Event::Compiled(ticket, if is_good { Ok(config) } else { Err(failure) })
            }
            Pending::Probe(ticket) => Event::Probed(ticket, if is_good { Ok(1) } else { Err("it failed".into()) }),
            Pending::Installed(ticket) => Event::Installed(ticket),
            Pending::Trial(ticket) => Event::Tried(ticket, if is_good { Ok(()) } else { Err("it failed".into()) }),
            Pending::Removed(id) => Event::Removed(id),
            Pending::Save(id, record) => {
                match record {
                    Some(record) => drop(self.disk.insert(id.clone(), record)),
                    None => drop(self.disk.remove(&id)),
                }
                Event::Saved(id)
            }
        };
        self.step(event);
    }

    fn time(&mut self) -> bool {
        let due = self.life.due();
        if let Some(due) = due {
            self.now = self.now.max(due);
            self.step(Event::Time);
        }
        due.is_some()
    }

    /// Describes the plugins as if none waited for a slot.
    fn plugins_but_slots(&self) -> Vec<String> {
        let plugins = self.life.plugins.values().map(described);
        let begun =
            |text: String| text.replace("compilingtruetrue", "compilingfalsefalse").replace("ingtrue", "ingfalse");
        plugins.map(begun).collect()
    }

    /// Describes all that decides what comes next.
    fn described(&self) -> String {
        let mut text = String::new();
        for (id, plugin) in &self.life.plugins {
            let _ = write!(text, "{}:{}", id.name, described(plugin));
        }
        let mut pending: Vec<String> = self.pending.iter().map(|pending| self.pended(pending)).collect();
        pending.sort_unstable();
        for (id, installed) in &self.registry {
            let _ = write!(text, "|{}{}{}{}", id.name, installed.spec.config, installed.uid, installed.is_revoked);
        }
        for (id, record) in &self.disk {
            let _ = write!(text, "|{}{}", id.name, recorded(record));
        }
        for slots in self.life.common.slots.values() {
            let _ = write!(text, "|{}", slots.active.len());
        }
        let _ = write!(text, "|{}|{}{}{}", pending.join(" "), self.life.rules(), self.is_owned, self.may_leave);
        text
    }

    fn pended(&self, pending: &Pending) -> String {
        let (kind, ticket, more) = match pending {
            Pending::Read(ticket) => ('r', ticket, ""),
            Pending::Fetch(ticket) => ('f', ticket, ""),
            Pending::Compile(ticket, config) => ('c', ticket, &**config),
            Pending::Probe(ticket) => ('p', ticket, ""),
            Pending::Installed(ticket) => ('i', ticket, ""),
            Pending::Trial(ticket) => ('t', ticket, ""),
            Pending::Removed(id) => return format!("x{}", id.name),
            Pending::Save(id, record) => return format!("s{}{:?}", id.name, record.as_ref().map(recorded)),
        };
        match self.life.is_present(ticket) {
            true => format!("{kind}{}{more}", ticket.plugin.name),
            false => format!("{kind}-"),
        }
    }

    /// Checks the promises of every state.
    fn check(&self) {
        for (id, installed) in self.registry.iter().filter(|(_, installed)| !installed.is_revoked) {
            let plugin = self.life.plugin(id).unwrap();
            let permissions = plugin.want().and_then(Want::permissions).unwrap();
            assert!(permissions.permits(&installed.spec), "the spec permits what runs");
            assert!(*self.life.rules() || !installed.spec.grants.write.delete, "so does the policy");
            assert!(self.is_owned, "it is owned");
            let uid = plugin.object().map_or("", |object| &object.uid);
            assert_eq!(&*installed.uid, uid, "it is of the present object");
        }
        for (id, plugin) in &self.life.plugins {
            let registered = self.registry.get(id);
            let expected = plugin.installed.as_ref().map(|version| (&version.spec, plugin.is_revoked));
            let found = registered.map(|installed| (&installed.spec, installed.is_revoked));
            assert_eq!(found, expected, "what the automaton has installed is in the registry");
            if let Restore::Wanted(Recorded { record, spec: Ok(spec) }) = &plugin.restore {
                let ran = record.ran.as_ref().map(|ran| &*ran.spec);
                assert_eq!(ran, Some(&*spec.config), "a record is of the version whose spec it has");
            }
            let ran = plugin.record.ran.as_ref().filter(|_| plugin.object().is_some());
            if matches!(plugin.state, State::Suspended) {
                assert_eq!(ran, None, "a restart runs nothing that was suspended");
            }
            let has_failed = matches!(plugin.state, State::Waiting { .. } | State::Refused);
            if let (true, Some(version), Some(_)) = (has_failed, plugin.running(), plugin.object()) {
                assert_eq!(plugin.record.ran, version.ran, "a restart runs what goes on after a failure");
            }
            if let (Shown::Running { is_recorded: true, .. }, Some(object)) = (plugin.shown(), plugin.object()) {
                let on_disk = self.disk.get(id).filter(|record| *record.uid == *object.uid);
                let ran = on_disk.and_then(|record| record.ran.as_ref());
                assert_eq!(ran, plugin.record.ran.as_ref(), "the record is on disk before the status names it");
                let version = plugin.installed.as_ref().filter(|_| plugin.before.is_none());
                let is_recorded = version.is_none_or(|version| version.ran.as_ref() == ran);
                assert!(is_recorded, "a restart runs what the status names, except in a trial");
            }
        }
        assert!(self.registry.keys().all(|id| self.life.plugin(id).is_some()), "nothing runs that is not known");
    }

    fn end_all(&mut self) {
        while !self.pending.is_empty() {
            self.end(0, End::Succeeds);
        }
    }

    /// If effects end, each plugin comes to a rest.
    fn check_rest(&self) {
        let mut world = self.clone();
        for _ in 0..60 {
            if world.pending.is_empty() {
                break;
            }
            world.end(0, End::Succeeds);
            world.check();
        }
        assert!(world.pending.is_empty(), "effects end");
        for plugin in world.life.plugins.values() {
            let rests = match &plugin.state {
                State::Running | State::Suspended | State::Waiting { .. } | State::Refused => plugin.is_wanted(),
                State::Standby { .. } => !world.is_owned,
                _ => false,
            };
            assert!(rests && !plugin.is_dirty && !plugin.saves, "{}", described(plugin));
            let ran = world.disk.get(&plugin.id).and_then(|record| record.ran.as_ref());
            let is_suspended = matches!(plugin.state, State::Suspended) && plugin.object().is_some();
            assert!(ran.is_none() || !is_suspended, "a restart runs nothing that was suspended: {ran:?}");
        }
        for slots in world.life.common.slots.values() {
            assert!(slots.active.is_empty() && slots.waiting.is_empty(), "no slot is lost");
        }
        for (id, record) in &world.disk {
            let installed = world.life.plugin(id).is_some_and(|plugin| plugin.is_wanted());
            assert!(installed || self.may_leave, "no record is left of a plugin that is gone: {record:?}");
        }
    }
}

impl World {
    /// A version of an object that runs, and is not in its trial, runs first when the host may run plugins again.
    fn check_comes_back(&self) {
        let runs = |(id, plugin): (&PluginId, &Plugin<Test>)| {
            let version = plugin.before.as_ref().or_else(|| plugin.running())?;
            let is_recorded = plugin.object().is_some() && plugin.record.ran == version.ran;
            is_recorded.then(|| (id.clone(), version.spec.config.clone()))
        };
        let ran: Vec<_> = self.life.plugins.iter().filter_map(runs).collect();
        let mut lost = self.clone();
        lost.change(Change::Owned(false));
        let mut rested = lost.clone();
        rested.end_all();
        for (world, (id, config)) in [lost, rested].iter().flat_map(|world| ran.iter().map(move |ran| (world, ran))) {
            let mut world = world.clone();
            world.change(Change::Owned(true));
            while !world.registry.contains_key(id) && !world.pending.is_empty() {
                world.end(0, End::Succeeds);
            }
            let installed = world.registry.get(id).map(|installed| &installed.spec.config);
            assert_eq!(installed, Some(config), "it ran before another replica did: {}", id.name);
        }
    }
}

fn recorded(record: &Record) -> String {
    let ran = record.ran.as_ref().map_or("-", |ran| &*ran.spec);
    let refused = record.refused.as_ref().map_or("-", |refused| &*refused.spec);
    format!("{}{ran}{refused}", record.uid)
}

fn wanted(want: &Want<Test>) -> &str {
    match want {
        Want::Run(spec) => &spec.config,
        Want::Mistaken { .. } => "m",
    }
}

fn version(version: Option<&Version<String>>) -> String {
    version.map_or("-".to_owned(), |version| {
        format!("{}{}", version.code, version.ran.as_ref().map_or("-", |ran| &*ran.spec))
    })
}

fn described(plugin: &Plugin<Test>) -> String {
    let state = match &plugin.state {
        State::Gone => "gone".to_owned(),
        State::Reading => "reading".to_owned(),
        State::Fetching { waits } => format!("fetching{waits}"),
        State::Compiling { waits, fetched } => format!("compiling{waits}{}", fetched.is_some()),
        State::Probing { waits, code } => format!("probing{waits}{code}"),
        State::Ready { code, pods } => format!("ready{code:?}{pods:?}"),
        State::Standby { code } => format!("standby{code:?}"),
        State::Installing => "installing".to_owned(),
        State::Running => "running".to_owned(),
        State::Suspended => "suspended".to_owned(),
        State::Waiting { .. } => "waiting".to_owned(),
        State::Refused => "refused".to_owned(),
    };
    let restore = match &plugin.restore {
        Restore::Unread => "unread".to_owned(),
        Restore::Wanted(found) => recorded(&found.record),
        Restore::Done => "done".to_owned(),
    };
    let file = plugin.file.as_ref().map_or("-", wanted);
    let object = plugin.object.as_ref().map(|(object, want)| format!("{}{}", object.uid, wanted(want)));
    let failure = plugin.failure.as_ref().map(|(failure, _)| *failure);
    let flags = [plugin.may_install, plugin.restoring, plugin.is_revoked, plugin.is_dirty, plugin.saves];
    let versions = [plugin.installed.as_ref(), plugin.before.as_ref()].map(version);
    let removals = plugin.removals;
    let record = recorded(&plugin.record);
    format!("{state},{restore},{file},{object:?},{failure:?},{flags:?},{versions:?},{removals},{record};")
}
