//! Bounds on the objects of a tenant: the oldest are read, up to a number and to a sum of bytes. Pure.
//!
//! Without them the work for each change, and the memory of the host, would grow with the objects of one tenant, which
//! need neither code nor rights. Of an object beyond the bounds only the metadata and few finalizers are kept.

use std::collections::BTreeMap;

use podium_vocabulary::{PluginId, Tenant};
use serde_json::{Value, json};

use super::object::Object;
use crate::config::Policy;

/// The most plugin objects of a tenant where the policy says nothing.
const MOST_PLUGINS: u32 = 100;
/// The most bytes of the specs of a tenant together, as JSON; a spec has at most 256 KiB. The plugin that is read from
/// a spec and the statuses take a multiple of it.
const MOST_SPEC_BYTES: usize = 4 << 20;

/// Why an object is not read although it may have no mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Beyond {
    /// In CamelCase.
    pub(crate) reason: &'static str,
    /// With the number and the next step. It has no number that changes with other objects.
    pub(crate) message: String,
}

/// Returns the most objects of a tenant that are read, and the field of the policy that says so.
pub(super) fn most_plugins(tenant: &Tenant, policy: Option<&Policy>) -> (Option<String>, usize) {
    let set = policy.and_then(|policy| policy.max_plugins(tenant));
    let (field, most) = set.map_or((None, MOST_PLUGINS), |(field, most)| (Some(field), most));
    (field, most as usize)
}

/// Returns the beginning of the message about an object that is beyond the number.
pub(super) fn too_many(most: usize) -> String {
    format!("is not one of the {most} oldest plugins")
}

/// Returns why each object of a tenant beyond the bounds is not read. The oldest are within them: by the time of
/// creation, then by uid. Objects that are being deleted count by themselves, so that a deletion displaces no plugin
/// that runs.
pub(super) fn beyond<'a>(
    tenant: &Tenant,
    objects: impl Iterator<Item = &'a Object>,
    policy: Option<&Policy>,
) -> BTreeMap<PluginId, Beyond> {
    let (field, most) = most_plugins(tenant, policy);
    let mut objects: Vec<_> = objects.collect();
    objects.sort_by_key(|object| (object.deleting, &object.created, &object.uid));
    let mut beyond = BTreeMap::new();
    for objects in objects.chunk_by(|one, other| one.deleting == other.deleting) {
        let mut bytes = 0_usize;
        for (at, object) in objects.iter().enumerate() {
            bytes = bytes.saturating_add(object.spec_bytes);
            let (reason, message) = if at >= most {
                let field = field.as_deref().unwrap_or("maxPlugins in a policy");
                let message = format!(
                    "{} of {tenant}, and the host reads no more ({field}); delete plugins that are not needed, or ask \
                     the platform team to change the policy",
                    too_many(most)
                );
                ("TooManyPlugins", message)
            } else if bytes > MOST_SPEC_BYTES {
                let message = format!(
                    "does not fit: the specs of the plugins of {tenant} may have {MOST_SPEC_BYTES} bytes together as \
                     JSON, and the oldest come first; make specs smaller, or delete plugins that are not needed"
                );
                ("SpecsTooLarge", message)
            } else {
                continue;
            };
            beyond.insert(object.id.clone(), Beyond { reason, message });
        }
    }
    beyond
}

/// Returns why an object within the bounds is not loaded: only its metadata was kept. The write of this status makes
/// the watch bring the object again.
pub(super) fn unread(object: &Object) -> Beyond {
    let message =
        format!("the spec is read again, because older plugins have gone (since revision {})", object.revision);
    Beyond { reason: "SpecNotRead", message }
}

/// The memory of an object beside the text of its spec: its plugin and its status.
const OBJECT: usize = 8 << 10;

/// Reads lists of many objects without the specs and statuses that are beyond the bounds.
#[derive(Debug, Default)]
pub(crate) struct Trimming {
    /// Bytes of objects that were there after the last time.
    kept: usize,
}

