//! The steps of one plugin: from a wish to an installed version, and to the end of its permissions.

use std::{mem, sync::Arc};

use podium_vocabulary::PluginSpec;

use super::Common;
use crate::{
    Effect, Object, Parts, Place, Plugin, Record, Recorded, Report, Source, Ticket, Tried, Version, Want, Work,
    plugin::{Restore, State},
    record::Ran,
};

impl<P: Parts> Plugin<P> {
    pub(super) fn seen(&mut self, source: Source, want: Want<P>, common: &mut Common<P>) {
        match source {
            Source::File(may_install) => {
                if self.file.is_none() {
                    self.unload(common);
                }
                self.file = Some(want);
                self.may_install = may_install;
            }
            Source::Object(object) if self.file.is_some() => {
                self.object = Some((object, want));
                return;
            }
            Source::Object(object) => {
                if self.object.as_ref().is_none_or(|(before, _)| before.uid != object.uid) {
                    self.unload(common);
                    self.attach(&object, common);
                }
                self.object = Some((object, want));
            }
        }
        self.begin(common);
    }

    /// The plugin is of an object that it was not of before.
    fn attach(&mut self, object: &Object, common: &Common<P>) {
        // One of this object may have to be written still.
        if *self.record.uid != *object.uid {
            self.record = Record::new(&object.uid);
        }
        // A record that is being written or removed is of this host.
        let is_of_before = common.keeps && !self.is_dirty && !self.saves;
        self.restore = if is_of_before { Restore::Unread } else { Restore::Done };
        self.may_install = true;
    }

    pub(super) fn meant(&mut self, object: Object) {
        let Some((before, _)) = self.object.as_mut().filter(|(before, _)| before.uid == object.uid) else { return };
        let before = mem::replace(before, object.clone());
        // A restart finds the version and the refusal under the spec that the object has then.
        let follow = |ran: &mut Ran| {
            if ran.spec == before.spec {
                ran.generation = object.generation;
                ran.spec = object.spec.clone();
            }
        };
        self.installed.iter_mut().filter_map(|version| version.ran.as_mut()).for_each(follow);
        self.note(|record, _| {
            record.ran.iter_mut().for_each(follow);
            if let Some(refused) = record.refused.as_mut().filter(|refused| refused.spec == before.spec) {
                refused.spec = object.spec.clone();
            }
        });
    }

    pub(super) fn gone(&mut self, is_file: bool, common: &mut Common<P>) {
        if is_file && self.file.is_some() {
            self.unload(common);
            self.file = None;
            if let Some((object, _)) = self.object.clone() {
                self.attach(&object, common);
                self.begin(common);
            }
        } else if !is_file {
            if self.file.is_none() {
                self.unload(common);
            }
            self.object = None;
            self.record = Record::new("");
            self.is_dirty = true;
        }
    }

    pub(super) fn beyond(&mut self, common: &mut Common<P>) {
        if self.file.is_none() {
            self.withdraw(common);
        }
        self.object = None;
    }

    /// The plugin is not wanted any more: notes that a restart runs nothing, and withdraws it.
    fn unload(&mut self, common: &mut Common<P>) {
        self.note_stopped();
        self.withdraw(common);
    }

    /// Ends permissions and the attempt under way: removes the installed version. Later results of its fetch,
    /// compilation or probe change nothing.
    fn withdraw(&mut self, common: &mut Common<P>) {
        if self.is_wanted() {
            let was_loaded = self.remove(common) || matches!(self.state, State::Suspended);
            self.next_attempt(common);
            self.state = State::Gone;
            self.failure = None;
            self.report(Report::Unloaded(was_loaded), common);
        }
    }

    /// Begins a load. Runs that it does not permit end in this step.
    fn begin(&mut self, common: &mut Common<P>) {
        let Some(want) = self.want().cloned() else { return };
        self.next_attempt(common);
        self.load = self.ticket.attempt;
        self.failure = None;
        self.before = None;
        if let Some(spec) = want.permissions() {
            self.restrict(spec, common);
        }
        // Another spec may be tried, and this one after it.
        self.note(|record, object| {
            record.refused = record.refused.take().filter(|refused| refused.spec == object.spec);
        });
        self.attempt(common);
    }

    /// Ends the runs of the installed version if a configuration does not permit all that it may do.
    pub(super) fn restrict(&mut self, spec: &Arc<PluginSpec>, common: &mut Common<P>) {
        if self.running().is_some_and(|version| !spec.permits(&version.spec)) {
            self.is_revoked = true;
            self.before = None;
            common.effects.push(Effect::Restrict(spec.clone()));
            self.report(Report::Restricted, common);
        }
    }

