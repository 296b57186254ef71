//! The controllers of the controller manager that a cluster has by default: objects whose owners are all gone are
//! collected, foreground deletions wait for dependents, orphaned objects lose their owner reference, terminating
//! Namespaces are emptied.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::{Value, json};

use crate::{
    core::Core,
    delete::{self, Options},
    kinds::Kind,
    managed::Author,
    meta::{self, Object},
    state::State,
    store::Key,
    write::{self, Write},
};

/// The identity of a stored object.
type ObjectId = (Arc<Kind>, Key);

/// Runs until the cluster stops.
pub(crate) async fn run(core: Arc<Core>) {
    let mut collector = Collector::default();
    let mut changed = core.revision.subscribe();
    loop {
        changed.borrow_and_update();
        core.write(|state| collector.round(state, &core));
        tokio::select! {
            biased;
            () = core.stopping.cancelled() => return,
            changed = changed.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
    }
}

#[derive(Debug, Default)]
struct Collector {
    seen: u64,
    /// The epoch of `seen`.
    epoch: u64,
    /// Objects that are being deleted and wait for their dependents or their content.
    waiting: BTreeSet<(String, Key)>,
}

impl Collector {
    fn round(&mut self, state: &mut State, core: &Core) {
        let kinds = state.kinds.stored();
        let mut dead: BTreeSet<String> = BTreeSet::new();
        let mut suspects: Vec<ObjectId> = Vec::new();
        if std::mem::replace(&mut self.epoch, state.store.epoch()) != self.epoch {
            self.seen = 0;
        }
        for kind in &kinds {
            let resource = kind.resource();
            let touched: Vec<(Key, Object, bool)> = match state.store.since(&resource, self.seen) {
                Ok(changes) => changes.into_iter().map(|c| (c.key, c.object, c.deleted)).collect(),
                // The history is compacted: everything is checked again.
                Err(_) => state.store.iter(&resource, None).map(|(k, o)| (k.clone(), o.clone(), false)).collect(),
            };
            for (key, object, deleted) in touched {
                if deleted {
                    dead.insert(meta::uid(&object).to_owned());
                    continue;
                }
                if !meta::list(&object, &["metadata", "ownerReferences"]).is_empty() {
                    suspects.push((kind.clone(), key.clone()));
                }
                if kind.is("namespaces") && !meta::is_terminating(&object) {
                    default_account(state, core, &key.name);
                }
                if meta::is_terminating(&object) && (kind.is("namespaces") || waits_for_collector(&object)) {
                    self.waiting.insert((resource.clone(), key));
                }
            }
        }
        self.seen = state.store.revision();
        if !dead.is_empty() {
            suspects.extend(places(state, &kinds, |object| {
                owners(object).any(|owner| dead.contains(meta::text(owner, &["uid"])))
            }));
        }
        for (kind, key) in suspects {
            collect(state, core, &kind, &key);
        }
        for (resource, key) in self.waiting.clone() {
            let kind = kinds.iter().find(|kind| kind.resource() == resource);
            let done = kind.is_none_or(|kind| finish(state, core, &kinds, kind, &key));
            if done {
                self.waiting.remove(&(resource, key));
            }
        }
    }
}

/// Creates the default ServiceAccount of a Namespace, which Pods use when they name none.
fn default_account(state: &mut State, core: &Core, namespace: &str) {
    let Some(kind) = state.kinds.find("", "v1", "serviceaccounts") else { return };
    if state.store.get("serviceaccounts", &Key::new(namespace, "default")).is_some() {
        return;
    }
    let account = json!({"metadata": {"name": "default"}});
    let write = write_of(core, &kind);
    if let Err(failure) = write::create(state, &core.clock, &write, Some(namespace), account) {
        tracing::debug!(namespace, ?failure, "the default ServiceAccount was refused");
    }
}

fn write_of(core: &Core, kind: &Arc<Kind>) -> Write {
    let author = Author {
        manager: "kube-controller-manager".into(),
        apply: false,
        subresource: String::new(),
        api_version: kind.api_version(),
        time: core.clock.now(),
    };
    Write { kind: kind.clone(), author, dry_run: false }
}

fn owners(object: &Value) -> impl Iterator<Item = &Value> {
    meta::list(object, &["metadata", "ownerReferences"]).iter()
}

fn waits_for_collector(object: &Value) -> bool {
    meta::finalizers(object).iter().any(|finalizer| finalizer == delete::FOREGROUND || finalizer == delete::ORPHAN)
}

/// Removes the reference to the deleted owner from its dependents, which stay.
fn orphan(state: &mut State, core: &Core, dependents: &[ObjectId], uid: &str) {
    for (kind, key) in dependents {
        let released = write::update(state, &write_of(core, kind), key, |old| {
            let mut kept = old.clone();
            meta::array(&mut kept["metadata"]["ownerReferences"]).retain(|reference| reference["uid"] != uid);
            Ok(kept)
        });
        if let Err(failure) = released {
            tracing::debug!(resource = kind.qualified(), name = key.name, ?failure, "orphaning a dependent failed");
        }
    }
}

fn places(state: &State, kinds: &[Arc<Kind>], fits: impl Fn(&Value) -> bool) -> Vec<ObjectId> {
    let mut found = Vec::new();
    for kind in kinds {
        let objects = state.store.iter(&kind.resource(), None).filter(|(_, object)| fits(object));
        found.extend(objects.map(|(key, _)| (kind.clone(), key.clone())).collect::<Vec<_>>());
    }
    found
}

/// Deletes the object if it has owners and all are known to be gone. An owner of a kind that is not served is kept,
/// as by the real collector.
fn collect(state: &mut State, core: &Core, kind: &Kind, key: &Key) {
    let Some(object) = state.store.get(&kind.resource(), key).cloned() else { return };
    if meta::is_terminating(&object) {
        return;
    }
    let gone = |owner: &Value| {
        let found = state.kinds.of_object(meta::text(owner, &["apiVersion"]), meta::text(owner, &["kind"]));
        found.is_some_and(|owner_kind| {
            let namespace = if owner_kind.namespaced { key.namespace.as_str() } else { "" };
            let place = Key::new(namespace, meta::text(owner, &["name"]));
            let current = state.store.get(&owner_kind.resource(), &place);
            current.is_none_or(|current| meta::uid(current) != meta::text(owner, &["uid"]))
        })
    };
    let mut all = owners(&object).peekable();
    if all.peek().is_some() && all.all(gone) {
        remove(state, core, kind, key, Some(meta::uid(&object)));
    }
}

fn remove(state: &mut State, core: &Core, kind: &Kind, key: &Key, uid: Option<&str>) {
    let options = Options { uid: uid.map(str::to_owned), ..Options::default() };
    if let Err(failure) = delete::delete(state, &core.clock, kind, key, &options) {
        tracing::debug!(resource = kind.qualified(), name = key.name, ?failure, "the collector's deletion was refused");
    }
}

/// Performs one step of deleting an object. Returns true if no step is left.
fn finish(state: &mut State, core: &Core, kinds: &[Arc<Kind>], kind: &Kind, key: &Key) -> bool {
    let Some(object) = state.store.get(&kind.resource(), key).cloned() else { return true };
    if !meta::is_terminating(&object) {
        return true;
    }
    let mut content = if kind.is("namespaces") {
        places(state, kinds, |content| meta::namespace(content) == key.name)
    } else {
        let uid = meta::uid(&object);
        places(state, kinds, |dependent| owners(dependent).any(|owner| owner["uid"] == uid))
    };
    if meta::finalizers(&object).iter().any(|finalizer| finalizer == delete::ORPHAN) {
        orphan(state, core, &content, meta::uid(&object));
        content.clear();
    }
    for (kind, key) in &content {
        let terminating = state.store.get(&kind.resource(), key).is_some_and(|object| meta::is_terminating(object));
        if !terminating {
            remove(state, core, kind, key, None);
        }
    }
    let left = content.iter().any(|(kind, key)| state.store.get(&kind.resource(), key).is_some());
    if left {
        return false;
    }
    let mut released = Value::clone(&object);
    if kind.is("namespaces") {
        meta::set(&mut released, &["spec", "finalizers"], json!([]));
    } else {
        meta::array(&mut released["metadata"]["finalizers"]).retain(|f| f != delete::FOREGROUND && f != delete::ORPHAN);
    }
    meta::tidy(&mut released);
    if delete::is_due(&object, &released) {
        state.remove(kind, key);
    } else {
        state.put(kind, released);
    }
    true
}
