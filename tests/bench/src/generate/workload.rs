//! Workloads: the Pods of one owner, and how each of them is rendered.

use rand::rngs::SmallRng;

use super::{
    draft::Draft,
    json::Json,
    kind::PopulationKind,
    own::{self, Own},
    pod,
    state::{self, Identity, State},
    structure,
    template::{Hole, Template},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Deployment,
    StatefulSet,
    DaemonSet,
    Job,
    /// A real object is the template.
    Real,
}

/// The states of a Pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Pending,
    Running,
    /// Running again after its first container was restarted.
    Recovered,
    /// Its readiness probe fails.
    Unready,
    /// Its first container waits for a restart.
    Crashed,
    Succeeded,
}

impl Phase {
    pub(super) const ALL: [Self; 6] =
        [Self::Pending, Self::Running, Self::Recovered, Self::Unready, Self::Crashed, Self::Succeeded];
}

#[derive(Debug)]
pub(super) struct Workload {
    pub(super) kind: Kind,
    pub(super) namespace: String,
    /// The prefix of its Pods' names.
    pub(super) prefix: String,
    pods: Pods,
}

/// The source of a workload's Pods.
#[derive(Debug)]
enum Pods {
    /// Templates by [`Phase`]; real objects have one for all states.
    Alike(Vec<Shared>),
    /// Each Pod has its own structure, made when it is rendered.
    Different(Box<Draft>),
}

#[derive(Debug)]
struct Shared {
    template: Template,
    /// The population's values in it, except those in managedFields.
    own: Vec<Own>,
}

impl Shared {
    fn new(pod: &Json) -> Self {
        let kept = Template::new(&without_managed_fields(pod));
        let own = kept.holes().filter_map(|hole| match hole {
            Hole::Own(value) => Some(value),
            _ => None,
        });
        Self { template: Template::new(pod), own: own.collect() }
    }
}

impl Workload {
    pub(super) fn synthetic(
        random: &mut SmallRng,
        kind: Kind,
        population: PopulationKind,
        namespace: &str,
        number: usize,
    ) -> Self {
        let mut draft = Draft::new(random, kind, namespace, number);
        population.apply(&mut draft);
        let (namespace, prefix) = (draft.namespace.clone(), draft.prefix.clone());
        let pods = match population {
            PopulationKind::Structure => Pods::Different(Box::new(draft)),
            _ => Pods::Alike(Phase::ALL.iter().map(|phase| Shared::new(&pod::pod(&draft, *phase))).collect()),
        };
        Self { kind, namespace, prefix, pods }
    }

    pub(super) fn real(namespace: String, prefix: String, pod: &Json) -> Self {
        Self { kind: Kind::Real, namespace, prefix, pods: Pods::Alike(vec![Shared::new(pod)]) }
    }

    /// Returns true if Pods only differ in values.
    pub(super) fn pods_are_alike(&self) -> bool {
        matches!(self.pods, Pods::Alike(_))
    }

    pub(super) fn write(&self, identity: &Identity, state: &State, into: &mut String) {
        let value = |hole, into: &mut String| state::push(hole, identity, state, into);
        match &self.pods {
            Pods::Alike(all) => of_phase(all, state.phase).template.fill(into, value),
            Pods::Different(draft) => {
                let draft = structure::scatter(draft, identity.seed);
                Template::new(&pod::pod(&draft, state.phase)).fill(into, value);
            }
        }
    }

    /// Returns how many bytes of the Pod's JSON, without managedFields, differ between the Pods of a workload because
    /// of the population.
    pub(super) fn own_bytes(&self, identity: &Identity, state: &State) -> usize {
        match &self.pods {
            Pods::Alike(all) => {
                let mut values = String::new();
                for value in &of_phase(all, state.phase).own {
                    // Writing to a String does not fail.
                    let _ = own::push(*value, identity, state, &mut values);
                }
                values.len()
            }
            Pods::Different(draft) => {
                let length = |draft: &Draft| {
                    let mut rendered = String::new();
                    without_managed_fields(&pod::pod(draft, state.phase)).render(&mut rendered);
                    rendered.len()
                };
                length(&structure::scatter(draft, identity.seed)).saturating_sub(length(draft))
            }
        }
    }
}

fn of_phase(all: &[Shared], phase: Phase) -> &Shared {
    &all[if all.len() == 1 { 0 } else { phase as usize }]
}

fn without_managed_fields(pod: &Json) -> Json {
    let mut pod = pod.clone();
    if let Some(metadata) = pod.get_mut("metadata") {
        metadata.remove("managedFields");
    }
    pod
}
