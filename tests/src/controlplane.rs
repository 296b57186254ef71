//! A real Kubernetes control plane of version 1.36.3 on free ports of 127.0.0.1: etcd, kube-apiserver and
//! kube-controller-manager; with nodes also kube-scheduler and KWOK, which simulates Pods by
//! `controlplane/stages.yaml`.
//!
//! It runs no containers and needs no root. Dropping it removes everything. It is for tests only: etcd does not sync
//! to disk.

mod audit;
mod etcd;
mod faults;
mod kubeconfig;
mod program;
mod proxy;

pub use audit::{Audit, AuditedWrite, Mark};
pub use faults::{FaultProxy, Faults, Link, Sent};
pub use kubeconfig::client_of;
pub(crate) use kubeconfig::token;
pub use proxy::Proxy;

use std::{
    collections::BTreeMap,
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::{
    Api, Client,
    api::{ListParams, ObjectMeta, PostParams},
};
use program::Program;
use tempfile::TempDir;

use crate::{process::Process, wait::until};

const STAGES: &str = include_str!("../controlplane/stages.yaml");
const AUDIT_POLICY: &str = include_str!("../controlplane/audit-policy.yaml");

/// 2.3 s on two idle cores; the machine may be busy building.
const READY_WITHIN: Duration = Duration::from_secs(120);
/// Another process may bind a port between its choice and its use; then everything is started again.
const ATTEMPTS: usize = 3;

/// The components to start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// The number of simulated nodes, which are ready when the start returns. With 0 Pods stay Pending: no scheduler,
    /// no KWOK.
    pub nodes: usize,
    /// Whether the API server only answers from etcd, so that it also loses the history that etcd compacts.
    pub without_watch_cache: bool,
}

/// A running control plane.
#[derive(Debug)]
pub struct ControlPlane {
    // Dropped in this order: clients, then servers, then their files.
    clients: Vec<Process>,
    apiserver: Process,
    etcd: Process,
    program: Program,
    etcd_address: SocketAddr,
    address: SocketAddr,
    options: Options,
    directory: TempDir,
}

impl ControlPlane {
    /// Starts a control plane. Returns `None` if it is not built and no variable requests it, or if Go is missing:
    /// the suite is skipped, with one line on stderr.
    ///
    /// # Errors
    /// Returns an error if it cannot be built or does not become ready; also without Go if it is requested by CI
    /// (`CI=true`) or `PODIUM_CLUSTER_TESTS=1`.
    pub async fn start(options: Options) -> Result<Option<Self>> {
        let Some(program) = Program::build().await? else { return Ok(None) };
        for _ in 1..ATTEMPTS {
            match Self::start_once(&program, options).await {
                Err(error) if format!("{error:#}").contains("address already in use") => {}
                done => return done.map(Some),
            }
        }
        Self::start_once(&program, options).await.map(Some)
    }

    async fn start_once(program: &Program, options: Options) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("podium-controlplane-").tempdir()?;
        let path = |name: &str| directory.path().join(name);
        let [etcd_address, etcd_peers, address] = free_addresses()?;
        fs::write(path("stages.yaml"), STAGES)?;
        fs::write(path("audit-policy.yaml"), AUDIT_POLICY)?;
        fs::write(path("service-account.key"), program.new_signing_key()?)?;
        fs::write(path("tokens.csv"), kubeconfig::TOKEN_FILE)?;
        fs::write(path("admin.kubeconfig"), kubeconfig::admin(address, &path(kubeconfig::CERTIFICATE)))?;

        let mut etcd = program.command("etcd");
        etcd.arg("--data-dir").arg(path("etcd")).args(["--unsafe-no-fsync", "--log-level=warn"]);
        for (flag, address) in [("client", etcd_address), ("peer", etcd_peers)] {
            let advertise = if flag == "peer" { "initial-advertise-peer" } else { "advertise-client" };
            etcd.arg(format!("--listen-{flag}-urls=http://{address}"));
            etcd.arg(format!("--{advertise}-urls=http://{address}"));
        }
        etcd.arg(format!("--initial-cluster=default=http://{etcd_peers}"));
        let etcd = Process::spawn("etcd", &mut etcd, path("etcd.log"))?;
        let apiserver = start_apiserver(program, directory.path(), etcd_address, address, options)?;

