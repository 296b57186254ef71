//! One attempt to load a plugin: compared with the platform's requirements, fetched, compiled and tried.

use std::{path::Path, sync::Arc};

use bytes::Bytes;
use podium_engine::ports::{Reconcile, Sender};
use podium_registry::Digest;
use podium_vocabulary::{LimitClass, PluginSpec, Source, text};

use super::{
    Component, LoadFailure, Loader, Prepared, Swap,
    disk::on_disk,
    image::{Fetched, not_on_disk},
};
use crate::{
    config::file::{self, FileError},
    objects::{ConfigMapKey, config_map, sha256},
    runtime::{DEFAULT_TENANT_CODE_BYTES, LoadError, LoadProblem, max_component_bytes},
    writeback::manager_name,
};

/// Where a component may come from.
#[derive(Debug, Clone, Copy)]
pub(super) enum From {
    /// Its place in the configuration.
    Source,
    /// The disk only: a version that ran before, with the digest of its manifest if it is from a registry.
    Disk { manifest: Option<Digest> },
}

impl Loader {
    pub(super) async fn attempt(&self, spec: PluginSpec, number: u64, from: From) -> Result<Prepared, LoadFailure> {
        if self.rules.require_service_account && spec.impersonate.is_none() {
            return Err(LoadFailure::WithoutAccount);
        }
        let problems = self.rules.policy.as_ref().map_or_else(Vec::new, |policy| policy.problems(&spec));
        if !problems.is_empty() {
            return Err(LoadFailure::Forbidden(problems));
        }
        if let Some(most) = self.dispatch.queue.most_of_a_job().filter(|most| spec.limits.memory_bytes as u64 > *most) {
            return Err(LoadFailure::OverMemory { mib: spec.limits.memory_bytes >> 20, most_mib: most >> 20 });
        }
        if spec.suspend {
            return Ok(Prepared { spec, number, component: None, plugin: None, swap: Swap::Direct });
        }
        self.hold(&spec).await?;
        let own = spec.id.namespace.is_none().then(|| spec.id.name.clone());
        let taker = (spec.tenant(), own);
        let fetching = match spec.source.file() {
            Some(_) => None,
            None => Some(self.fetches.take(taker.clone()).await),
        };
        self.wanted(&spec, number)?;
        let fetched = self.fetched(&spec, from).await?;
        let _turn = self.turns.take(taker).await;
        drop(fetching);
        self.wanted(&spec, number)?;
        let engine = self.engine.clone();
        let policy = self.rules.policy.as_ref().and_then(|policy| policy.compiled_code_bytes(&spec.tenant()));
        let code_bytes = policy.unwrap_or(DEFAULT_TENANT_CODE_BYTES);
        let compile = move || {
            let in_file = || component(spec.source.file().unwrap_or(Path::new("")), spec.limits.class);
            let Fetched { bytes: wasm, image, stored } = match fetched {
                Some(fetched) => fetched,
                None => Fetched { bytes: in_file()?.into(), image: None, stored: None },
            };
            let plugin = engine.compile_within(&spec, &wasm, code_bytes)?;
            let component = Component { sha256: sha256(&wasm), imports: plugin.imports(), image, stored };
            let plugin: Option<Arc<dyn Reconcile>> = Some(Arc::new(plugin));
            Ok(Prepared { spec, number, component: Some(component), plugin, swap: Swap::Direct })
        };
        let compiled = if self.simulated {
            compile()
        } else {
            let compiled = tokio::task::spawn_blocking(compile).await;
            compiled.unwrap_or_else(|error| Err(LoadFailure::Panicked(error.to_string())))
        };
        // In the same turn: the memory of a few runs is less than the compiler's, which has ended.
        self.probed(compiled?).await
    }

    /// Ends a load that was superseded while it waited for its turn.
    fn wanted(&self, spec: &PluginSpec, number: u64) -> Result<(), LoadFailure> {
        if self.is_current(&spec.id, number) { Ok(()) } else { Err(LoadFailure::Superseded) }
    }

    /// Fetches the component; `None` for one in a file, which is read where blocking is allowed.
    async fn fetched(&self, spec: &PluginSpec, from: From) -> Result<Option<Fetched>, LoadFailure> {
        match (&spec.source, from) {
            (Source::File(_), _) => Ok(None),
            (Source::ConfigMap { sha256, .. }, From::Disk { .. }) => {
                let bytes = self.bytes_on_disk(spec, sha256).await;
                let missing =
                    || not_on_disk(format!("the component with the SHA-256 {sha256} is not on disk any more"));
                Ok(Some(Fetched { bytes: bytes.ok_or_else(missing)?, image: None, stored: None }))
            }
            (Source::ConfigMap { namespace, name, key, sha256 }, From::Source) => {
                let source = ConfigMapKey { namespace, name, key, sha256 };
                Ok(Some(self.in_config_map(spec, source).await?))
            }
            (Source::Oci { image, .. }, From::Disk { manifest }) => {
                let unknown = || not_on_disk(format!("the digest of {} is not known any more", text::name(image)));
                Ok(Some(self.image_on_disk(spec, image, manifest.ok_or_else(unknown)?).await?))
            }
            (Source::Oci { image, pull_secret }, From::Source) => {
                Ok(Some(self.image(spec, image, pull_secret.as_ref()).await?))
            }
        }
    }

    /// Reads a component from its ConfigMap, or from the disk if the ConfigMap does not have it any more: the digest
    /// is the configured one either way, and a restart runs what ran before.
    async fn in_config_map(&self, spec: &PluginSpec, source: ConfigMapKey<'_>) -> Result<Fetched, LoadFailure> {
        let sender = Sender { manager: manager_name(&spec.id), impersonate: spec.impersonate.clone() };
        let limit = max_component_bytes(spec.limits.class);
        match config_map(&self.api, &sender, source, limit).await {
            Ok(bytes) => {
                let bytes = Bytes::from(bytes);
                if let Some(store) = self.store.clone() {
                    let (tenant, sha256, stored) = (spec.tenant(), source.sha256.to_owned(), bytes.clone());
                    on_disk(store, move |store| store.store_bytes(&tenant, &sha256, &stored)).await;
                }
                Ok(Fetched { bytes, image: None, stored: None })
            }
            Err(failure) => match self.bytes_on_disk(spec, source.sha256).await.filter(|bytes| bytes.len() <= limit) {
                Some(bytes) => {
                    let note = text::line(&format!("{failure}; the component of this digest on disk runs"));
                    Ok(Fetched { bytes, image: None, stored: Some(note) })
                }
                None => Err(failure.into()),
            },
        }
    }

    async fn bytes_on_disk(&self, spec: &PluginSpec, sha256: &str) -> Option<Bytes> {
        let (store, tenant, sha256) = (self.store.clone()?, spec.tenant(), sha256.to_owned());
        on_disk(store, move |store| store.load_bytes(&tenant, &sha256)).await?
    }
}

/// The component's bytes from a file, at most as many as its class may have.
fn component(path: &Path, class: LimitClass) -> Result<Vec<u8>, LoadFailure> {
    file::read(path, max_component_bytes(class) as u64).map_err(|error| match error {
        FileError::TooLarge { bytes, .. } => {
            let problem = Box::new(LoadProblem::too_large(bytes, class));
            LoadFailure::Refused(LoadError { file: path.to_owned(), problem })
        }
        error => LoadFailure::Unreadable { path: text::path(path), error },
    })
}
