//! State that several plugins share.

use podium_vocabulary::PluginId;

use super::*;
use crate::ports::StateError;

struct Group {
    registry: Registry,
}

impl Group {
    fn put(&self, namespace: Option<&str>, name: &str, group: Option<&str>) -> Arc<LoadedPlugin> {
        let spec = PluginSpec { state_group: group.map(str::to_owned), ..testing::plugin(namespace, name) };
        let run = Closure(Box::new(|_, _| report(Ok(Outcome::Settled), Vec::new())));
        let sender = Sender { manager: format!("podium/{}", spec.id), impersonate: None };
        let lane = self.registry.put(spec, Arc::new(run), sender, Arc::default(), None, None);
        self.registry.get(lane).unwrap()
    }

    fn remove(&self, loaded: &LoadedPlugin) {
        self.registry.remove(&loaded.spec.id).unwrap();
    }
}

fn group() -> Group {
    Group { registry: Registry::default() }
}

fn value(loaded: &LoadedPlugin) -> Option<Vec<u8>> {
    loaded.state.lock().get("k").map(|entry| entry.value)
}

fn set(loaded: &LoadedPlugin, value: &[u8]) -> u64 {
    loaded.state.lock().put("k", value.to_vec(), None).unwrap()
}

#[test]
fn plugins_of_a_group_share_one_state_and_its_bounds() {
    let group = group();
    let [a, b] = ["a", "b"].map(|name| group.put(Some("shop"), name, Some("carts")));
    let version = set(&a, b"1");
    let next = b.state.lock().put("k", b"2".to_vec(), Some(version)).unwrap();
    let stale = a.state.lock().put("k", b"3".to_vec(), Some(version));
    assert!(matches!(stale, Err(StateError::Conflict(Some(entry))) if entry.version == next && entry.value == b"2"));
    // Half of the share, three times, by two plugins: together they have one share.
    for (loaded, key) in [(&a, "x"), (&b, "y"), (&a, "z")] {
        loaded.state.lock().put(key, vec![0; (1 << 19) - 1], None).unwrap();
    }
    let oldest = b.state.lock().get("x");
    assert_eq!((oldest, value(&b)), (None, None));
}

#[test]
fn no_state_is_shared_outside_a_group() {
    let group = group();
    set(&group.put(Some("shop"), "a", Some("carts")), b"1");
    for (namespace, name, named) in [
        (Some("shop"), "b", Some("orders")),
        (Some("shop"), "c", None),
        (Some("shop"), "carts", None),
        (Some("bank"), "a", Some("carts")),
        (None, "a", Some("carts")),
    ] {
        assert_eq!(value(&group.put(namespace, name, named)), None, "{namespace:?} {name} {named:?}");
    }
    assert_eq!(value(&group.put(Some("shop"), "d", Some("carts"))).as_deref(), Some(&b"1"[..]));
}

#[test]
fn a_groups_state_lives_as_long_as_one_of_its_plugins_is_loaded() {
    let group = group();
    let [a, b] = ["a", "b"].map(|name| group.put(Some("shop"), name, Some("carts")));
    set(&a, b"1");
    group.remove(&a);
    assert_eq!(value(&b).as_deref(), Some(&b"1"[..]));
    let a = group.put(Some("shop"), "a", Some("carts"));
    assert_eq!(value(&a).as_deref(), Some(&b"1"[..]), "the first one loaded again");
    assert_eq!(value(&group.put(Some("shop"), "a", Some("carts"))).as_deref(), Some(&b"1"[..]), "a swap");
    group.remove(&b);
    group.remove(&a);
    assert_eq!(value(&group.put(Some("shop"), "a", Some("carts"))), None);
}

#[test]
fn a_plugin_that_leaves_its_group_loses_the_groups_state() {
    let group = group();
    let [a, b] = ["a", "b"].map(|name| group.put(Some("shop"), name, Some("carts")));
    set(&a, b"1");
    let single = group.put(Some("shop"), "a", None);
    assert_eq!((value(&single), value(&b).as_deref(), a.is_revoked()), (None, Some(&b"1"[..]), true));
    set(&single, b"2");
    let joined = group.put(Some("shop"), "a", Some("carts"));
    assert_eq!((value(&joined).as_deref(), single.is_revoked()), (Some(&b"1"[..]), false));
    assert_eq!(joined.spec.id, PluginId { namespace: Some("shop".into()), name: "a".into() });
}
