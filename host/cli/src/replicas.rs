//! Which replica of the host is asked: the one that runs the plugins in question. Every replica knows the holders of
//! the Leases; the one that is needed is this one, or one of `--replica`, or its port is forwarded by kubectl.

use std::{process::Stdio, time::Duration};

use anyhow::{Context, bail, ensure};
use http::Uri;
use podium_host::admin::{self, Owner, Owners};
use podium_vocabulary::{Shards, Tenant, text};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{Child, Command},
    time::timeout,
};

use crate::{
    runs::{Server, name},
    ui,
};

/// How long kubectl may take to forward a port.
const FORWARDED_WITHIN: Duration = Duration::from_secs(10);

/// A replica that can be asked while this lives.
pub(crate) struct Replica {
    pub(crate) server: Server,
    /// Forwards its port, until it is dropped.
    _kubectl: Option<Child>,
}

impl Replica {
    fn new(server: Server) -> Self {
        Self { server, _kubectl: None }
    }
}

/// Returns the tenant of a plugin: `shop/hello`, or `hello` of the cluster.
fn tenant(plugin: &str) -> Tenant {
    plugin.split_once('/').map_or(Tenant::Cluster, |(namespace, _)| Tenant::Namespace(namespace.into()))
}

/// Returns who runs the plugins of a tenant; `None` if no replica does.
fn holder<'a>(owners: &'a Owners, tenant: &Tenant) -> Option<&'a Owner> {
    let of_tenant = |number: &usize| *number < Shards::COUNT && Shards::one(*number).has(tenant);
    owners.owners.iter().find(|owner| !owner.holder.is_empty() && owner.shards.iter().any(of_tenant))
}

impl Server {
    /// Returns the replica that runs a plugin.
    ///
    /// # Errors
    /// Returns an error with the next step if that replica cannot be reached from here.
    pub(crate) async fn of_plugin(&self, plugin: &str) -> anyhow::Result<Replica> {
        self.of_tenant(self.owners().await.as_ref(), &tenant(plugin)).await
    }

    /// Returns the replica that runs a plugin, or else the plugins of a Pod's namespace. Reports where those of the
    /// cluster run.
    ///
    /// # Errors
    /// Returns an error with the next step if that replica cannot be reached from here.
    pub(crate) async fn of_pod(&self, pod: &str, plugin: Option<&str>) -> anyhow::Result<Replica> {
        let owners = self.owners().await;
        let tenant = tenant(plugin.unwrap_or(pod));
        let replica = self.of_tenant(owners.as_ref(), &tenant).await?;
        if let (None, Some(owners)) = (plugin, &owners)
            && let (Some(of_pod), Some(of_cluster)) = (holder(owners, &tenant), holder(owners, &Tenant::Cluster))
            && of_pod.holder != of_cluster.holder
        {
            let place = place(owners, of_cluster);
            ui::report(&format!("plugins of the cluster run in {place}: ask about one of them by --plugin NAME"));
        }
        Ok(replica)
    }

    /// Returns this replica, those of `--replica`, and all others that run plugins. Reports those that cannot be
    /// reached.
    pub(crate) async fn of_all(&self) -> Vec<Replica> {
        let mut all: Vec<_> = [Replica::new(self.clone())].into_iter().chain(self.named()).collect();
        let Some(owners) = self.owners().await else { return all };
        let mut known = vec![owners.answers.clone()];
        for Replica { server, .. } in &all[1..] {
            known.extend(server.owners().await.map(|owners| owners.answers));
        }
        for owner in &owners.owners {
            if owner.holder.is_empty() || known.contains(&owner.holder) {
                continue;
            }
            known.push(owner.holder.clone());
            match self.forwarded(&owners, owner).await {
                Ok(replica) => all.push(replica),
                Err(error) => ui::report(&format!("not counted: {error:#}")),
            }
        }
        all
    }

    async fn of_tenant(&self, owners: Option<&Owners>, tenant: &Tenant) -> anyhow::Result<Replica> {
        let held = owners.and_then(|owners| Some((owners, holder(owners, tenant)?)));
        // Without a Lease, or while no replica runs the plugins, this one answers what it knows.
        let Some((owners, owner)) = held.filter(|(owners, owner)| owners.answers != owner.holder) else {
            return Ok(Replica::new(self.clone()));
        };
        for replica in self.named() {
            if replica.server.is(owner).await {
                return Ok(replica);
            }
        }
        self.forwarded(owners, owner).await
    }

    fn named(&self) -> impl Iterator<Item = Replica> {
        self.replica.iter().map(|url| Replica::new(self.at(url.clone())))
    }

    /// Returns what the replica knows about the holders; `None` without a Lease, and if it does not answer, which the
    /// next request reports.
    async fn owners(&self) -> Option<Owners> {
        self.get("/debug/owners").await.ok()
    }

