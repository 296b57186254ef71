//! kube-rs: a reflector on a streaming list, and a set of keys instead of a controller's queue.

use std::{collections::HashSet, hint::black_box};

use anyhow::Context;
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Container, ContainerStatus, Pod};
use kube::{
    Api, Client, Config,
    runtime::{
        WatchStreamExt,
        reflector::{self, ObjectRef, Store},
        watcher::{self, Event, watcher},
    },
};

use super::control::{Control, Reads, median};

pub(super) async fn follow(config: Config, stripped: bool) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::all(Client::try_from(config)?);
    let (store, writer) = reflector::store();
    let (control, go) = Control::start({
        let store = store.clone();
        move || reads(&store)
    });
    go.await.context("no order came")?;
    let strip = move |pod: &mut Pod| {
        if stripped {
            strip(pod);
        }
    };
    let events = watcher(pods, watcher::Config::default().streaming_lists()).default_backoff().modify(strip);
    let mut events = events.reflect(writer).boxed();
    let mut queue = HashSet::new();
    let mut listed = 0;
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed = 0,
            Ok(Event::InitApply(pod)) => {
                listed += 1;
                queue.insert(ObjectRef::from_obj(&pod));
            }
            Ok(Event::InitDone) => {
                queue = HashSet::new();
                control.synced(listed)?;
            }
            Ok(Event::Apply(pod) | Event::Delete(pod)) => {
                let key = ObjectRef::from_obj(&pod);
                queue.insert(key.clone());
                let revision = pod.metadata.resource_version.as_deref().unwrap_or_default();
                control.seen(revision.parse().context("a resourceVersion is no number")?)?;
                queue.remove(&key);
            }
            // Lost history, as commanded; it lists again.
            Err(error) => eprintln!("the watcher: {error}"),
        }
    }
    anyhow::bail!("the watch ended")
}

fn reads(store: &Store<Pod>) -> Reads {
    let keys: Vec<_> = store.state().iter().map(|pod| ObjectRef::from_obj(&**pod)).collect();
    let get = median(|at| drop(black_box(store.get(&keys[at % keys.len()]))));
    Reads { snapshot: median(|_| drop(black_box(store.state()))), get }
}

/// Removes the fields that most controllers never read, as in go/main.go.
fn strip(pod: &mut Pod) {
    pod.metadata.managed_fields = None;
    if let Some(annotations) = &mut pod.metadata.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    if let Some(spec) = &mut pod.spec {
        spec.volumes = None;
        spec.affinity = None;
        spec.topology_spread_constraints = None;
        spec.init_containers.iter_mut().flatten().chain(&mut spec.containers).for_each(strip_container);
    }
    if let Some(status) = &mut pod.status {
        let of_init = status.init_container_statuses.iter_mut().flatten();
        of_init.chain(status.container_statuses.iter_mut().flatten()).for_each(strip_status);
    }
}

fn strip_container(container: &mut Container) {
    (container.command, container.args, container.env, container.env_from) = (None, None, None, None);
    (container.volume_mounts, container.lifecycle, container.security_context) = (None, None, None);
    (container.liveness_probe, container.readiness_probe, container.startup_probe) = (None, None, None);
}

fn strip_status(status: &mut ContainerStatus) {
    (status.volume_mounts, status.resources, status.allocated_resources, status.user) = (None, None, None, None);
}