    /// Ends the runs of an installed version that the platform's requirements do not permit now, by
    /// [`Effect::Remove`]; otherwise begins the load again if they may change its result.
    pub(super) fn judge(&mut self, common: &mut Common<P>) {
        let stays = |version: &Version<P::Code>| P::stays(&common.rules, &version.spec, &version.code);
        if self.installed.as_ref().is_some_and(|version| !stays(version)) {
            let recorded = self.removed(common);
            self.report(Report::Stopped, common);
            self.restore = self.restored(recorded);
        } else if self.is_settled_under(&common.rules) {
            return;
        }
        // As at a start: the version before that of a refused spec comes back, if the requirements permit it now.
        let is_on_disk = common.keeps && self.record.ran.is_some() && !self.is_dirty && !self.saves;
        if self.installed.is_none() && matches!(self.restore, Restore::Done) && is_on_disk {
            self.restore = Restore::Unread;
        }
        let load = self.load;
        self.begin(common);
        self.load = load;
    }

    /// Returns true if another attempt under these requirements would end as the latest one has.
    fn is_settled_under(&self, rules: &P::Rules) -> bool {
        match self.state {
            State::Gone => true,
            State::Installing | State::Running => {
                self.before.as_ref().is_none_or(|before| P::stays(rules, &before.spec, &before.code))
            }
            State::Standby { ref code } => {
                matches!(self.want(), Some(Want::Run(spec)) if P::stays(rules, spec, code))
            }
            State::Suspended | State::Waiting { .. } | State::Refused => {
                let may_pass = self.failure.as_ref().is_some_and(|(failure, _)| P::depends(failure));
                let is_refused = matches!(self.want(), Some(Want::Run(spec)) if P::refuse(rules, spec).is_some());
                let may_come_back = self.installed.is_none() && self.record.ran.is_some();
                !may_pass && !is_refused && !may_come_back
            }
            _ => false,
        }
    }

    /// While another replica runs the plugins, a plugin is fetched and compiled, and neither tried nor run.
    pub(super) fn owned(&mut self, common: &mut Common<P>) {
        let code = self.running().map(|version| version.code.clone());
        let is_of_spec = matches!(self.state, State::Installing | State::Running) && self.before.is_none();
        // As at a start: the version that runs comes back before that of the spec is tried.
        if let Some(recorded) = self.removed(common).filter(|_| !is_of_spec) {
            self.restore = Restore::Wanted(recorded);
        }
        let begins = match &mut self.state {
            State::Gone | State::Suspended => false,
            // The version of the spec is installed.
            State::Installing | State::Running if code.is_some() => {
                self.next_attempt(common);
                self.state = State::Ready { code, pods: None };
                false
            }
            State::Probing { .. } => true,
            State::Standby { code } if matches!(self.restore, Restore::Done) => {
                self.state = State::Ready { code: Some(code.clone()), pods: None };
                false
            }
            // The standby may not write what the load needs.
            State::Standby { .. } | State::Waiting { .. } => common.owns(&self.id),
            _ => self.restoring || common.owns(&self.id) && matches!(self.restore, Restore::Wanted(_)),
        };
        if begins { self.attempt(common) } else { self.ready(common) }
    }

    /// Replaces the ticket, so that the results of the attempt before change nothing.
    fn next_attempt(&mut self, common: &mut Common<P>) {
        let attempt = self.ticket.attempt;
        common.slots.values_mut().for_each(|slots| slots.give_up(attempt));
        // A component that waits for its compilation is dropped.
        if matches!(self.state, State::Compiling { waits: true, .. }) {
            common.end(Work::Fetch, attempt);
        }
        common.attempts += 1;
        let (uid, generation) = match self.object() {
            Some(object) => (object.uid.clone(), object.generation),
            None => ("".into(), 0),
        };
        self.ticket = Ticket { plugin: self.id.clone(), uid, generation, attempt: common.attempts };
        self.restoring = false;
    }

    /// Begins an attempt: with the version that ran before, if there is one to be restored.
    pub(super) fn attempt(&mut self, common: &mut Common<P>) {
        self.next_attempt(common);
        let Some(spec) = self.want().and_then(Want::permissions) else { return self.attempt_spec("", common) };
        let recorded = match &self.restore {
            Restore::Unread if !spec.suspend => {
                self.state = State::Reading;
                common.effects.push(Effect::Read(self.ticket.clone()));
                return;
            }
            Restore::Wanted(recorded) if !spec.suspend && common.owns(&self.id) => &recorded.spec,
            _ => return self.attempt_spec("", common),
        };
        let refuse = |before: &PluginSpec| P::refuse(&common.rules, before).map(|failure| failure.to_string());
        let found = recorded.clone().and_then(|before| match refuse(&before) {
            _ if !spec.permits(&before) => Err("the spec does not permit all that it may do".to_owned()),
            Some(error) => Err(error),
            None => Ok(before),
        });
        match found {
            Err(error) => self.not_restored(error, common),
            Ok(_) => {
                self.restoring = true;
                self.fetch(common);
            }
        }
    }

