//! Which replica of the host is asked: the one that runs the plugins in question. Every replica knows the holders of
//! the Leases; the one that is needed is this one, or one of `--replica`, or its port is forwarded by kubectl.

use std::{process::Stdio, time::Duration};

use anyhow::{Context, bail, ensure};
use http::Uri;
use podium_host::admin::{self, Owner, Owners};
use podium_vocabulary::{Shards, Tenant, syntax::dns_subdomain, text};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, ChildStderr, Command},
    sync::watch,
    time::timeout,
};

use crate::{runs::Server, ui};

/// How long kubectl may take to forward a port.
const FORWARDED_WITHIN: Duration = Duration::from_secs(10);
/// How long the end of what kubectl writes is waited for, which a process that it started can delay.
const ENDED_WITHIN: Duration = Duration::from_secs(1);
/// The most lines of kubectl in a message.
const LAST_LINES: usize = 4;

/// A replica that can be asked while this lives.
pub(crate) struct Replica {
    server: Server,
    /// Forwards its port, until it is dropped.
    kubectl: Option<Child>,
}

impl Replica {
    fn new(server: Server) -> Self {
        Self { server, kubectl: None }
    }

    /// Returns the server for the next request.
    ///
    /// # Errors
    /// Returns an error if kubectl has ended: the port may be that of another process, which must not get the token.
    pub(crate) fn server(&mut self) -> anyhow::Result<&Server> {
        if let Some(kubectl) = &mut self.kubectl
            && let Some(ended) = kubectl.try_wait()?
        {
            bail!("kubectl port-forward has ended: {ended}");
        }
        Ok(&self.server)
    }
}

/// All replicas that run plugins.
pub(crate) struct Replicas {
    pub(crate) reached: Vec<Replica>,
    /// The holders that cannot be reached.
    pub(crate) not_counted: Vec<String>,
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
    /// Returns an error with the next step if that replica cannot be reached from here, and if this one does not say
    /// which it is.
    pub(crate) async fn of_plugin(&self, plugin: &str) -> anyhow::Result<Replica> {
        self.of_tenant(self.owners().await?.as_ref(), &tenant(plugin)).await
    }