impl Trimming {
    /// Forgets the specs and statuses of objects that are beyond the bounds whatever the rest of the list has. Done
    /// when the objects that have them have doubled since, so that the time of a list is linear.
    pub(super) fn page(&mut self, objects: &mut [Object], policy: Option<&Policy>) {
        if bytes(objects) < 2 * self.kept.max(MOST_SPEC_BYTES) {
            return;
        }
        let mut tenants: BTreeMap<Tenant, Vec<usize>> = BTreeMap::new();
        for (at, object) in objects.iter().enumerate() {
            tenants.entry(object.id.tenant()).or_default().push(at);
        }
        for (tenant, of_tenant) in tenants {
            let beyond = beyond(&tenant, of_tenant.iter().map(|at| &objects[*at]), policy);
            let (_, most) = most_plugins(&tenant, policy);
            // Of these the host does not know whether it let them hold finalizers.
            let mut unproven = 0;
            for at in of_tenant {
                let object = &mut objects[at];
                if !beyond.contains_key(&object.id) {
                    continue;
                }
                object.forget_spec();
                unproven += usize::from(object.held.is_some() && !object.has_held());
                if !object.has_held() && (object.held.is_none() || unproven > most) {
                    object.finalizing = None;
                    shorten_status(object, most);
                }
            }
        }
        self.kept = bytes(objects);
    }
}

fn bytes(objects: &[Object]) -> usize {
    let of = |object: &Object| match object.is_forgotten() {
        false => OBJECT + object.spec.text().len(),
        true if object.finalizing.is_some() => OBJECT,
        true => 0,
    };
    objects.iter().map(of).sum()
}

/// Returns true if the status of the object's latest spec says that it is beyond the number.
pub(super) fn is_reported(object: &Object, most: usize) -> bool {
    let mut conditions = object.status["conditions"].as_array().into_iter().flatten();
    let is_reported = |of: &Value| of["message"].as_str().is_some_and(|message| message.starts_with(&too_many(most)));
    object.status["observedGeneration"] == object.generation && conditions.any(is_reported)
}

