//! The populations that can be generated: how the Pods of a cluster differ, and what its events change.

use super::{
    containers,
    draft::Draft,
    json::text,
    network,
    own::{LABELS, Own},
    resize, sidecar,
    template::Hole,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum PopulationKind {
    /// Events change the status only, as a kubelet does
    #[default]
    Status,
    /// Each event also sets an annotation to a new value
    Annotation,
    /// Pods and nodes have an IPv6 address beside the IPv4 address
    DualStack,
    /// Annotations of multus and OVN-Kubernetes: JSON text with the Pod's IP and MAC address
    Cni,
    /// An annotation with 40 to 120 bytes of free text, different in every Pod
    FreeText,
    /// An environment variable with a different value in every Pod
    Environment,
    /// One change in five deletes a Pod, and the next event adds another Pod of the same owner
    Churn,
    /// No two Pods have the same fields: labels, annotations, environment and volumes differ in number and order
    Structure,
    /// The Pods of `status`, and 5,000 Pods of `structure` in their own namespace that have no events
    Hostile,
    /// A service mesh's sidecar, with volumes and a JSON annotation that differ in every Pod
    Sidecars,
    /// Events resize a container in place: resources in the spec, then in the status, among six sizes
    Resize,
    /// Ten labels with one of 30 values each
    Labels,
    /// 100 containers in each Pod, about 300 KB; use fewer --pods
    Containers,
    /// An annotation with 200 KB of text, different in every Pod; use fewer --pods
    LargeAnnotations,
}

impl PopulationKind {
    /// Returns the name on the command line and in reports.
    #[must_use]
    pub fn name(self) -> String {
        clap::ValueEnum::to_possible_value(&self).map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Returns true if it can be made of real Pods: its Pods are those of `status`.
    pub(super) fn can_be_real(self) -> bool {
        matches!(self, Self::Status | Self::Churn)
    }

    /// Changes the draft of a workload's Pods.
    pub(super) fn apply(self, draft: &mut Draft) {
        let value = |value: Own| text(Hole::Own(value).character().to_string());
        match self {
            // Only their events differ, or single Pods.
            Self::Status | Self::Churn | Self::Structure | Self::Hostile => {}
            Self::Annotation => draft.annotations.set_sorted("example.com/last-sync", value(Own::Annotation)),
            Self::DualStack => draft.dual_stack = true,
            Self::Cni => draft.network = vec![network::ovn(), network::multus()],
            Self::FreeText => draft.annotations.set_sorted("example.com/description", value(Own::FreeText)),
            Self::Environment => draft.set_environment("INSTANCE_KEY", value(Own::Environment)),
            Self::Sidecars => sidecar::inject(draft),
            Self::Resize => resize::add_places(draft),
            Self::Labels => {
                for at in 0..LABELS {
                    draft.labels.set_sorted(&format!("example.com/dimension-{at}"), value(Own::Label(at)));
                }
            }
            Self::Containers => containers::multiply(draft),
            Self::LargeAnnotations => draft.annotations.set_sorted("example.com/manifest", value(Own::LargeText)),
        }
    }
}