    /// Returns the replica that runs a plugin, or else the plugins of a Pod's namespace. Reports where those of the
    /// cluster run.
    ///
    /// # Errors
    /// Returns an error with the next step if that replica cannot be reached from here, and if this one does not say
    /// which it is.
    pub(crate) async fn of_pod(&self, pod: &str, plugin: Option<&str>) -> anyhow::Result<Replica> {
        let owners = self.owners().await?;
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
    ///
    /// # Errors
    /// Returns an error if this replica does not say which the others are.
    pub(crate) async fn of_all(&self) -> anyhow::Result<Replicas> {
        let mut reached: Vec<_> = [Replica::new(self.clone())].into_iter().chain(self.named()).collect();
        let mut not_counted = Vec::new();
        let Some(owners) = self.owners().await? else { return Ok(Replicas { reached, not_counted }) };
        let mut known = vec![owners.answers.clone()];
        for Replica { server, .. } in &reached[1..] {
            known.extend(server.owners().await?.map(|owners| owners.answers));
        }
        for owner in &owners.owners {
            if owner.holder.is_empty() || known.contains(&owner.holder) {
                continue;
            }
            known.push(owner.holder.clone());
            match self.forwarded(&owners, owner).await {
                Ok(replica) => reached.push(replica),
                Err(error) => {
                    ui::report(&format!("not counted: {error:#}"));
                    not_counted.push(owner.holder.clone());
                }
            }
        }
        Ok(Replicas { reached, not_counted })
    }

    async fn of_tenant(&self, owners: Option<&Owners>, tenant: &Tenant) -> anyhow::Result<Replica> {
        let held = owners.and_then(|owners| Some((owners, holder(owners, tenant)?)));
        // Without a Lease, or while no replica runs the plugins, this one answers what it knows.
        let Some((owners, owner)) = held.filter(|(owners, owner)| owners.answers != owner.holder) else {
            return Ok(Replica::new(self.clone()));
        };
        for replica in self.named() {
            match replica.server.is(owner).await {
                Ok(true) => return Ok(replica),
                Ok(false) => {}
                // Another one may be the holder.
                Err(error) => ui::report(&format!("{error:#}")),
            }
        }
        self.forwarded(owners, owner).await
    }

    fn named(&self) -> impl Iterator<Item = Replica> {
        self.replica.iter().map(|url| Replica::new(self.at(url.clone())))
    }

    /// Returns what the replica knows about the holders; `None` without a Lease, and from an older host.
    async fn owners(&self) -> anyhow::Result<Option<Owners>> {
        self.find("/debug/owners").await
    }

    async fn is(&self, owner: &Owner) -> anyhow::Result<bool> {
        Ok(self.owners().await?.is_some_and(|owners| owners.answers == owner.holder))
    }

    /// Has kubectl forward the port of a holder's Pod.
    async fn forwarded(&self, owners: &Owners, owner: &Owner) -> anyhow::Result<Replica> {
        let url = self.url();
        let scheme = url.scheme_str().unwrap_or("https");
        let forward = async {
            ensure!(!owner.pod.is_empty(), "the holder is not in a Pod");
            ensure!(admin::is_loopback(url.host().unwrap_or_default()), "{url} is no port that kubectl forwards");
            let (port, kubectl) = forward(&owners.namespace, &owner.pod).await?;
            // Not by name, whose other address may be the port of another user. The certificate is of the name.
            let server = self.at(Uri::try_from(format!("{scheme}://127.0.0.1:{port}"))?);
            let server = Server { tls_server_name: Some("localhost"), ..server };
            let mut replica = Replica { server, kubectl: Some(kubectl) };
            ensure!(replica.server()?.is(owner).await?, "the forwarded port is not that of the holder");
            Ok(replica)
        };
        forward.await.map_err(|error: anyhow::Error| {
            let step = if [&owners.namespace, &owner.pod].into_iter().all(|part| dns_subdomain(part).is_ok()) {
                format!(
                    "Ask that one:\n\n    kubectl -n {} port-forward pod/{} 8081:metrics &\n\nwith --server \
                     {scheme}://localhost:8081",
                    owners.namespace, owner.pod
                )
            } else {
                "Ask that one by --server".to_owned()
            };
            let asked = &owners.answers;
            let place = place(owners, owner);
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
        ensure!(dns_subdomain(part).is_ok(), "{part:?} is no name of Kubernetes");
    }
    let mut command = Command::new("kubectl");
    let pod = format!("pod/{pod}");
    command.args(["--namespace", namespace, "port-forward", "--address", "127.0.0.1", &pod, ":metrics"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut kubectl = command.spawn().context("kubectl is not started")?;
    let mut lines = BufReader::new(kubectl.stdout.take().context("kubectl has no output")?).lines();
    let mut errors = last_lines(kubectl.stderr.take().context("kubectl has no output of errors")?);
    let line = timeout(FORWARDED_WITHIN, lines.next_line()).await;
    let late = if line.is_err() { "nothing is forwarded within 10 s. " } else { "" };
    let Some(port) = line.unwrap_or(Ok(None))?.as_deref().and_then(port) else {
        let _ = kubectl.start_kill();
        let _ = timeout(ENDED_WITHIN, async { while errors.changed().await.is_ok() {} }).await;
        bail!("kubectl port-forward: {late}{}", text::line(&errors.borrow().join(" ")));
    };
    // It writes a line for each connection, and ends when nothing reads them.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    Ok((port, kubectl))
}

/// Reads all lines of kubectl, which waits when nothing reads them, and returns the last ones so far.
fn last_lines(stderr: ChildStderr) -> watch::Receiver<Vec<String>> {
    let (last, receiver) = watch::channel(Vec::new());
    tokio::spawn(async move {
        let mut lines = BufReader::new(stderr).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            last.send_modify(|last| {
                if last.len() == LAST_LINES {
                    last.remove(0);
                }
                last.push(line);
            });
        }
    });
    receiver
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

    #[tokio::test]
    async fn a_command_has_only_names_of_kubernetes() {
        for text in ["", "-n", "a-", ".a", "a b", "a;b", "$(a)", "a\nb", "A"] {
            for (namespace, pod) in [(text, "podium-host-a"), ("podium", text)] {
                let error = forward(namespace, pod).await.unwrap_err().to_string();
                assert_eq!(error, format!("{text:?} is no name of Kubernetes"));
            }
        }
    }

    #[tokio::test]
    async fn the_last_lines_of_kubectl_are_kept_and_an_ended_one_is_not_used() {
        let mut command = Command::new("sh");
        command.args(["-c", "for line in 1 2 3 4 5 6; do echo $line >&2; done"]).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = last_lines(child.stderr.take().unwrap());
        while lines.changed().await.is_ok() {}
        assert_eq!(*lines.borrow(), ["3", "4", "5", "6"]);
        child.wait().await.unwrap();
        let mut replica = Replica { server: Server::default(), kubectl: Some(child) };
        let error = replica.server().unwrap_err().to_string();
        assert!(error.starts_with("kubectl port-forward has ended"), "{error}");
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