        let program = program.clone();
        let mut plane =
            Self { clients: Vec::new(), apiserver, etcd, program, etcd_address, address, options, directory };
        plane.apiserver_ready().await?;
        plane.start_clients(options)?;
        plane.make_nodes(options.nodes).await?;
        plane.default_account_ready().await?;
        Ok(plane)
    }

    fn start_clients(&mut self, options: Options) -> Result<()> {
        let kubeconfig = self.kubeconfig_path();
        let path = |name: &str| self.directory.path().join(name);
        let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
        let mut manager = self.program.command("kube-controller-manager");
        manager.arg(flag("service-account-private-key-file", &path("service-account.key")));
        // Pods find it in the ConfigMap kube-root-ca.crt of their namespace.
        manager.arg(flag("root-ca-file", &path(kubeconfig::CERTIFICATE)));
        manager.args(["--use-service-account-credentials", "--concurrent-gc-syncs=4"]);
        let mut commands = vec![("kube-controller-manager", manager)];
        if options.nodes > 0 {
            commands.push(("kube-scheduler", self.program.command("kube-scheduler")));
        }
        for (_, command) in &mut commands {
            command.args(["--leader-elect=false", "--secure-port=0", "--kube-api-qps=500", "--kube-api-burst=1000"]);
            for name in ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"] {
                command.arg(flag(name, &kubeconfig));
            }
        }
        if options.nodes > 0 {
            let mut kwok = self.program.command("kwok");
            kwok.arg(flag("kubeconfig", &kubeconfig)).arg(flag("config", &path("stages.yaml")));
            kwok.args([
                "--manage-all-nodes=true",
                "--node-port=0",
                "--node-lease-duration-seconds=40",
                "--node-ip=10.1.0.1",
                "--cidr=10.64.0.0/12",
            ]);
            kwok.env("HOME", self.directory.path());
            commands.push(("kwok", kwok));
        }
        for (name, mut command) in commands {
            let log = path(&format!("{name}.log"));
            self.clients.push(Process::spawn(name, &mut command, log)?);
        }
        Ok(())
    }

    async fn apiserver_ready(&mut self) -> Result<()> {
        let kubeconfig = self.kubeconfig_path();
        until("the API server", READY_WITHIN, async || {
            self.etcd.check_running()?;
            self.apiserver.check_running()?;
            // The API server creates the certificate when it starts.
            let client = client_of(&kubeconfig).await?;
            let answer = client.request_text(http::Request::get("/readyz").body(Vec::new())?);
            tokio::time::timeout(Duration::from_secs(5), answer).await??;
            Ok(())
        })
        .await
    }

    async fn make_nodes(&mut self, count: usize) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client().await?);
        for index in 0..count {
            let name = format!("node-{index:02}");
            let labels = BTreeMap::from([("kubernetes.io/hostname".to_owned(), name.clone())]);
            let metadata = ObjectMeta { name: Some(name), labels: Some(labels), ..Default::default() };
            nodes.create(&PostParams::default(), &Node { metadata, ..Default::default() }).await?;
        }
        until("all nodes to be ready", READY_WITHIN, async || {
            self.check_running()?;
            let listed = nodes.list(&ListParams::default()).await?;
            let ready = listed.items.iter().filter(|node| is_schedulable(node)).count();
            ensure!(ready == count, "{ready} of {count} are");
            Ok(())
        })
        .await
    }

    /// Waits for the default ServiceAccount of a namespace, without which Pods are not admitted.
    async fn default_account_ready(&mut self) -> Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client().await?, "default");
        until("the default ServiceAccount", READY_WITHIN, async || {
            self.check_running()?;
            accounts.get("default").await.map(drop).map_err(Into::into)
        })
        .await
    }

    /// Returns a proxy to the API server whose connections can be cut. `kubeconfig` is one of this control plane's.
    ///
    /// # Errors
    /// Returns an error if there is no port, or if the kubeconfig cannot be read.
    pub async fn proxy(&self, kubeconfig: &Path) -> Result<Proxy> {
        Proxy::start(self.address, kubeconfig, &self.directory).await
    }

    /// # Errors
    /// Returns an error with the end of the log if one of its programs has ended.
    pub fn check_running(&mut self) -> Result<()> {
        let mut all = [&mut self.etcd, &mut self.apiserver].into_iter().chain(&mut self.clients);
        all.try_for_each(Process::check_running)
    }

    /// Restarts the API server on the same port and data.
    ///
    /// # Errors
    /// Returns an error if it does not become ready again.
    pub async fn restart_apiserver(&mut self) -> Result<()> {
        self.apiserver.signal("KILL")?;
        self.apiserver.ended(READY_WITHIN).await?;
        self.apiserver =
            start_apiserver(&self.program, self.directory.path(), self.etcd_address, self.address, self.options)?;
        self.apiserver_ready().await
    }

    /// Compacts etcd's history up to now. Returns the oldest revision that is left.
    ///
    /// # Errors
    /// Returns an error if etcd does not answer.
    pub async fn compact(&self) -> Result<u64> {
        etcd::compact(self.etcd_address).await
    }

    /// Returns the process ids of kube-apiserver and etcd.
    #[must_use]
    pub fn servers(&self) -> [u32; 2] {
        [self.apiserver.id(), self.etcd.id()]
    }

    /// Returns the address of the API server.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a kubeconfig with all rights.
    #[must_use]
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.directory.path().join("admin.kubeconfig")
    }

    /// Returns a kubectl of the API server's own version.
    #[must_use]
    pub fn kubectl_path(&self) -> PathBuf {
        self.program.kubectl()
    }

    /// Returns the audit log of writes.
    #[must_use]
    pub fn audit(&self) -> Audit {
        Audit::new(self.directory.path().join("audit.log"))
    }

    /// Returns a client with all rights and without retries. It belongs to the runtime that creates it.
    ///
    /// # Errors
    /// Returns an error if the kubeconfig cannot be read.
    pub async fn client(&self) -> Result<Client> {
        client_of(&self.kubeconfig_path()).await
    }

    /// Returns a token of an existing ServiceAccount.
    ///
    /// # Errors
    /// Returns an error if the API server issues none.
    pub async fn token_of(&self, namespace: &str, account: &str) -> Result<String> {
        token(self.client().await?, namespace, account).await
    }

    /// Returns a kubeconfig with the token of an existing ServiceAccount.
    ///
    /// # Errors
    /// Returns an error if the API server issues no token.
    pub async fn kubeconfig_of(&self, namespace: &str, account: &str) -> Result<PathBuf> {
        let token = self.token_of(namespace, account).await?;
        let path = self.directory.path().join(format!("{namespace}.{account}.kubeconfig"));
        let certificate = self.directory.path().join(kubeconfig::CERTIFICATE);
        let text = kubeconfig::with_token(self.address, &certificate, namespace, &token);
        fs::write(&path, text).context("write a kubeconfig")?;
        Ok(path)
    }
}