    async fn is(&self, owner: &Owner) -> bool {
        self.owners().await.is_some_and(|owners| owners.answers == owner.holder)
    }

    /// Has kubectl forward the port of a holder's Pod.
    async fn forwarded(&self, owners: &Owners, owner: &Owner) -> anyhow::Result<Replica> {
        let url = self.url();
        let scheme = url.scheme_str().unwrap_or("https");
        let forward = async {
            ensure!(!owner.pod.is_empty(), "the holder is not in a Pod");
            ensure!(admin::is_loopback(url.host().unwrap_or_default()), "{url} is no port that kubectl forwards");
            let (port, kubectl) = forward(&owners.namespace, &owner.pod).await?;
            let server = self.at(Uri::try_from(format!("{scheme}://localhost:{port}"))?);
            ensure!(server.is(owner).await, "the forwarded port is not that of the holder, or does not answer");
            Ok(Replica { server, _kubectl: Some(kubectl) })
        };
        forward.await.map_err(|error: anyhow::Error| {
            let step = match &*owner.pod {
                "" => "Ask that one by --server".to_owned(),
                pod => format!(
                    "Ask that one:\n\n    kubectl -n {} port-forward pod/{pod} 8081:metrics &\n\nwith --server \
                     {scheme}://localhost:8081",
                    owners.namespace
                ),
            };
            let (asked, place) = (&owners.answers, place(owners, owner));
            anyhow::anyhow!("the plugins run in {place}, and {url} is {asked}: {error:#}. {step}")
        })
    }
}

/// Returns a holder for people.
fn place(owners: &Owners, owner: &Owner) -> String {
    match &*owner.pod {
        "" => owner.holder.clone(),
        pod => format!("Pod {}/{pod}", owners.namespace),
    }
}

/// Returns a local port that kubectl forwards to the port of metrics of a Pod, in the cluster of the user's kubeconfig.
async fn forward(namespace: &str, pod: &str) -> anyhow::Result<(u16, Child)> {
    for part in [namespace, pod] {
        ensure!(name(part).is_ok(), "{part:?} is no name of Kubernetes");
    }
    let mut command = Command::new("kubectl");
    command.args(["--namespace", namespace, "port-forward", &format!("pod/{pod}"), ":metrics"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut kubectl = command.spawn().context("kubectl is not started")?;
    let mut lines = BufReader::new(kubectl.stdout.take().context("kubectl has no output")?).lines();
    let line = timeout(FORWARDED_WITHIN, lines.next_line()).await.context("kubectl forwards nothing within 10 s")??;
    let Some(port) = line.as_deref().and_then(port) else {
        let mut error = String::new();
        let _ = kubectl.start_kill();
        if let Some(stderr) = &mut kubectl.stderr {
            timeout(FORWARDED_WITHIN, stderr.take(4 << 10).read_to_string(&mut error)).await??;
        }
        bail!("kubectl port-forward: {}", text::line(error.trim_end()));
    };
    // It writes a line for each connection, and ends when nothing reads them.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Ok((port, kubectl))
}

/// Returns the local port in a line of kubectl: `Forwarding from 127.0.0.1:40123 -> 8080`.
fn port(line: &str) -> Option<u16> {
    line.strip_prefix("Forwarding from ")?.split_once(" -> ")?.0.rsplit_once(':')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_that_of_the_loopback_interface() {
        assert_eq!(port("Forwarding from 127.0.0.1:40123 -> 8080"), Some(40_123));
        assert_eq!(port("Forwarding from [::1]:40123 -> 8080"), Some(40_123));
        assert_eq!([port(""), port("error: pods \"a\" not found"), port("Forwarding from x -> 8080")], [None; 3]);
    }

    #[test]
    fn the_holder_is_that_of_the_shard_of_the_tenant() {
        let owner = |shards: &[usize], holder: &str| Owner {
            lease: String::new(),
            shards: shards.to_vec(),
            holder: holder.to_owned(),
            pod: String::new(),
            term: 1,
        };
        let owners = |owners| Owners { shared: true, namespace: String::new(), answers: String::new(), owners };
        // Shards 12, 8 and 5.
        let found = |owners: &Owners| {
            ["a/x", "foobar/x", "x"].map(|plugin| holder(owners, &tenant(plugin)).map(|owner| owner.holder.clone()))
        };
        let [one, two] = ["one", "two"].map(|name| Some(name.to_owned()));
        let shared = owners(vec![owner(&[12], "one"), owner(&[8], "two"), owner(&[5], "")]);
        assert_eq!(found(&shared), [one.clone(), two, None]);
        let all = owners(vec![owner(&(0..16).collect::<Vec<_>>(), "one")]);
        assert_eq!(found(&all), [one.clone(), one.clone(), one]);
        assert_eq!(found(&owners(vec![owner(&[99], "one")])), [None, None, None]);
    }
}
