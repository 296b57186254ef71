//! Events and effects of the automaton, and the words in them.

use std::{fmt, sync::Arc, time::Duration};

use podium_vocabulary::{PluginId, PluginSpec, Shards};

use crate::{Record, Recorded, Refused};

/// The parts that the automaton carries and does not look into.
pub trait Parts: Clone {
    /// The platform's requirements for every plugin.
    type Rules: Clone;
    /// The bytes of a component.
    type Fetched: Clone;
    /// A component that was checked and compiled.
    type Code: Clone;
    /// Why a version does not run.
    type Failure: Clone + fmt::Display;

    /// Returns why the requirements do not permit a plugin.
    fn refuse(rules: &Self::Rules, spec: &PluginSpec) -> Option<Self::Failure>;

    /// Returns true if a version that runs may go on under other requirements without being loaded again.
    fn stays(rules: &Self::Rules, spec: &PluginSpec, code: &Self::Code) -> bool;

    /// Returns true if an attempt that failed so may succeed under other requirements.
    fn depends(failure: &Self::Failure) -> bool;

    /// Returns true if both are of the same bytes.
    fn is_same(one: &Self::Code, other: &Self::Code) -> bool;

    /// Returns the digest of the image's manifest, if the component is from a registry.
    fn manifest(code: &Self::Code) -> Option<String>;

    /// Returns the wait after a number of failures in a row; `None` if another attempt would fail too.
    fn retry(failure: &Self::Failure, failures: u32) -> Option<Duration>;

    /// Returns the failure of a version that was tried. `note` says why no version before it runs.
    fn tried(refused: &Refused, note: &str) -> Self::Failure;
}

/// Names the attempt that an effect is of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ticket {
    /// The plugin.
    pub plugin: PluginId,
    /// The uid of the object; empty for a file.
    pub uid: Arc<str>,
    /// The generation of the object.
    pub generation: i64,
    /// Grows with each attempt of any plugin.
    pub attempt: u64,
}

/// The object of a plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// An object that is created later under the same name has another one.
    pub uid: Arc<str>,
    /// Grows with each change of the spec.
    pub generation: i64,
    /// The spec as JSON.
    pub spec: Arc<str>,
    /// It had the host's finalizer.
    pub held: bool,
    /// Its status said that a version of this generation ran, perhaps in another process.
    pub ran: bool,
}

/// Where a plugin is defined, the one that counts first. Of objects of the same finalizers, and of those beyond the
/// bounds of a tenant, the automaton knows only those that were decided to count.
#[derive(Debug, Clone)]
pub enum Source {
    /// A file of the host. With false the version is not installed before [`Event::Install`].
    File(bool),
    /// An object of the API server.
    Object(Object),
}

/// The wish of a source.
#[derive(Clone)]
pub enum Want<P: Parts> {
    /// The plugin runs, or is suspended.
    Run(Arc<PluginSpec>),
    /// The configuration has mistakes. A version that runs goes on only if these permissions cover it.
    Mistaken {
        /// The mistakes.
        failure: P::Failure,
        /// `None` if they are not known.
        permissions: Option<Arc<PluginSpec>>,
    },
}

impl<P: Parts> Want<P> {
    /// Returns the permissions, if they are known.
    pub(crate) fn permissions(&self) -> Option<&Arc<PluginSpec>> {
        match self {
            Self::Run(spec) => Some(spec),
            Self::Mistaken { permissions, .. } => permissions.as_ref(),
        }
    }
}

/// An event.
pub enum Event<P: Parts> {
    /// A source defines a plugin, or defines it again.
    Seen(PluginId, Source, Want<P>),
    /// An object's spec has changed and means the same.
    Meant(PluginId, Object),
    /// The file, or with false the object, of a plugin is gone.
    Gone(PluginId, bool),
    /// The object of a plugin is beyond the bounds of its tenant. All of the plugin is forgotten except its record.
    Beyond(PluginId),
    /// A version that is ready may be installed. With the number of its load.
    Install(PluginId, u64),
    /// A plugin is configured again, and its new code is not there yet.
    Restricted(Arc<PluginSpec>),
    /// The platform's requirements were replaced. [`Event::Judged`] follows for each plugin.
    Rules(P::Rules),
    /// The turn of a plugin to be judged by requirements that were replaced.
    Judged(PluginId),
    /// The host may run the plugins of these shards, and no others: another replica does.
    Owned(Shards),
    /// Time has passed.
    Time,
    /// The record of a plugin was read.
    Read(Ticket, Option<Recorded>),
    /// A component was fetched.
    Fetched(Ticket, Result<P::Fetched, P::Failure>),
    /// A component was compiled.
    Compiled(Ticket, Result<P::Code, P::Failure>),
    /// A version was tried on this number of Pods, or has failed.
    Probed(Ticket, Result<usize, String>),
    /// Every Pod is queued for the version that was installed.
    Installed(Ticket),
    /// The trial of a version is over.
    Tried(Ticket, Result<(), String>),
    /// Nothing is queued any more for a version that was removed.
    Removed(PluginId),
    /// A record is on disk, or is gone, or has a later one that is to be written.
    Saved(PluginId),
}

/// Where a component is fetched from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Its place in the configuration.
    Source,
    /// The disk only: a version that ran before, with the digest of its manifest if it is from a registry.
    Disk(Option<String>),
}

/// An effect for the caller to apply.
#[derive(Clone)]
pub enum Effect<P: Parts> {
    /// The runs of the installed version end, if the configuration does not permit all that it may do.
    Restrict(Arc<PluginSpec>),
    /// The installed version is removed. Ends with [`Event::Removed`].
    Remove(PluginId),
    /// Ends with [`Event::Read`].
    Read(Ticket),
    /// Ends with [`Event::Fetched`]. The finalizer of an object that needs one is added before.
    Fetch(Ticket, Arc<PluginSpec>, Option<Object>, Place),
    /// Ends with [`Event::Compiled`].
    Compile(Ticket, Arc<PluginSpec>, P::Fetched),
    /// Ends with [`Event::Probed`].
    Probe(Ticket, Arc<PluginSpec>, P::Code),
    /// Ends with [`Event::Installed`], and the trial, if there is one, with [`Event::Tried`].
    Install {
        /// The attempt.
        ticket: Ticket,
        /// The plugin.
        spec: Arc<PluginSpec>,
        /// Its code.
        code: P::Code,
        /// The first runs are a trial.
        trial: bool,
    },
    /// The record is written, or with `None` removed. Ends with [`Event::Saved`].
    Save(PluginId, Option<Record>),
    /// The state of a plugin is another one.
    Publish(PluginId),
    /// A line for the log.
    Report(PluginId, Report<P>),
}

/// A message for operators.
#[derive(Clone)]
pub enum Report<P: Parts> {
    /// The runs of the version ended: the new configuration permits less.
    Restricted,
    /// An attempt has failed. With the failures in a row, and the wait before the next attempt.
    Failed(P::Failure, u32, Option<Duration>),
    /// The version was removed: its new configuration permits less, or is not known to permit it.
    Stopped,
    /// The plugin is suspended.
    Suspended,
    /// The plugin was removed. True if it ran or was suspended.
    Unloaded(bool),
    /// The version before runs again, because this failure ended the trial of the next one.
    RolledBack(P::Failure),
    /// The version of this generation, which ran before the host's start, runs again.
    Restored(i64),
    /// It does not.
    NotRestored(i64, String),
}
