//! A finalizer belongs to one plugin: the deletion of a plugin removes its finalizers from Pods, also if another plugin
//! would still need them. Pure.

use std::{collections::BTreeMap, sync::Arc};

use podium_config::Problem;
use podium_pods::model::{KeyPattern, PluginId, PluginSpec, Tenant};

use super::object::Object;

/// Returns the mistake of each object whose plugin may hold finalizers of an earlier one that sees the same Pods. Files
/// are earlier than objects, and plugins of the cluster than those of a namespace, so that no tenant can take the name
/// of a finalizer from the platform; among others the creation decides. An object with mistakes has its
/// finalizers, and one that is being deleted until they are removed.
pub(super) fn conflicts<'a>(
    files: &BTreeMap<PluginId, Arc<PluginSpec>>,
    objects: impl Iterator<Item = &'a Object>,
) -> BTreeMap<PluginId, Problem> {
    let of_object = |object: &'a Object| {
        let spec = object.of_finalizers()?;
        (!files.contains_key(&object.id)).then_some((object, spec))
    };
    let mut objects: Vec<_> = objects.filter_map(of_object).collect();
    objects.sort_by_key(|(object, _)| object.precedence());
    let mut earlier: Vec<Arc<PluginSpec>> = files.values().cloned().collect();
    let mut conflicts = BTreeMap::new();
    for (object, spec) in objects {
        match earlier.iter().find_map(|other| Some((other, shared(&spec, other)?))) {
            Some((other, name)) => {
                let message = format!(
                    "{name:?} belongs to plugin {}: a finalizer belongs to one plugin, because it is removed from Pods \
                     when the plugin is deleted; name another finalizer in plugin {}",
                    other.id, object.id
                );
                let field = "spec.grants.write.finalizers".to_owned();
                conflicts.insert(object.id.clone(), Problem { line: None, field, message });
            }
            None => earlier.push(spec),
        }
    }
    conflicts
}

/// Returns a pattern of the first plugin that permits a finalizer of the second too, on the same Pods.
fn shared<'a>(spec: &'a PluginSpec, other: &PluginSpec) -> Option<&'a str> {
    let (own, of_other) = (spec.tenant(), other.tenant());
    if own != of_other && own != Tenant::Cluster && of_other != Tenant::Cluster {
        return None;
    }
    let overlaps = |pattern: &&KeyPattern| other.grants.write.finalizers.iter().any(|of| overlap(&pattern.0, &of.0));
    spec.grants.write.finalizers.iter().find(overlaps).map(|pattern| &*pattern.0)
}

fn overlap(one: &str, other: &str) -> bool {
    match (one.strip_suffix('*'), other.strip_suffix('*')) {
        (Some(one), Some(other)) => one.starts_with(other) || other.starts_with(one),
        (Some(prefix), None) => other.len() > prefix.len() && other.starts_with(prefix),
        (None, Some(prefix)) => one.len() > prefix.len() && one.starts_with(prefix),
        (None, None) => one == other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{
        super::object::{
            Kind,
            tests::{object, spec},
        },
        *,
    };

    fn with(name: &str, created: &str, finalizer: &str) -> Object {
        let mut spec = spec();
        spec["grants"]["write"] = json!({ "finalizers": [finalizer] });
        Object { created: created.to_owned(), ..object(name, 1, &spec) }
    }

    fn of_cluster(name: &str, created: &str, finalizer: &str) -> Object {
        let mut spec = spec();
        spec["grants"]["write"] = json!({ "finalizers": [finalizer] });
        spec["serviceAccountName"] = "a".into();
        spec["serviceAccountNamespace"] = "podium".into();
        let json = json!({ "metadata": { "name": name, "uid": "u" }, "spec": spec }).to_string();
        Object { created: created.to_owned(), ..Object::read(Kind::Cluster, &json).unwrap() }
    }

    fn refused(objects: &[Object]) -> Vec<String> {
        conflicts(&BTreeMap::new(), objects.iter())
            .into_iter()
            .map(|(id, problem)| {
                assert!(problem.message.contains(&id.to_string()), "{}", problem.message);
                id.to_string()
            })
            .collect()
    }

    #[test]
    fn the_later_of_two_plugins_with_one_finalizer_is_refused_with_both_names() {
        let (first, second) =
            (with("b", "2026-01-01T00:00:00Z", "a.example/x"), with("a", "2026-01-02T00:00:00Z", "a.example/*"));
        let found = conflicts(&BTreeMap::new(), [&second, &first].into_iter());
        let (id, problem) = found.first_key_value().unwrap();
        assert_eq!((found.len(), id.to_string().as_str()), (1, "shop/a"));
        assert!(problem.message.starts_with("\"a.example/*\" belongs to plugin shop/b"), "{}", problem.message);
        let mistaken = Object { plugin: Err([].into()), finalizing: first.of_finalizers(), ..first.clone() };
        assert_eq!(refused(&[mistaken, second.clone()]), ["shop/a"], "a mistake elsewhere changes nothing");
        let gone = Object { deleting: true, ..first.clone() };
        assert_eq!(refused(&[gone, second]), ["shop/a"], "its finalizers are not removed yet");
        assert!(refused(&[first, with("c", "", "a.example/y")]).is_empty());
    }

    #[test]
    fn a_plugin_of_the_cluster_is_before_those_of_namespaces() {
        let tenant = with("a", "2026-01-01T00:00:00Z", "a.example/x");
        let platform = of_cluster("z", "2026-01-02T00:00:00Z", "a.example/x");
        assert_eq!(refused(&[tenant.clone(), platform]), ["shop/a"]);
        let mut elsewhere = tenant.clone();
        elsewhere.id.namespace = Some("bank".into());
        let mut spec = PluginSpec::clone(tenant.plugin.as_ref().unwrap());
        spec.id = elsewhere.id.clone();
        elsewhere.plugin = Ok(Arc::new(spec));
        assert!(refused(&[tenant, elsewhere]).is_empty(), "of other Pods");
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
        }
    }
}
