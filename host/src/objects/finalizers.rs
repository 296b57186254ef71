//! A finalizer belongs to one plugin: the deletion of a plugin removes its finalizers from Pods, also if another plugin
//! would still need them. Pure.

use std::{collections::BTreeMap, ops::Bound, sync::Arc};

use podium_config::Problem;
use podium_vocabulary::{PluginId, PluginSpec};

use super::object::Object;

/// The plugins that finalizers belong to. Names are looked up as `K`.
#[derive(Debug, PartialEq)]
pub(super) struct Owners<K: Ord = String> {
    names: BTreeMap<K, PluginId>,
    /// Prefixes of which none begins with another one: the greatest that is not behind a text is its prefix, if one is.
    prefixes: BTreeMap<K, PluginId>,
}

/// The finalizers of plugins that have theirs before another one, by the namespace of the Pods; `None` for all.
#[derive(Debug)]
pub(crate) struct Earlier<K: Ord = String>(BTreeMap<Option<Arc<str>>, Owners<K>>);

impl<K: Ord + Clone + AsRef<str> + for<'a> From<&'a str>> Earlier<K> {
    pub(super) fn new(plugins: impl Iterator<Item = Arc<PluginSpec>>) -> Self {
        let mut earlier = Self(BTreeMap::new());
        plugins.for_each(|plugin| earlier.add(&plugin));
        earlier
    }

    pub(super) fn add(&mut self, plugin: &PluginSpec) {
        self.0.entry(plugin.id.namespace.clone()).or_default().add(plugin);
    }

    /// Returns true if a plugin may hold the finalizer of a Pod of the namespace. Takes about as long for many plugins
    /// as for few.
    pub(crate) fn has(&self, namespace: &Arc<str>, name: &str) -> bool {
        let mut owners = [None, Some(namespace.clone())].into_iter().filter_map(|of| self.0.get(&of));
        owners.any(|owners| owners.of_pattern(name).is_some())
    }
}

/// Finalizers with the Pods that have them.
#[derive(Debug)]
pub(crate) struct OnPods<T, K: Ord = String>(BTreeMap<K, Vec<T>>);

impl<T, K: Ord> Default for OnPods<T, K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T, K: Ord + Clone + AsRef<str> + for<'a> From<&'a str>> OnPods<T, K> {
    pub(crate) fn add(&mut self, name: &str, pod: T) {
        self.0.entry(name.into()).or_default().push(pod);
    }

    /// Returns the finalizers that a plugin may hold, found without a look at others.
    pub(crate) fn of_plugin(&self, plugin: &PluginSpec) -> Vec<(&K, &[T])> {
        let patterns = Owners::<K>::new([plugin]);
        let named = patterns.names.keys().filter_map(|name| self.0.get_key_value(name));
        let prefixed = patterns.prefixes.keys().flat_map(|prefix| {
            let longer = self.0.range((Bound::Excluded(prefix), Bound::Unbounded));
            longer.take_while(|(name, _)| name.as_ref().starts_with(prefix.as_ref()))
        });
        named.chain(prefixed).map(|(name, pods)| (name, &**pods)).collect()
    }

    /// Removes the finalizers that a plugin may hold, so that they are those of no later plugin, and returns them.
    pub(crate) fn claim(&mut self, plugin: &PluginSpec) -> Vec<(K, Vec<T>)> {
        let names: Vec<K> = self.of_plugin(plugin).into_iter().map(|(name, _)| name.clone()).collect();
        names.into_iter().filter_map(|name| self.0.remove_entry(&name)).collect()
    }
}

impl<K: Ord> Default for Owners<K> {
    fn default() -> Self {
        Self { names: BTreeMap::new(), prefixes: BTreeMap::new() }
    }
}

impl<K: Ord + Clone + AsRef<str> + for<'a> From<&'a str>> Owners<K> {
    /// Adds the finalizers that plugins are granted.
    pub(super) fn new<'a>(plugins: impl IntoIterator<Item = &'a PluginSpec>) -> Self {
        let mut owners = Self::default();
        plugins.into_iter().for_each(|plugin| owners.add(plugin));
        owners
    }

    fn add(&mut self, plugin: &PluginSpec) {
        for pattern in &plugin.grants.write.finalizers {
            let Some(prefix) = pattern.0.strip_suffix('*') else {
                self.names.entry(pattern.0.as_str().into()).or_insert_with(|| plugin.id.clone());
                continue;
            };
            let key = K::from(prefix);
            if self.prefixes.range(..=&key).next_back().is_some_and(|(of, _)| prefix.starts_with(of.as_ref())) {
                continue;
            }
            while let Some(longer) =
                first(&self.prefixes, Bound::Included(&key), prefix).map(|(longer, _)| longer.clone())
            {
                self.prefixes.remove(&longer);
            }
            self.prefixes.insert(key, plugin.id.clone());
        }
    }

    /// Returns a plugin with a finalizer that matches the pattern too.
    fn of_pattern(&self, pattern: &str) -> Option<&PluginId> {
        let prefix = pattern.strip_suffix('*');
        let text = prefix.unwrap_or(pattern);
        let key = K::from(text);
        // A finalizer has at least one character behind the prefix of a pattern.
        let shorter = match prefix {
            Some(_) => self.prefixes.range(..=&key).next_back(),
            None => self.prefixes.range(..&key).next_back(),
        };
        let shorter = shorter.filter(|(of, _)| text.starts_with(of.as_ref()));
        let (_, owner) = match prefix {
            _ if shorter.is_some() => shorter,
            Some(_) => first(&self.prefixes, Bound::Included(&key), text)
                .or_else(|| first(&self.names, Bound::Excluded(&key), text)),
            None => self.names.get_key_value(&key),
        }?;
        Some(owner)
    }
}

