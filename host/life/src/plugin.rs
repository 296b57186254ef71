//! The state of one plugin.

use std::{sync::Arc, time::Duration};

use podium_vocabulary::{PluginId, PluginSpec};

use crate::{Object, Parts, Ran, Record, Recorded, Refused, Ticket, Tried, Want};

/// A version of a plugin.
#[derive(Debug, Clone)]
pub struct Version<C> {
    /// Its configuration.
    pub spec: Arc<PluginSpec>,
    /// Its code.
    pub code: C,
    /// The version of the object; `None` for a file.
    pub ran: Option<Ran>,
}

/// The step towards the wanted version. One that needs a slot `waits` until it has one.
#[derive(Clone)]
pub(crate) enum State<P: Parts> {
    Gone,
    Reading,
    Fetching {
        waits: bool,
    },
    Compiling {
        waits: bool,
        /// `Some` while it waits.
        fetched: Option<P::Fetched>,
    },
    Probing {
        waits: bool,
        code: P::Code,
    },
    /// It may not be installed yet. `None` for a plugin that will be suspended.
    Ready {
        code: Option<P::Code>,
        pods: Option<usize>,
    },
    /// Another replica runs the plugins; it is installed when this one may.
    Standby {
        code: P::Code,
    },
    /// Pods are being queued for it.
    Installing,
    Running,
    Suspended,
    Waiting {
        due: Duration,
    },
    Refused,
}

/// The version that ran before: before the host's start, or before the policy or the Lease ended its runs.
#[derive(Debug, Clone)]
pub(crate) enum Restore {
    Unread,
    Wanted(Recorded),
    Done,
}

/// One plugin: the wishes of its sources, the version that runs, and the step towards the next one.
#[derive(Clone)]
pub struct Plugin<P: Parts> {
    pub(crate) id: PluginId,
    pub(crate) file: Option<Want<P>>,
    pub(crate) object: Option<(Object, Want<P>)>,
    /// The number of the load: that of its first attempt.
    pub(crate) load: u64,
    pub(crate) ticket: Ticket,
    pub(crate) state: State<P>,
    /// A version that is ready is installed.
    pub(crate) may_install: bool,
    /// The attempt is about the version that ran before.
    pub(crate) restoring: bool,
    pub(crate) restore: Restore,
    /// The failure of the latest attempt, and how many failed in a row.
    pub(crate) failure: Option<(P::Failure, u32)>,
    /// In the registry.
    pub(crate) installed: Option<Version<P::Code>>,
    /// The installed version may not run any more: it waits for the next one.
    pub(crate) is_revoked: bool,
    /// The version that comes back if the trial of the installed one fails.
    pub(crate) before: Option<Version<P::Code>>,
    pub(crate) unprobed: bool,
    pub(crate) record: Record,
    /// The record on disk may be another one.
    pub(crate) is_dirty: bool,
    pub(crate) saves: bool,
    /// Removals that have not ended.
    pub(crate) removals: u32,
}

