//! The price of sending what a run staged: each Pod that a write is about is decoded and compared with the writes. An
//! object to apply is rendered, digested and compared.
//!
//! It is known before anything is sent, so a run that cannot pay it sends nothing.

use std::collections::BTreeSet;

use podium_engine::ports::Staged;
use podium_pods::pod::{CachedPod, PodView};
use podium_vocabulary::{Action, ObjectOwner};
use podium_wire::Section;

use super::meter::{Size, price};

/// The sections that writes are compared with.
const COMPARED: [Section; 4] = [Section::Labels, Section::Annotations, Section::Lifecycle, Section::Status];

/// Returns the price of sending these writes and Events, with `objects` to apply among them. Stops at the first Pod
/// that `rest` does not pay for; the result is then more than `rest`.
pub(super) fn price_of(staged: &Staged, objects: Size, view: &dyn PodView, rest: u64) -> u64 {
    let events = staged.events.len() as u64 * price::WRITE;
    let mut sum = events.saturating_add(objects.sent());
    let mut pods = BTreeSet::new();
    for write in &staged.writes {
        let action = &write.get().action;
        sum = sum.saturating_add(price::WRITE);
        let owner = match action {
            Action::ApplyObject { owner, .. } => owner.as_ref().map(ObjectOwner::pod),
            _ => None,
        };
        let Some(key) = action.pod().or(owner) else { continue };
        if sum <= rest
            && pods.insert((&key.namespace, &key.name))
            && let Some(pod) = view.get(&key.namespace, &key.name)
        {
            sum = sum.saturating_add(size(&pod).rendered());
        }
    }
    sum
}

fn size(pod: &CachedPod) -> Size {
    let sections = pod.sections(COMPARED.into_iter().collect());
    COMPARED.into_iter().fold(Size::default(), |size, section| {
        let bytes = sections.get(section);
        let values = match section {
            Section::Labels | Section::Annotations => podium_wire::entries(bytes),
            _ => 1,
        };
        size.and(Size { bytes: bytes.len(), values })
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use podium_pods::{cache, pod::PodEvent, testing};
    use podium_vocabulary::{Grants, KeyPattern, PodKey, Scope, Write, authz::authorize};

    use super::*;

    fn staged(keys: &[&PodKey]) -> Staged {
        let mut grants = Grants::default();
        grants.write.labels = vec![KeyPattern("guests.example/a".to_owned())];
        let write = |key: &PodKey| {
            let target = key.clone();
            let key = "guests.example/a".to_owned();
            let action = Action::SetLabel { target, key, value: "1".to_owned() };
            authorize(&Scope::Cluster, &grants, Write { id: 0, action }).unwrap()
        };
        Staged { writes: keys.iter().map(|key| write(key)).collect(), ..Staged::default() }
    }

    fn world(labels: &[usize]) -> (Arc<cache::Snapshot>, Vec<PodKey>) {
        let (mut writer, reader) = cache::new(7);
        for (at, labels) in labels.iter().enumerate() {
            let mut pod = testing::pod(&format!("p{at}"), &format!("u{at}"), at as u64 + 1, "x");
            pod.labels.extend((1..*labels).map(|label| (format!("l{label}"), String::new())));
            writer.apply(vec![PodEvent::applied(testing::cached(&pod))]).publish();
        }
        let keys = reader.snapshot().iter().map(|pod| pod.key.clone()).collect();
        (reader.snapshot(), keys)
    }

    #[test]
    fn each_pod_is_paid_once_and_each_write_has_a_price() {
        let (view, keys) = world(&[1, 10_001]);
        let price = |keys: &[&PodKey]| price_of(&staged(keys), Size::default(), &*view, u64::MAX);
        let [small, large] = [&keys[0], &keys[1]];
        let one = price(&[small]);
        let many = price(&[large]);
        assert!(one < 4 * price::WRITE, "{one}");
        let labels = 10_000 * price::RENDERED_VALUE;
        assert!((labels..2 * labels).contains(&(many - one)), "{many}");
        assert_eq!(price(&[large; 20]), many + 19 * price::WRITE);
        assert_eq!(price(&[small, large]), one + many);
        assert_eq!(price(&[&PodKey::new("shop", "gone", "u")]), price::WRITE);
    }

    #[test]
    fn no_pod_is_looked_at_behind_the_one_that_is_too_dear() {
        let (view, keys) = world(&[10_000; 4]);
        let all: Vec<_> = keys.iter().collect();
        let one = price_of(&staged(&all[..1]), Size::default(), &*view, u64::MAX);
        assert_eq!(price_of(&staged(&all), Size::default(), &*view, one / 2), one + 3 * price::WRITE);
    }
}
