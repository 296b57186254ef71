//! When a finished Pod finished. Kubernetes has no such field.

use podium_sdk::{ContainerState, Status, Timestamp};

/// Returns the end of its last container. Without one, because the Pod was evicted or never started, returns the last
/// transition of its conditions; `None` if it has neither.
pub(crate) fn at(status: &Status) -> Option<Timestamp> {
    let containers = status.container_statuses.iter().chain(&status.init_container_statuses);
    let ended = containers.filter_map(|container| match &container.state {
        ContainerState::Terminated { finished_at, .. } => *finished_at,
        _ => None,
    });
    ended.max().or_else(|| status.conditions.iter().filter_map(|condition| condition.last_transition_time).max())
}

#[cfg(test)]
mod tests {
    use podium_sdk::{Condition, ConditionStatus, ContainerStatus};

    use super::*;

    fn ended(at: i64) -> ContainerStatus {
        let state = ContainerState::Terminated {
            exit_code: 0,
            signal: None,
            reason: None,
            message: None,
            started_at: None,
            finished_at: Some(Timestamp(at)),
        };
        ContainerStatus { state, ..ContainerStatus::default() }
    }

    #[test]
    fn the_last_container_decides_and_conditions_only_without_any() {
        let moved =
            Condition { last_transition_time: Some(Timestamp(9)), ..Condition::new("Ready", ConditionStatus::False) };
        let mut status = Status { conditions: vec![moved], ..Status::default() };
        assert_eq!(at(&status), Some(Timestamp(9)));
        status.container_statuses = vec![ended(3), ended(5)];
        status.init_container_statuses = vec![ended(1)];
        assert_eq!(at(&status), Some(Timestamp(5)));
        assert_eq!(at(&Status::default()), None);
    }
}
