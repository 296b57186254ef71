//! The replicas of the host, each behind a network of its own that can be cut.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use http::Request;
use kube::Client;
use podium_tests::{
    controlplane::{ControlPlane, Proxy},
    process::{Host, HostOptions, host_binary},
    wait::until,
};
use serde_json::Value;

use crate::objects::SOON;

/// A process, with the name of a Pod.
pub(super) struct Replica {
    name: String,
    pub(super) host: Host,
    pub(super) network: Proxy,
    /// The revision of its cache when it was ready: it knows all deletions since then.
    since: u64,
}

/// The Lease that decides which replica runs the plugin, as the API server has it.
#[derive(Debug)]
pub(super) struct Held {
    /// The name of the replica.
    pub(super) by: String,
    pub(super) term: u32,
    /// The revision up to which all deletions have settled, if the holder has said so and none is open.
    settled: Option<u64>,
}

pub(super) struct Group {
    pub(super) lease: String,
    options: HostOptions,
    client: Client,
    started: usize,
    pub(super) all: Vec<Replica>,
}

impl Group {
    pub(super) fn new(lease: String, options: HostOptions, client: Client) -> Self {
        Self { lease, options, client, started: 0, all: Vec::new() }
    }

    /// Starts one more replica, and waits until it is ready.
    pub(super) async fn start(&mut self, plane: &ControlPlane) -> Result<()> {
        self.started += 1;
        let name = format!("replica-{}", self.started);
        let network = plane.proxy(&self.options.kubeconfig).await?;
        let mut options = self.options.clone();
        options.kubeconfig = network.kubeconfig_path().to_owned();
        let mut command = Command::new(host_binary()?);
        command.env("POD_NAME", &name);
        let host = Host::spawn_by(command, &options).await?;
        let since = host.metric("podium_cache_revision", &[]).await? as u64;
        self.all.push(Replica { name, host, network, since });
        Ok(())
    }

    /// Returns the replica of this name.
    pub(super) fn named(&self, name: &str) -> Result<&Replica> {
        self.all.iter().find(|replica| replica.name == name).with_context(|| format!("no replica {name}"))
    }

    /// Removes the replica of this name.
    pub(super) fn take(&mut self, name: &str) -> Result<Replica> {
        let at = self.all.iter().position(|replica| replica.name == name);
        Ok(self.all.remove(at.with_context(|| format!("no replica {name}"))?))
    }

    /// Returns the Lease, if a replica holds it.
    pub(super) async fn held(&self) -> Result<Held> {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/podium/leases/{}", self.lease);
        let lease: Value = self.client.request(Request::get(path).body(Vec::new())?).await?;
        let holder = lease["spec"]["holderIdentity"].as_str().context("no holder")?;
        let (by, _) = holder.rsplit_once('_').with_context(|| format!("the holder {holder}"))?;
        let term = u32::try_from(lease["spec"]["leaseTransitions"].as_u64().context("no term")?)?;
        let mark: Vec<_> =
            lease["metadata"]["annotations"]["podium.dev/mark"].as_str().unwrap_or("").split(' ').collect();
        let settled = match mark[..] {
            [of, _, revision, ""] if of == term.to_string() => Some(revision.parse()?),
            _ => None,
        };
        Ok(Held { by: by.to_owned(), term, settled })
    }

    /// Waits until a replica of the group holds the Lease in a term after this one.
    pub(super) async fn held_after(&self, term: u32) -> Result<Held> {
        until("another term", SOON, async || {
            let held = self.held().await?;
            ensure!(held.term > term, "{held:?}");
            self.named(&held.by)?;
            Ok(held)
        })
        .await
    }

    /// Fails unless each replica is ready and has its share, if there are shares.
    pub(super) async fn check_shares(&self) -> Result<()> {
        let mut shares = Vec::new();
        for replica in &self.all {
            replica.host.get("/readyz").await?;
            shares.push(replica.host.metric("podium_lease_shards", &[]).await? as usize);
        }
        let least = shares.iter().min();
        let most = shares.iter().max();
        let even = least.zip(most).is_some_and(|(least, most)| most - least <= 1);
        ensure!(shares.iter().sum::<usize>() == 16 && (self.is_of_one() || even), "shards: {shares:?}");
        Ok(())
    }

    /// Fails unless another replica than the holder knows all deletions that have not settled.
    pub(super) fn check_successor(&self, held: &Held) -> Result<()> {
        let settled = held.settled.context("the mark has open deletions")?;
        let knows = |replica: &&Replica| replica.name != held.by && replica.since <= settled;
        ensure!(self.all.iter().any(|replica| knows(&replica)), "the mark is of {settled}");
        Ok(())
    }

    /// Returns true if one replica runs all plugins.
    fn is_of_one(&self) -> bool {
        self.lease == "podium-host"
    }

    /// Returns the end of each log.
    pub(super) fn logs(&self) -> String {
        let end = |log: &str| log.lines().rev().take(40).map(|line| format!("{line}\n")).collect::<Vec<_>>();
        let of = |replica: &Replica| {
            let lines: String = end(&replica.host.log()).into_iter().rev().collect();
            format!("--- {}\n{lines}", replica.name)
        };
        self.all.iter().map(of).collect()
    }
}