    /// Continues without the version that ran before the host's start.
    fn not_restored(&mut self, error: String, common: &mut Common<P>) {
        self.next_attempt(common);
        let generation = self.record.ran.as_ref().map_or(0, |ran| ran.generation);
        self.restore = Restore::Done;
        let note = format!("; the version of generation {generation} cannot be run again: {error}");
        self.report(Report::NotRestored(generation, error), common);
        self.attempt_spec(&note, common);
    }

    /// Begins an attempt with the present configuration. `note` says why no version before it runs.
    fn attempt_spec(&mut self, note: &str, common: &mut Common<P>) {
        let spec = match self.want().cloned() {
            Some(Want::Run(spec)) => spec,
            Some(Want::Mistaken { failure, .. }) => return self.fail(failure, false, common),
            None => return,
        };
        let refused = self.refused().filter(|_| !spec.suspend).map(|refused| P::tried(&refused, note));
        if let Some(failure) = refused.or_else(|| P::refuse(&common.rules, &spec)) {
            self.fail(failure, true, common);
        } else if spec.suspend {
            self.state = State::Ready { code: None, pods: None };
            self.ready(common);
        } else {
            self.fetch(common);
        }
    }

    fn fetch(&mut self, common: &mut Common<P>) {
        self.wait(Work::Fetch, State::Fetching { waits: true }, common);
    }

    pub(super) fn wait(&mut self, work: Work, state: State<P>, common: &mut Common<P>) {
        self.state = state;
        common.slots.get_mut(&work).into_iter().for_each(|slots| slots.wait(self.ticket.attempt, &self.id));
    }

    /// Returns the effect whose turn it is.
    pub(super) fn begun(&mut self) -> Option<Effect<P>> {
        let ticket = self.ticket.clone();
        let spec = self.attempted()?;
        let object = self.object().cloned();
        match &mut self.state {
            State::Fetching { waits } => {
                *waits = false;
                let from = match &self.restore {
                    Restore::Wanted(Recorded { record, .. }) if self.restoring => {
                        Place::Disk(record.ran.as_ref().and_then(|ran| ran.manifest.clone()))
                    }
                    _ => Place::Source,
                };
                Some(Effect::Fetch(ticket, spec, object, from))
            }
            State::Compiling { waits, fetched } => {
                *waits = false;
                Some(Effect::Compile(ticket, spec, fetched.take()?))
            }
            State::Probing { waits, code } => {
                *waits = false;
                Some(Effect::Probe(ticket, spec, code.clone()))
            }
            _ => None,
        }
    }

    pub(super) fn read(&mut self, recorded: Option<Recorded>, common: &mut Common<P>) {
        let Some(Object { uid, .. }) = self.object().cloned() else { return };
        let recorded = recorded.filter(|recorded| *recorded.record.uid == *uid);
        if let Some(recorded) = &recorded {
            self.record = recorded.record.clone();
        }
        self.restore = self.restored(recorded);
        self.attempt(common);
    }

    /// Returns whether the version of the record is loaded before that of the spec. The version of this spec is loaded
    /// as any other, unless a later code of the same spec was refused.
    fn restored(&self, recorded: Option<Recorded>) -> Restore {
        let is_refused = self.refused().is_some();
        let is_other = |ran: &Ran| is_refused || self.object().is_some_and(|object| ran.spec != object.spec);
        recorded
            .filter(|recorded| recorded.record.ran.as_ref().is_some_and(is_other))
            .map_or(Restore::Done, Restore::Wanted)
    }

    pub(super) fn compiled(&mut self, code: P::Code, common: &mut Common<P>) {
        let Some(spec) = self.attempted() else { return };
        let is_tried = |before: &Version<P::Code>| {
            spec.permits(&before.spec) && (!P::is_same(&before.code, &code) || before.spec.config != spec.config)
        };
        if self.restoring {
            let version = self.version(spec, code);
            let generation = version.ran.as_ref().map_or(0, |ran| ran.generation);
            self.restore = Restore::Done;
            self.unprobed = false;
            self.install(version, false, common);
            self.report(Report::Restored(generation), common);
            self.next_attempt(common);
            self.attempt_spec("", common);
        } else if common.owns(&self.id) && self.running().is_some_and(is_tried) {
            self.wait(Work::Probe, State::Probing { waits: true, code }, common);
        } else {
            self.state = State::Ready { code: Some(code), pods: None };
            self.ready(common);
        }
    }

    pub(super) fn attempt_failed(&mut self, failure: P::Failure, common: &mut Common<P>) {
        match self.restoring {
            true => self.not_restored(failure.to_string(), common),
            false => self.fail(failure, true, common),
        }
    }

