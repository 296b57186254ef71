//! The parts that the automaton of a plugin's life carries in this host, and the platform's requirements.

use std::{sync::Arc, time::Duration};

use podium_config::status;
use podium_engine::{ports::Reconcile, throttle::Backoff};
use podium_life::{Parts, Refused, Tried};
use podium_registry::{Reference, signature::Key};
use podium_vocabulary::PluginSpec;

use super::{LoadFailure, image::Fetched};
use crate::{config::Policy, images::Images};

/// The waits between attempts, without jitter. With the longest wait, a component that takes all of its 60 s to compile
/// uses at most a fifth of a processor.
pub(super) const BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_secs(300) };

/// The platform's requirements for every plugin.
#[derive(Clone, Default)]
pub(in crate::app) struct Rules {
    /// `None` permits everything.
    pub(in crate::app) policy: Option<Policy>,
    /// The registries of the policy. With `None` there are none.
    pub(in crate::app) images: Option<Images>,
    pub(in crate::app) require_service_account: bool,
    /// The most bytes of a run's memory, if they are bounded.
    pub(in crate::app) most_of_a_job: Option<u64>,
}

/// A component that was compiled.
#[derive(Clone)]
pub(in crate::app) struct Code {
    pub(super) reconcile: Arc<dyn Reconcile>,
    pub(in crate::app) component: Arc<Component>,
}

impl Code {
    /// Code that the caller of the host compiled.
    pub(in crate::app) fn compiled(reconcile: Arc<dyn Reconcile>) -> Self {
        Self { reconcile, component: Arc::default() }
    }
}

/// The facts about a component, or about a script.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::app) struct Component {
    /// The SHA-256 in hexadecimal digits.
    pub(in crate::app) sha256: String,
    /// Its imports, such as `podium:reconcile/writes@0.1.0.label`.
    pub(in crate::app) imports: Vec<String>,
    /// With the digest of its manifest; `None` if it is not from a registry.
    pub(in crate::app) image: Option<Reference>,
    /// The key of the platform's policy that signed it, if one had to.
    pub(in crate::app) signer: Option<Key>,
    /// Why the bytes of the disk run although their place was asked, if they do. Escaped.
    pub(in crate::app) stored: Option<String>,
    /// `None` for a component.
    pub(in crate::app) runner: Option<status::Runner>,
}

/// The parts of this host.
#[derive(Clone)]
pub(in crate::app) struct Host;

impl Parts for Host {
    type Rules = Arc<Rules>;
    type Fetched = Fetched;
    type Code = Code;
    type Failure = Arc<LoadFailure>;

    fn refuse(rules: &Arc<Rules>, spec: &PluginSpec) -> Option<Arc<LoadFailure>> {
        rules.refuse(spec).map(Arc::new)
    }

    fn stays(rules: &Arc<Rules>, spec: &PluginSpec, code: &Code) -> bool {
        rules.refuse(spec).is_none() && rules.trusts(spec, code.component.signer.as_ref())
    }

    fn depends(failure: &Arc<LoadFailure>) -> bool {
        failure.depends_on_policy()
    }

    fn is_same(one: &Code, other: &Code) -> bool {
        one.component.sha256 == other.component.sha256
    }

    fn manifest(code: &Code) -> Option<String> {
        code.component.image.as_ref().and_then(Reference::digest).map(ToString::to_string)
    }

    fn retry(failure: &Arc<LoadFailure>, failures: u32) -> Option<Duration> {
        failure.is_passing().then(|| BACKOFF.doubled(failures).max(failure.retry_after()))
    }

    fn tried(refused: &Refused, note: &str) -> Arc<LoadFailure> {
        let failure = format!("{}{note}", refused.failure);
        Arc::new(match refused.tried {
            Tried::Before => LoadFailure::ProbeFailed(failure),
            Tried::After => LoadFailure::RolledBack(failure),
        })
    }
}

impl Rules {
    fn refuse(&self, spec: &PluginSpec) -> Option<LoadFailure> {
        if self.require_service_account && spec.impersonate.is_none() {
            return Some(LoadFailure::WithoutAccount);
        }
        let problems = self.policy.as_ref().map_or_else(Vec::new, |policy| policy.problems(spec));
        if !problems.is_empty() {
            return Some(LoadFailure::Forbidden(problems));
        }
        let most = self.most_of_a_job.filter(|most| spec.limits.memory_bytes as u64 > *most)?;
        Some(LoadFailure::OverMemory { mib: spec.limits.memory_bytes >> 20, most_mib: most >> 20 })
    }
}