/// The result of a plugin's configuration.
pub enum Shown<'a, F> {
    /// The first attempt has not ended.
    Loading,
    /// The version of the configuration runs.
    Running {
        /// It replaced another version, and no Pod was there to try it on before.
        unprobed: bool,
        /// A restart would run it, or the version before while its trial lasts.
        is_recorded: bool,
    },
    /// It is compiled, and another replica runs the plugins.
    Standby,
    /// The configuration suspends it.
    Suspended,
    /// The attempt failed for a reason that may pass. With the failures in a row.
    Waiting(&'a F, u32),
    /// The attempt failed.
    Refused(&'a F),
}

impl<P: Parts> Plugin<P> {
    pub(crate) fn new(id: PluginId) -> Self {
        let ticket = Ticket { plugin: id.clone(), uid: "".into(), generation: 0, attempt: 0 };
        Self {
            id,
            file: None,
            object: None,
            load: 0,
            ticket,
            state: State::Gone,
            may_install: true,
            restoring: false,
            restore: Restore::Done,
            failure: None,
            installed: None,
            is_revoked: false,
            before: None,
            unprobed: false,
            record: Record::new(""),
            is_dirty: false,
            saves: false,
            removals: 0,
        }
    }

    /// The wish of the source that counts: a file counts before an object.
    pub(crate) fn want(&self) -> Option<&Want<P>> {
        self.file.as_ref().or_else(|| self.object.as_ref().map(|(_, want)| want))
    }

    /// The object, if no file has its name.
    pub(crate) fn object(&self) -> Option<&Object> {
        self.object.as_ref().filter(|_| self.file.is_none()).map(|(object, _)| object)
    }

    /// The configuration that the attempt is about.
    pub(crate) fn attempted(&self) -> Option<Arc<PluginSpec>> {
        match (&self.restore, self.want()?) {
            (Restore::Wanted(recorded), _) if self.restoring => recorded.spec.clone().ok(),
            (_, Want::Run(spec)) => Some(spec.clone()),
            (_, Want::Mistaken { .. }) => None,
        }
    }

    /// The version that the attempt installs.
    pub(crate) fn version(&self, spec: Arc<PluginSpec>, code: P::Code) -> Version<P::Code> {
        let ran = match (&self.restore, self.object()) {
            (Restore::Wanted(recorded), _) if self.restoring => recorded.record.ran.clone(),
            (_, object) => object.map(|object| Ran {
                generation: object.generation,
                spec: object.spec.clone(),
                manifest: P::manifest(&code),
            }),
        };
        Version { spec, code, ran }
    }

    /// Changes the record of the object, if there is one.
    pub(crate) fn note(&mut self, change: impl FnOnce(&mut Record, &Object)) {
        let Some((object, _)) = self.object.as_ref().filter(|_| self.file.is_none()) else { return };
        let mut record = self.record.clone();
        change(&mut record, object);
        if record != self.record {
            self.record = record;
            self.is_dirty = true;
        }
    }

    /// Records that no version runs.
    pub(crate) fn note_stopped(&mut self) {
        // The record on disk may be of an earlier object, or have a version that is not known here.
        self.is_dirty |= self.object().is_some();
        self.restore = Restore::Done;
        self.note(|record, _| (record.ran, record.refused) = (None, None));
    }

    /// Records that the installed version is not in a trial.
    pub(crate) fn note_ran(&mut self) {
        let ran = self.installed.as_ref().and_then(|version| version.ran.clone());
        self.note(|record, _| (record.ran, record.refused) = (ran, None));
    }

    /// Records the version that goes on after a failure. The trial of one is over when the next spec comes.
    pub(crate) fn note_stays(&mut self) {
        let stays = self.running().filter(|_| self.before.is_none()).and_then(|version| version.ran.clone());
        if stays.is_some() {
            self.note(|record, _| record.ran = stays);
        }
    }

    /// Records that the version of the present object failed when it was tried.
    pub(crate) fn note_refused(&mut self, tried: Tried, failure: &str) -> Refused {
        let spec = self.object().map_or_else(|| "".into(), |object| object.spec.clone());
        let refused = Refused { spec, tried, failure: failure.to_owned() };
        self.note(|record, _| record.refused = Some(refused.clone()));
        refused
    }

    /// Why the present spec is not tried again.
    pub(crate) fn refused(&self) -> Option<Refused> {
        let spec = &self.object()?.spec;
        self.record.refused.clone().filter(|refused| refused.spec == *spec)
    }

    /// True if the present configuration permits all that the installed version may do, and it runs.
    pub(crate) fn may_stay(&self) -> bool {
        self.permissions().is_some_and(|spec| self.running().is_some_and(|version| spec.permits(&version.spec)))
    }

    /// Returns what the present configuration permits, if it is known.
    #[must_use]
    pub fn permissions(&self) -> Option<&Arc<PluginSpec>> {
        self.want().and_then(Want::permissions)
    }

    /// Returns true if a source defines the plugin.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.want().is_some()
    }

    /// When the next attempt begins.
    pub(crate) fn due(&self) -> Option<Duration> {
        match self.state {
            State::Waiting { due } => Some(due),
            _ => None,
        }
    }

    /// Returns the number of the present load.
    #[must_use]
    pub fn load(&self) -> u64 {
        self.load
    }

    /// Returns the generation of the object that the state is about; `None` for a file.
    #[must_use]
    pub fn generation(&self) -> Option<i64> {
        self.object().map(|object| object.generation)
    }

    /// Returns true if the state is about this generation of this object.
    #[must_use]
    pub fn is_about(&self, uid: &str, generation: i64) -> bool {
        self.object().is_some_and(|object| &*object.uid == uid && object.generation == generation)
    }

    /// Returns true while this attempt's version is in its trial.
    #[must_use]
    pub fn is_tried(&self, ticket: &Ticket) -> bool {
        self.ticket == *ticket && self.before.is_some()
    }

    /// Returns the version that runs. One whose permissions were revoked does not, and never will again.
    #[must_use]
    pub fn running(&self) -> Option<&Version<P::Code>> {
        self.installed.as_ref().filter(|_| !self.is_revoked)
    }

    /// Returns the result of the configuration.
    #[must_use]
    pub fn shown(&self) -> Shown<'_, P::Failure> {
        match (&self.state, &self.failure) {
            (State::Installing | State::Running, _) => {
                Shown::Running { unprobed: self.unprobed, is_recorded: !self.is_dirty && !self.saves }
            }
            (State::Suspended, _) => Shown::Suspended,
            (State::Standby { .. }, _) => Shown::Standby,
            (State::Refused, Some((failure, _))) => Shown::Refused(failure),
            (_, Some((failure, attempts))) => Shown::Waiting(failure, *attempts),
            _ => Shown::Loading,
        }
    }

    /// Returns the result of the first attempt of a load; `None` before it has ended. With [`Source::File`] false, it
    /// has ended when the version is ready. A load that was superseded has failed without a failure.
    ///
    /// # Errors
    /// Returns the failure.
    ///
    /// [`Source::File`]: crate::Source::File
    pub fn result(&self, load: u64) -> Option<Result<(), Option<P::Failure>>> {
        if self.load != load {
            return Some(Err(None));
        }
        match (&self.state, &self.failure) {
            (_, Some((failure, _))) => Some(Err(Some(failure.clone()))),
            (State::Running | State::Suspended | State::Standby { .. }, _) => Some(Ok(())),
            (State::Ready { .. }, _) if !self.may_install => Some(Ok(())),
            _ => None,
        }
    }

    /// Returns true if the record that is being written is not the latest one.
    #[must_use]
    pub fn has_later_record(&self) -> bool {
        self.is_dirty
    }

    /// Returns true if the plugin is compiled and another replica runs it.
    #[must_use]
    pub fn is_standby(&self) -> bool {
        matches!(self.state, State::Standby { .. })
    }

    /// Returns true if nothing is left of a plugin that is gone.
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.removals == 0
    }
}