/// Reduces the status of an object that is not passed on to what [`is_reported`] reads.
fn shorten_status(object: &mut Object, most: usize) {
    if is_reported(object, most) {
        let conditions = json!([{ "message": too_many(most) }]);
        object.status = json!({ "observedGeneration": object.generation, "conditions": conditions }).into();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{
        super::object::tests::{object, spec},
        *,
    };

    fn shop() -> Tenant {
        Tenant::Namespace("shop".into())
    }

    fn created(name: &str, created: &str) -> Object {
        Object { created: created.to_owned(), ..object(name, 1, &spec()) }
    }

    fn reasons(objects: &[Object], policy: Option<&Policy>) -> Vec<(String, &'static str)> {
        let beyond = beyond(&shop(), objects.iter(), policy);
        beyond.into_iter().map(|(id, beyond)| (id.name.to_string(), beyond.reason)).collect()
    }

    fn policy(rules: &str) -> Policy {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("policy.yaml");
        std::fs::write(&file, format!("apiVersion: podium.dev/v1alpha1\nkind: Policy\nspec: {rules}\n")).unwrap();
        Policy::read(&file).unwrap()
    }

    #[test]
    fn forged_finalizers_of_a_list_take_bounded_memory() {
        let names: Vec<_> = (0..200).map(|name| format!("a/{name}")).collect();
        let spec = json!({ "config": "x".repeat(2_000), "grants": { "write": { "finalizers": names } } });
        let forged = |name: usize| Object { held: Some(0), ..object(&format!("{name:05}"), 1, &spec) };
        let held = |name: usize| {
            let status = json!({ "finalizers": { "names": ["a/1"] } });
            Object { status: status.into(), ..forged(name) }
        };
        let mut objects: Vec<_> = (0..10_000).map(forged).chain((10_000..10_010).map(held)).collect();
        Trimming::default().page(&mut objects, None);
        let kept: Vec<_> = objects.iter().filter(|object| object.is_forgotten()).collect();
        assert!(kept.len() > 9_000, "{} of {}", kept.len(), objects.len());
        let kept = kept.iter().filter(|object| object.finalizing.is_some());
        let [said, forged] = [true, false].map(|said| kept.clone().filter(|of| of.has_held() == said).count());
        assert!(said == 10 && forged <= 100, "{said} {forged}");
    }

    #[test]
    fn the_oldest_plugins_are_within_the_bound_and_then_the_uid_decides() {
        let two = policy("{ defaults: { maxPlugins: 9 }, namespaces: { shop: { maxPlugins: 2 } } }");
        let objects = [created("a", "2026-01-03"), created("c", "2026-01-02"), created("b", "2026-01-02")];
        assert_eq!(reasons(&objects, Some(&two)), [("a".to_owned(), "TooManyPlugins")]);
        let one = policy("{ defaults: { maxPlugins: 1 } }");
        let expected = ["a", "c"].map(|name| (name.to_owned(), "TooManyPlugins"));
        assert_eq!(reasons(&objects, Some(&one)), expected);
        let message = &beyond(&shop(), objects.iter(), Some(&one))[&objects[0].id].message;
        assert!(message.starts_with("is not one of the 1 oldest plugins of namespace shop"), "{message}");
        assert!(message.contains("policy.yaml: spec.defaults.maxPlugins); delete plugins"), "{message}");
    }

    #[test]
    fn a_hundred_plugins_are_within_the_bound_and_deletions_displace_none() {
        let mut objects: Vec<_> = (0..101).map(|at| created(&format!("p{at:03}"), "2026-01-01")).collect();
        assert_eq!(reasons(&objects, None), [("p100".to_owned(), "TooManyPlugins")]);
        objects[7].deleting = true;
        assert!(reasons(&objects, None).is_empty());
        objects.iter_mut().for_each(|object| object.deleting = true);
        assert_eq!(reasons(&objects, None).len(), 1);
    }

    #[test]
    fn specs_are_bounded_together_and_the_oldest_come_first() {
        let mut large = spec();
        large["config"] = json!({ "a": "x".repeat(250 << 10) });
        let objects: Vec<_> = (0..20).map(|at| object(&format!("p{at:03}"), 1, &large)).collect();
        let found = reasons(&objects, None);
        assert_eq!(found.first().unwrap(), &("p016".to_owned(), "SpecsTooLarge"));
        assert_eq!(found.len(), 4);
    }

    #[test]
    fn a_list_of_large_specs_is_trimmed_while_it_is_read() {
        let mut large = spec();
        large["config"] = json!({ "a": "x".repeat(250 << 10) });
        let mut objects = Vec::new();
        let mut trimming = Trimming::default();
        let mut most = 0;
        for page in 0..10 {
            objects.extend((0..10).map(|at| object(&format!("p{page}{at}"), 1, &large)));
            trimming.page(&mut objects, None);
            most = most.max(objects.iter().map(|object| object.spec.text().len()).sum::<usize>());
        }
        assert!(most < 3 * MOST_SPEC_BYTES, "{most}");
        let kept = objects.iter().filter(|object| !object.is_forgotten()).map(|object| &*object.id.name);
        assert!(kept.clone().take(16).eq((0..16).map(|at| format!("p{at:02}"))), "{:?}", kept.collect::<Vec<_>>());
    }

    #[test]
    fn a_list_of_many_small_objects_is_trimmed_while_it_is_read() {
        let mut objects = Vec::new();
        let mut trimming = Trimming::default();
        let mut most = 0;
        let conditions =
            ["Ready", "Healthy"].map(|of| json!({ "type": of, "message": too_many(MOST_PLUGINS as usize) }));
        let status: Arc<_> =
            json!({ "observedGeneration": 1, "conditions": conditions, "more": "x".repeat(900) }).into();
        for page in 0..200 {
            let page = (0..50).map(|at| object(&format!("p{page:03}{at:02}"), 1, &spec()));
            objects.extend(page.map(|object| Object { status: status.clone(), ..object }));
            trimming.page(&mut objects, None);
            most = most.max(objects.iter().filter(|object| object.status["more"].is_string()).count());
        }
        assert!(most < 1_200, "{most} of 10,000 are whole");
        assert!(objects.iter().all(|object| is_reported(object, MOST_PLUGINS as usize)), "none is reported again");
        let shown = objects[9_000].status.clone();
        for (held, status) in [(Some(0), shown.clone()), (None, json!({ "observedGeneration": 0 }).into())] {
            let mut object = Object { held, status, ..object("last", 1, &spec()) };
            let before = object.status.clone();
            shorten_status(&mut object, MOST_PLUGINS as usize);
            assert_eq!(object.status, before, "one that is passed on is compared with its whole status");
        }
        assert!(objects.iter().take(100).all(|object| object.plugin.is_ok()), "the oldest are whole");
    }
}