/// Returns the first entry behind a bound that starts with a prefix.
fn first<'a, K: Ord + AsRef<str>>(
    map: &'a BTreeMap<K, PluginId>,
    bound: Bound<&K>,
    prefix: &str,
) -> Option<(&'a K, &'a PluginId)> {
    map.range((bound, Bound::Unbounded)).next().filter(|(key, _)| key.as_ref().starts_with(prefix))
}

/// Returns the mistake of each object of a tenant whose plugin may hold finalizers of an earlier one that sees the same
/// Pods, and adds the finalizers of the others to those of the tenant's files. Files are earlier than objects, and
/// plugins of the cluster than those of a namespace, so that no tenant can take the name of a finalizer from the
/// platform; among others the creation decides. An object with mistakes has its finalizers, and one that is being
/// deleted until they are removed.
pub(super) fn conflicts<'a, K: Ord + Clone + AsRef<str> + for<'k> From<&'k str>>(
    earlier: &Owners<K>,
    own: &mut Owners<K>,
    objects: impl Iterator<Item = &'a Object>,
) -> BTreeMap<PluginId, Problem> {
    let mut objects: Vec<_> = objects.filter_map(|object| Some((object, object.of_finalizers()?))).collect();
    objects.sort_by_key(|(object, _)| object.precedence());
    let mut conflicts = BTreeMap::new();
    for (object, spec) in objects {
        let taken = spec.grants.write.finalizers.iter().find_map(|pattern| {
            Some((&*pattern.0, earlier.of_pattern(&pattern.0).or_else(|| own.of_pattern(&pattern.0))?))
        });
        match taken {
            Some((name, other)) => {
                let message = format!(
                    "{name:?} belongs to plugin {other}: a finalizer belongs to one plugin, because it is removed from \
                     Pods when the plugin is deleted; name another finalizer in plugin {}",
                    object.id
                );
                let field = "spec.grants.write.finalizers".to_owned();
                conflicts.insert(object.id.clone(), Problem { line: None, field, message });
            }
            None => own.add(&spec),
        }
    }
    conflicts
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use podium_vocabulary::KeyPattern;
    use proptest::prelude::*;
    use serde_json::json;

    use super::{
        super::{
            Change, Desired,
            object::{
                Kind,
                tests::{object, spec},
            },
        },
        *,
    };

    fn with(name: &str, created: &str, finalizers: &[&str]) -> Object {
        let mut spec = spec();
        spec["grants"]["write"] = json!({ "finalizers": finalizers });
        Object { created: created.to_owned(), ..object(name, 1, &spec) }
    }

    fn refused(objects: &[Object]) -> Vec<String> {
        let found = conflicts(&Owners::<String>::default(), &mut Owners::default(), objects.iter());
        let names = found.into_iter().map(|(id, problem)| {
            assert!(problem.message.contains(&id.to_string()), "{}", problem.message);
            id.to_string()
        });
        names.collect()
    }

    #[test]
    fn the_later_of_two_plugins_with_one_finalizer_is_refused_with_both_names() {
        let first = with("b", "2026-01-01T00:00:00Z", &["a.example/x"]);
        let second = with("a", "2026-01-02T00:00:00Z", &["a.example/*"]);
        let found = conflicts(&Owners::<String>::default(), &mut Owners::default(), [&second, &first].into_iter());
        let (id, problem) = found.first_key_value().unwrap();
        assert_eq!((found.len(), id.to_string().as_str()), (1, "shop/a"));
        assert!(problem.message.starts_with("\"a.example/*\" belongs to plugin shop/b"), "{}", problem.message);
        let mistaken = Object { plugin: Err([].into()), finalizing: first.of_finalizers(), ..first.clone() };
        assert_eq!(refused(&[mistaken, second.clone()]), ["shop/a"], "a mistake elsewhere changes nothing");
        let gone = Object { deleting: true, ..first.clone() };
        assert_eq!(refused(&[gone, second]), ["shop/a"], "its finalizers are not removed yet");
        assert!(refused(&[first, with("c", "", &["a.example/y"])]).is_empty());
    }

    #[test]
    fn patterns_overlap_if_a_finalizer_matches_both() {
        for (one, other, expected) in [
            ("a.example/x", "a.example/x", true),
            ("a.example/x", "a.example/y", false),
            ("a.example/*", "a.example/y", true),
            ("a.example/*", "a.example/y*", true),
            ("a.example/*", "b.example/*", false),
            ("a.example/x*", "a.example/x", false),
        ] {
            assert_eq!((overlap(one, other), overlap(other, one)), (expected, expected), "{one} {other}");
            for (earlier, later) in [(one, other), (other, one)] {
                let found = refused(&[with("a", "1", &[earlier]), with("b", "2", &[later])]);
                assert_eq!(found.len(), usize::from(expected), "{earlier} {later}");
            }
        }
    }

    fn overlap(one: &str, other: &str) -> bool {
        match (one.strip_suffix('*'), other.strip_suffix('*')) {
            (Some(one), Some(other)) => one.starts_with(other) || other.starts_with(one),
            (Some(prefix), None) => other.len() > prefix.len() && other.starts_with(prefix),
            (None, Some(prefix)) => one.len() > prefix.len() && one.starts_with(prefix),
            (None, None) => one == other,
        }
    }

    fn plugin(name: &str, patterns: &[String]) -> PluginSpec {
        let mut plugin = PluginSpec::clone(with(name, "", &[]).plugin.as_ref().unwrap());
        plugin.grants.write.finalizers = patterns.iter().cloned().map(KeyPattern).collect();
        plugin
    }

    proptest! {
        #[test]
        fn the_refused_are_those_of_comparing_each_with_each(
            earlier in prop::collection::vec(prop::collection::vec("[ab]{1,3}[*]?", 0..3), 0..3),
            objects in prop::collection::vec(prop::collection::vec("[ab]{1,3}[*]?", 0..3), 0..8),
        ) {
            let named = |all: &[Vec<String>], prefix: &str| -> Vec<PluginSpec> {
                all.iter().enumerate().map(|(at, of)| plugin(&format!("{prefix}{at}"), of)).collect()
            };
            let files = named(&earlier, "f");
            let plugins = named(&objects, "p");
            let mut kept = files.clone();
            let mut expected = Vec::new();
            for plugin in &plugins {
                let shared = |other: &PluginSpec| plugin.grants.write.finalizers.iter().any(|one| {
                    other.grants.write.finalizers.iter().any(|other| overlap(&one.0, &other.0))
                });
                if kept.iter().any(shared) { expected.push(plugin.id.clone()) } else { kept.push(plugin.clone()) }
            }
            let objects: Vec<Object> = plugins
                .iter()
                .map(|plugin| Object { plugin: Ok(plugin.clone().into()), ..object(&plugin.id.name, 1, &spec()) })
                .collect();
            let found = conflicts(&Owners::<String>::new(&files), &mut Owners::default(), objects.iter());
            prop_assert_eq!(found.keys().cloned().collect::<Vec<_>>(), expected);
            for (id, problem) in found {
                let mut words = problem.message.split(['"', ':']);
                let pattern = words.nth(1).unwrap();
                let owner = words.next().unwrap();
                let owner = owner.rsplit('/').next().unwrap();
                let owner = files.iter().chain(&plugins).find(|plugin| &*plugin.id.name == owner).unwrap();
                prop_assert!(owner.id != id);
                let overlaps = |of: &KeyPattern| overlap(&of.0, pattern);
                prop_assert!(owner.grants.write.finalizers.iter().any(overlaps), "{}", problem.message);
            }
        }
    }

    proptest! {
        #[test]
        fn a_name_is_of_an_earlier_plugin_if_a_pattern_of_one_matches_it(
            patterns in prop::collection::vec((0..3_usize, prop::collection::vec("[ab]{1,3}[*]?", 0..3)), 0..6),
            name in "[ab]{1,4}",
        ) {
            let namespaces = [None, Some("shop".into()), Some("bank".into())];
            let plugins: Vec<Arc<PluginSpec>> = patterns
                .iter()
                .map(|(at, patterns)| {
                    let mut plugin = plugin("p", patterns);
                    plugin.id.namespace = namespaces[*at].clone();
                    plugin.into()
                })
                .collect();
            let earlier = Earlier::<String>::new(plugins.iter().cloned());
            for namespace in namespaces.iter().flatten() {
                let holds = |plugin: &&Arc<PluginSpec>| {
                    let mut finalizers = plugin.grants.write.finalizers.iter();
                    plugin.scope().contains(namespace) && finalizers.any(|pattern| pattern.matches(&name))
                };
                prop_assert_eq!(earlier.has(namespace, &name), plugins.iter().any(|plugin| holds(&plugin)));
            }
        }
    }

    proptest! {
        #[test]
        fn a_finalizer_is_claimed_by_the_first_plugin_with_a_pattern_of_it(
            patterns in prop::collection::vec(prop::collection::vec("[ab]{1,3}[*]?", 0..4), 0..4),
            names in prop::collection::btree_set("[ab]{1,4}", 0..8),
        ) {
            let mut on_pods = OnPods::<_>::default();
            names.iter().for_each(|name| on_pods.add(name, ()));
            let mut left: Vec<_> = names.into_iter().collect();
            for patterns in patterns {
                let plugin = plugin("p", &patterns);
                let is_held = |name: &String| {
                    plugin.grants.write.finalizers.iter().any(|pattern| pattern.matches(name))
                };
                let (held, others): (Vec<_>, _) = left.into_iter().partition(is_held);
                left = others;
                let mut claimed: Vec<_> = on_pods.claim(&plugin).into_iter().map(|(name, _)| name).collect();
                claimed.sort_unstable();
                prop_assert_eq!(claimed, held);
            }
        }
    }

    thread_local! {
        static COMPARED: Cell<u64> = const { Cell::new(0) };
    }

    /// A name that counts comparisons.
    #[derive(Clone, PartialEq, Eq)]
    struct Counted(String);

    impl From<&str> for Counted {
        fn from(name: &str) -> Self {
            Self(name.to_owned())
        }
    }

    impl AsRef<str> for Counted {
        fn as_ref(&self) -> &str {
            &self.0
        }
    }

    impl Ord for Counted {
        fn cmp(&self, other: &Self) -> std::cmp::Ordering {
            COMPARED.set(COMPARED.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    impl PartialOrd for Counted {
        fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
            Some(self.cmp(other))
        }
    }

    #[test]
    fn finalizers_of_pods_are_not_compared_with_each_pattern_of_each_plugin() {
        let all: Vec<PluginSpec> = (0..100)
            .map(|at| {
                let nested = (1..=128).map(|length| format!("a.example/{at}-{}*", "a".repeat(length)));
                let names = (0..128).map(|name| format!("b.example/{at}-{name}"));
                plugin(&format!("p{at}"), &nested.chain(names).collect::<Vec<_>>())
            })
            .collect();
        let mut on_pods = OnPods::<_, Counted>::default();
        (0..10_000).for_each(|at| on_pods.add(&format!("a.example/7-{}{at}", "a".repeat(at % 256)), at));
        COMPARED.set(0);
        let claimed: usize = all.iter().map(|plugin| on_pods.claim(plugin).len()).sum();
        assert!(claimed > 9_900 && COMPARED.get() < 3_000_000, "{claimed} with {} comparisons", COMPARED.get());
    }

    #[test]
    fn a_look_compares_names_in_a_time_that_is_linear_in_the_objects_that_go() {
        let compared = |objects: usize| {
            let mut desired = Desired::default();
            for at in 0..objects {
                let names: Vec<String> = (0..16).map(|name| format!("a.example/{name}-{at}")).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let object = with(&format!("p{at}"), "", &names);
                let object = Object { deleting: true, held: Some(0), ..object };
                desired.change(Kind::Namespaced, vec![Change::Applied(object.into())]);
            }
            COMPARED.set(0);
            let mut seen = 0;
            desired.removing_in_order::<Counted>(&Some("shop".into()), |_| false, |_, _, _| seen += 1);
            assert_eq!(seen, objects);
            COMPARED.get()
        };
        // The depth of the maps grows with the logarithm.
        let few = compared(10);
        let many = compared(100);
        assert!(many < 10 * 3 * few, "{few} and {many}");
    }

    #[test]
    fn comparisons_of_names_grow_with_their_number_and_not_with_its_square() {
        let compared = |objects: usize| {
            let objects: Vec<Object> = (0..objects)
                .map(|at| {
                    let star = if at % 2 == 0 { "*" } else { "" };
                    let names: Vec<String> = (0..16).map(|name| format!("a.example/{name}-{at}-{star}")).collect();
                    let plugin = plugin(&format!("p{at}"), &names);
                    Object { plugin: Ok(plugin.into()), ..object(&format!("p{at}"), 1, &spec()) }
                })
                .collect();
            COMPARED.set(0);
            assert!(conflicts(&Owners::<Counted>::default(), &mut Owners::default(), objects.iter()).is_empty());
            COMPARED.get()
        };
        // The depth of the maps grows with the logarithm.
        let few = compared(10);
        let many = compared(1_000);
        assert!(many < 100 * 4 * few, "{few} and {many}");
    }
}
