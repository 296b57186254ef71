//! The cluster that `podium dev` uses: one in this process, or an existing one.

use std::path::{Path, PathBuf};

use anyhow::Context;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, Error, api::PostParams, config::Kubeconfig};

use super::{crates::Crate, kubeconfig::KubeconfigFile};
use crate::{
    args,
    build::{self, Install},
    cluster::{self, Local},
};

pub(super) struct Environment {
    pub(super) client: Client,
    kubeconfig: PathBuf,
    /// The only watched namespace, or `None` for all.
    pub(super) only: Option<String>,
    /// Whether builds install a missing compilation target.
    pub(super) install: Install,
    /// `None` with `--kubeconfig`.
    local: Option<(Local, KubeconfigFile)>,
}

impl Environment {
    pub(super) async fn start(arguments: &args::Dev, crates: &[Crate], now_millis: u64) -> anyhow::Result<Self> {
        let only = arguments.namespace.clone();
        let install = arguments.toolchain.install_targets;
        if let Some(path) = &arguments.kubeconfig {
            let kubeconfig = Kubeconfig::read_from(path).with_context(|| format!("cannot use {}", path.display()))?;
            return Ok(Self {
                client: cluster::client(kubeconfig).await?,
                kubeconfig: path.clone(),
                only,
                install,
                local: None,
            });
        }
        let first = crates.first().context("no crate found")?;
        let target = match first.script().is_some() {
            true => first.directory.join("target"),
            false => build::target_directory(&first.directory)?,
        };
        let directory = target.join("podium");
        let options = podium_devcluster::Options {
            seed: now_millis,
            nodes: arguments.nodes,
            start_millis: i64::try_from(now_millis)?,
            ..<_>::default()
        };
        let local = Local::start(options).await?;
        let file = KubeconfigFile::write(&directory, &local.kubeconfig())?;
        let environment = Self {
            client: local.client().await?,
            kubeconfig: file.path().to_owned(),
            only,
            install,
            local: Some((local, file)),
        };
        if let Some(namespace) = &environment.only {
            environment.provide_namespace(namespace).await?;
        }
        Ok(environment)
    }

    /// Creates a namespace in the cluster of this process. In another cluster nothing is created: see
    /// [`Self::print_next_step`].
    pub(super) async fn provide_namespace(&self, name: &str) -> anyhow::Result<()> {
        if self.local.is_none() {
            return Ok(());
        }
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.to_owned());
        match Api::all(self.client.clone()).create(&PostParams::default(), &namespace).await {
            Ok(_) => Ok(()),
            Err(Error::Api(status)) if status.code == 409 => Ok(()),
            Err(error) => Err(error).with_context(|| format!("cannot create the namespace {name}")),
        }
    }

    /// Prints an author's next step. `namespace` is one that a plugin sees.
    pub(super) async fn print_next_step(&self, namespace: &str) {
        let whose = if self.local.is_some() { "A cluster in this process, which ends with it" } else { "Your cluster" };
        let namespaces = Api::<Namespace>::all(self.client.clone());
        // If this user may not read the namespace, it is assumed to exist.
        let missing = matches!(namespaces.get_opt(namespace).await, Ok(None));
        let create = if missing { format!("    kubectl create namespace {namespace}\n") } else { String::new() };
        eprintln!("{}", next_step(whose, &self.kubeconfig, &create, namespace));
    }
}

fn next_step(whose: &str, kubeconfig: &Path, create: &str, namespace: &str) -> String {
    format!(
        "\n{whose}. In another terminal:\n\n    export KUBECONFIG={}\n{create}    kubectl -n {namespace} run web \
        --image nginx:1.29\n    kubectl -n {namespace} get pods --show-labels --watch\n\nA save replaces the plugin. \
        Ctrl-C ends.\n",
        kubeconfig.display()
    )
}