fn start_apiserver(
    program: &Program,
    directory: &Path,
    etcd: SocketAddr,
    own: SocketAddr,
    options: Options,
) -> Result<Process> {
    let path = |name: &str| directory.join(name).display().to_string();
    let mut command = program.command("kube-apiserver");
    command.args([
        format!("--etcd-servers=http://{etcd}"),
        format!("--bind-address={}", own.ip()),
        format!("--advertise-address={}", own.ip()),
        format!("--secure-port={}", own.port()),
        format!("--cert-dir={}", path("certificates")),
        format!("--token-auth-file={}", path("tokens.csv")),
        format!("--service-account-key-file={}", path("service-account.key")),
        format!("--service-account-signing-key-file={}", path("service-account.key")),
        format!("--audit-policy-file={}", path("audit-policy.yaml")),
        format!("--audit-log-path={}", path("audit.log")),
    ]);
    command.args([
        "--service-account-issuer=https://kubernetes.default.svc",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--endpoint-reconciler-type=none",
    ]);
    if options.without_watch_cache {
        command.arg("--watch-cache=false");
    }
    Process::spawn("kube-apiserver", &mut command, directory.join("kube-apiserver.log"))
}

fn is_schedulable(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let tainted = node.spec.as_ref().and_then(|spec| spec.taints.as_ref()).is_some_and(|taints| !taints.is_empty());
    !tainted && conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Returns different ports that are free at present.
fn free_addresses<const N: usize>() -> Result<[SocketAddr; N]> {
    let listeners: Vec<TcpListener> =
        (0..N).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect::<Result<_, _>>()?;
    let addresses: Vec<SocketAddr> = listeners.iter().map(TcpListener::local_addr).collect::<Result<_, _>>()?;
    match addresses.try_into() {
        Ok(addresses) => Ok(addresses),
        Err(_) => bail!("as many addresses as listeners"),
    }
}
