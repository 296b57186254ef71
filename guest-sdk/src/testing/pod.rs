//! [`PodBuilder`]: builds Pods for tests.

use std::time::Duration;

use podium_wire::{
    Condition, ConditionStatus, Container, ContainerState, ContainerStatus, Header, Lifecycle, Owner, Pod, Timestamp,
    json,
};

use super::{NOW, full};

/// Returns a builder of a Pod with its own uid that was created an hour before [`NOW`].
pub fn pod(namespace: &str, name: &str) -> PodBuilder {
    let header = Header {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{namespace}-{name}"),
        created: Timestamp(NOW.0 - 3_600_000),
        ..Header::default()
    };
    PodBuilder { pod: Pod { header, ..Pod::default() } }
}

/// Parses a Pod as `kubectl get pod -o json` prints it. Fields that the other sections leave out are in the section
/// `full`.
///
/// # Panics
/// Panics if the text is not a Pod.
#[track_caller]
pub fn pod_from_json(text: &str) -> PodBuilder {
    match json::decode(text.as_bytes()) {
        Ok(pod) => PodBuilder { pod: Pod { full: full::without_managed_fields(text), ..pod } },
        #[expect(clippy::panic, reason = "a test's own fixture is wrong")]
        Err(error) => panic!("{error}"),
    }
}

/// Builds a Pod. [`PodBuilder::with`] sets fields that have no method here.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct PodBuilder {
    pod: Pod,
}

impl PodBuilder {
    /// Sets the uid: another uid is another incarnation.
    pub fn uid(self, uid: &str) -> Self {
        self.with(|pod| pod.header.uid = uid.to_owned())
    }

    /// Sets the creation time.
    pub fn created(self, created: Timestamp) -> Self {
        self.with(|pod| pod.header.created = created)
    }

    /// Adds a label.
    pub fn label(self, key: &str, value: &str) -> Self {
        self.with(|pod| drop(pod.labels.insert(key.to_owned(), value.to_owned())))
    }

    /// Adds an annotation.
    pub fn annotation(self, key: &str, value: &str) -> Self {
        self.with(|pod| drop(pod.annotations.insert(key.to_owned(), value.to_owned())))
    }

    /// Sets the owner that manages it, with the uid `uid-<kind>-<name>`.
    pub fn owned_by(self, kind: &str, name: &str) -> Self {
        self.with(|pod| pod.owners.push(controller(kind, name)))
    }

    /// Adds a finalizer.
    pub fn finalizer(self, name: &str) -> Self {
        self.with(|pod| pod.lifecycle.finalizers.push(name.to_owned()))
    }

    /// Marks the Pod as being deleted, with this end of its grace period.
    pub fn terminating(self, grace_ends: Timestamp) -> Self {
        self.with(|pod| {
            let finalizers = std::mem::take(&mut pod.lifecycle.finalizers);
            pod.lifecycle = Lifecycle { deletion_timestamp: Some(grace_ends), finalizers, ..Lifecycle::default() };
        })
    }

    /// Binds the Pod to a node.
    pub fn node(self, node: &str) -> Self {
        self.with(|pod| pod.spec.node_name = Some(node.to_owned()))
    }

    /// Adds a container with this image.
    pub fn container(self, name: &str, image: &str) -> Self {
        let container = Container { name: name.to_owned(), image: image.to_owned(), ..Container::default() };
        self.with(|pod| pod.spec.containers.push(container))
    }

    /// Sets a limit of the container that was added last.
    pub fn limit(self, resource: &str, quantity: &str) -> Self {
        self.with(|pod| {
            if let Some(container) = pod.spec.containers.last_mut() {
                container.limits.insert(resource.to_owned(), quantity.to_owned());
            }
        })
    }

    /// Sets a request of the container that was added last.
    pub fn request(self, resource: &str, quantity: &str) -> Self {
        self.with(|pod| {
            if let Some(container) = pod.spec.containers.last_mut() {
                container.requests.insert(resource.to_owned(), quantity.to_owned());
            }
        })
    }

    /// Adds an init container with this image.
    pub fn init_container(self, name: &str, image: &str) -> Self {
        let container = Container { name: name.to_owned(), image: image.to_owned(), ..Container::default() };
        self.with(|pod| pod.spec.init_containers.push(container))
    }

    /// Sets the condition `Ready`.
    pub fn ready(self, ready: bool) -> Self {
        let status = if ready { ConditionStatus::True } else { ConditionStatus::False };
        self.with(|pod| pod.status.conditions.retain(|condition| condition.condition_type != "Ready"))
            .condition(Condition::new("Ready", status))
    }

    /// Adds the status of a container that waits, such as for the reason `CrashLoopBackOff`, with its restarts.
    pub fn waiting(self, container: &str, reason: &str, restarts: i32) -> Self {
        let reason = Some(reason.to_owned());
        self.container_in(container, ContainerState::Waiting { reason, message: None }, restarts)
    }

    /// Adds the status of a container that ended with this exit code.
    pub fn terminated(self, container: &str, exit_code: i32, finished_at: Timestamp) -> Self {
        let state = ContainerState::Terminated {
            exit_code,
            signal: None,
            reason: Some(if exit_code == 0 { "Completed" } else { "Error" }.to_owned()),
            message: None,
            started_at: None,
            finished_at: Some(finished_at),
        };
        self.container_in(container, state, 0)
    }

    /// Sets `status.phase`.
    pub fn phase(self, phase: &str) -> Self {
        self.with(|pod| pod.status.phase = phase.to_owned())
    }

    /// Adds a condition.
    pub fn condition(self, condition: Condition) -> Self {
        self.with(|pod| pod.status.conditions.push(condition))
    }

    /// Adds a container's status.
    pub fn container_status(self, status: ContainerStatus) -> Self {
        self.with(|pod| pod.status.container_statuses.push(status))
    }

    /// Adds the status of a running container with its start time and restarts.
    pub fn running_since(self, container: &str, started_at: Timestamp, restarts: i32) -> Self {
        self.container_in(container, ContainerState::Running { started_at: Some(started_at) }, restarts)
    }

    fn container_in(self, container: &str, state: ContainerState, restart_count: i32) -> Self {
        self.container_status(ContainerStatus {
            name: container.to_owned(),
            ready: matches!(state, ContainerState::Running { .. }),
            restart_count,
            state,
            ..ContainerStatus::default()
        })
    }

    /// Sets the creation time by the age at [`NOW`].
    pub fn age(self, age: Duration) -> Self {
        let millis = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
        self.created(Timestamp(NOW.0.saturating_sub(millis)))
    }

    /// Sets any other field. The section `full` contains the other sections' fields in addition to its own.
    pub fn with(mut self, change: impl FnOnce(&mut Pod)) -> Self {
        change(&mut self.pod);
        self
    }
}

impl From<PodBuilder> for Pod {
    fn from(builder: PodBuilder) -> Self {
        builder.pod
    }
}

/// Returns the reference to a controller, with the uid `uid-<kind>-<name>`.
pub(super) fn controller(kind: &str, name: &str) -> Owner {
    let api_version = match kind {
        "Job" | "CronJob" => "batch/v1",
        "Node" => "v1",
        _ => "apps/v1",
    };
    Owner {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: format!("uid-{kind}-{name}"),
        controller: true,
        block_owner_deletion: true,
    }
}