    pub(super) fn probed(&mut self, result: Result<usize, String>, common: &mut Common<P>) {
        match (result, mem::replace(&mut self.state, State::Gone)) {
            (Ok(pods), State::Probing { code, .. }) => {
                self.state = State::Ready { code: Some(code), pods: Some(pods) };
                self.ready(common);
            }
            (Err(error), State::Probing { .. }) => {
                let failure = P::tried(&self.note_refused(Tried::Before, &error), "");
                self.fail(failure, true, common);
            }
            (_, state) => self.state = state,
        }
    }

    /// Installs the version that is ready, or takes out the one of a plugin that is suspended, if that is permitted.
    pub(super) fn ready(&mut self, common: &mut Common<P>) {
        let (State::Ready { code, pods }, true) = (&self.state, self.may_install) else { return };
        let (Some(spec), pods) = (self.attempted(), *pods) else { return };
        let Some(code) = code.clone() else {
            self.remove(common);
            self.note_stopped();
            self.state = State::Suspended;
            return self.report(Report::Suspended, common);
        };
        if !common.owns(&self.id) {
            self.state = State::Standby { code };
            self.failure = None;
            return;
        }
        let before = pods.and_then(|_| self.running().filter(|before| spec.permits(&before.spec)).cloned());
        let trial = before.is_some();
        self.install(self.version(spec, code), trial, common);
        self.before = before;
        self.unprobed = pods == Some(0);
        self.failure = None;
        self.restore = Restore::Done;
        self.state = State::Installing;
        if !trial {
            self.note_ran();
        }
    }

    fn install(&mut self, version: Version<P::Code>, trial: bool, common: &mut Common<P>) {
        let ticket = self.ticket.clone();
        let spec = version.spec.clone();
        let code = version.code.clone();
        common.effects.push(Effect::Install { ticket, spec, code, trial });
        self.installed = Some(version);
        self.is_revoked = false;
    }

    pub(super) fn tried(&mut self, result: Result<(), String>, common: &mut Common<P>) {
        match (self.before.take(), result) {
            (Some(_), Ok(())) => self.note_ran(),
            (Some(before), Err(error)) => {
                let failure = P::tried(&self.note_refused(Tried::After, &error), "");
                self.install(before, false, common);
                self.note_stays();
                self.unprobed = false;
                self.state = State::Refused;
                self.failure = Some((failure.clone(), 1));
                self.report(Report::RolledBack(failure), common);
            }
            (None, _) => {}
        }
    }

    /// Ends an attempt. A version that runs goes on only if the new configuration permits all that it may do.
    fn fail(&mut self, failure: P::Failure, may_pass: bool, common: &mut Common<P>) {
        let failures = self.failure.as_ref().map_or(1, |(_, failures)| failures.saturating_add(1));
        let wait = P::retry(&failure, failures).filter(|_| may_pass);
        self.state = wait.map_or(State::Refused, |wait| State::Waiting { due: common.now + wait });
        self.failure = Some((failure.clone(), failures));
        self.may_install = true;
        self.report(Report::Failed(failure, failures, wait), common);
        if !self.may_stay() {
            self.stop(common);
        }
        self.note_stays();
    }

    /// Removes the installed version, which is not permitted any more.
    fn stop(&mut self, common: &mut Common<P>) {
        if self.remove(common) {
            self.note_stopped();
            self.report(Report::Stopped, common);
        }
    }

    /// As [`Self::remove`]; returns the version that a restart would run, if it is known.
    fn removed(&mut self, common: &mut Common<P>) -> Option<Recorded> {
        let ran = self.before.take().or_else(|| self.running().cloned());
        self.remove(common);
        let ran = ran.filter(|version| version.ran.is_some() && version.ran == self.record.ran)?;
        Some(Recorded { record: self.record.clone(), spec: Ok(ran.spec) })
    }

    /// Removes the installed version from the registry, which ends its runs and deliveries in this step. Returns false
    /// if there is none.
    fn remove(&mut self, common: &mut Common<P>) -> bool {
        self.before = None;
        let was_there = self.installed.take().is_some();
        if was_there {
            self.is_revoked = false;
            self.removals += 1;
            common.effects.push(Effect::Remove(self.id.clone()));
        }
        was_there
    }

    /// Has the record written, if it has changed and is not being written.
    pub(super) fn save(&mut self, common: &mut Common<P>) {
        if self.is_dirty && !self.saves {
            self.is_dirty = false;
            self.saves = common.keeps;
            let record = Some(self.record.clone()).filter(|record| record.ran.is_some());
            common.effects.extend(common.keeps.then(|| Effect::Save(self.id.clone(), record)));
        }
    }

    fn report(&self, report: Report<P>, common: &mut Common<P>) {
        common.effects.push(Effect::Report(self.id.clone(), report));
    }
}
