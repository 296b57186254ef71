//! Values that follow from several fields of a [`Pod`]: when it finished, and the resources that it requests.

use std::iter;

use crate::{Container, ContainerState, Error, Pod, Quantity, Result, Spec, Status, Timestamp};

impl Pod {
    /// Returns the time at which it finished, for which Kubernetes has no field; `None` unless it
    /// [is finished](Self::is_finished). It is the end of its last container. Without one, because the Pod was evicted
    /// or never started, it is the last transition of its conditions, and without any the creation.
    ///
    /// # Errors
    /// See [`Pod::labels`]; needs the section `status`.
    pub fn finished_at(&self) -> Result<Option<Timestamp>> {
        Ok(if self.is_finished()? { Some(ended(self.status()?).unwrap_or(self.created())) } else { None })
    }

    /// Returns the amount of a resource, such as `cpu` or `memory`, that the Pod requests, as the scheduler computes it
    /// from its containers: the sum of the containers and sidecars, or what an init container needs beside the sidecars
    /// before it, if that is more. The Pod's `overhead` and the resources of the Pod as a whole are only in the section
    /// `full`.
    ///
    /// # Errors
    /// See [`Pod::labels`]; needs the section `spec`. Returns a terminal error for a quantity that is none.
    pub fn requests(&self, resource: &str) -> Result<Quantity> {
        requested(self.spec()?, resource)
    }
}

fn ended(status: &Status) -> Option<Timestamp> {
    let containers = status.container_statuses.iter().chain(&status.init_container_statuses);
    let ended = containers.filter_map(|container| match &container.state {
        ContainerState::Terminated { finished_at, .. } => *finished_at,
        _ => None,
    });
    ended.max().or_else(|| status.conditions.iter().filter_map(|condition| condition.last_transition_time).max())
}

/// Source of the algorithm: Kubernetes enhancement 753, "Resources calculation for scheduling and pod admission".
fn requested(spec: &Spec, resource: &str) -> Result<Quantity> {
    let of = |container: &Container| -> Result<Quantity> {
        let Some(text) = container.requests.get(resource) else { return Ok(Quantity::default()) };
        let context = || format!("container {}: requests.{resource}", container.name);
        text.parse().map_err(|error| Error::terminal(format_args!("{}: {error}", context())))
    };
    let mut sidecars = Quantity::default();
    let mut starting = Quantity::default();
    for container in &spec.init_containers {
        let needed = sidecars + of(container)?;
        starting = starting.max(needed);
        if container.restart_policy.as_deref() == Some("Always") {
            sidecars = needed;
        }
    }
    let running = spec.containers.iter().map(of).chain(iter::once(Ok(sidecars))).sum::<Result<Quantity>>()?;
    Ok(running.max(starting))
}
