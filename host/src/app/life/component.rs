//! Fetches and compiles components.

use std::{collections::BTreeMap, io, path::Path, sync::Arc};

use bytes::Bytes;
use parking_lot::Mutex;
use podium_api::Api;
use podium_engine::ports::Sender;
use podium_life::{Object, Place, Recorded};
use podium_runtime::{DEFAULT_TENANT_CODE_BYTES, Engine, LoadError, LoadProblem, max_component_bytes};
use podium_vocabulary::{Language, LimitClass, PluginId, PluginSpec, Source, text};
use podium_writeback::manager_name;
use tokio::time::{sleep, timeout};

use super::super::inputs::InputStates;
use super::{
    BACKOFF, Code, Component, LoadFailure, Rules,
    disk::{Disk, Files, GIVE_UP, on_disk},
    hold::Holds,
    image::{Fetched, not_on_disk},
    script::Runners,
};
use crate::{
    config::file::{self, FileError},
    objects::{ConfigMapKey, config_map, plugin_again, sha256},
};

/// How often a record is read that the disk does not return.
const READS: u32 = 4;

/// How components are fetched and compiled.
pub(in crate::app) struct Components {
    pub(in crate::app) engine: Arc<Engine>,
    /// Fetches components from the API server.
    pub(in crate::app) api: Api,
    pub(in crate::app) inputs: Arc<InputStates>,
    /// Components and records of objects. With `None`, a restart fetches all components, and runs what the specs say.
    pub(in crate::app) store: Option<Disk>,
    /// Compiles on the caller's thread. Otherwise other runs would continue for as long as the compiler takes in real
    /// time.
    pub(in crate::app) simulated: bool,
    /// The turns to read a file.
    pub(in crate::app) files: Files,
    pub(in crate::app) holds: Holds,
    pub(in crate::app) runners: Runners,
    /// The code of plugins whose components are not read, because the caller compiled them. `None` for a compilation
    /// that never ends, in tests.
    pub(in crate::app) given: Mutex<BTreeMap<PluginId, Option<Code>>>,
}

impl Components {
    /// Fetches the component of an object, to which the host's finalizer is added before if it needs it.
    pub(super) async fn fetch(
        &self,
        rules: &Rules,
        spec: &PluginSpec,
        object: Option<&Object>,
        from: Place,
    ) -> Result<Fetched, LoadFailure> {
        self.hold(rules, spec, object).await?;
        let ran = matches!(from, Place::Disk(_)) || object.is_some_and(|object| object.ran);
        self.inputs.read(spec, ran).await?;
        if self.given.lock().contains_key(&spec.id) {
            return Ok(Fetched::plain(Bytes::new()));
        }
        match (&spec.source, from) {
            (Source::Inline(text), _) => Ok(Fetched::plain(Bytes::copy_from_slice(text.as_bytes()))),
            (Source::File(path), _) => Ok(Fetched::plain(self.in_file(path, spec.limits.class).await?)),
            (Source::ConfigMap { sha256, .. }, Place::Disk(_)) => {
                let bytes = self.bytes_on_disk(spec, sha256).await;
                let missing =
                    || not_on_disk(format!("the component with the SHA-256 {sha256} is not on disk any more"));
                Ok(Fetched::plain(bytes.ok_or_else(missing)?))
            }
            (Source::ConfigMap { namespace, name, key, sha256 }, Place::Source) => {
                let field = match spec.language {
                    Some(_) => "spec.source.script.configMap",
                    None => "spec.source.configMap",
                };
                let source = ConfigMapKey { field, namespace, name, key, sha256 };
                self.in_config_map(spec, source).await
            }
            (Source::Oci { image, .. }, Place::Disk(manifest)) => {
                let manifest = manifest.and_then(|manifest| manifest.parse().ok());
                let unknown = || not_on_disk(format!("the digest of {} is not known any more", text::name(image)));
                Ok(self.image_on_disk(rules, spec, image, manifest.ok_or_else(unknown)?).await?)
            }
            (Source::Oci { image, pull_secret }, Place::Source) => {
                Ok(self.image(rules, spec, image, pull_secret.as_ref()).await?)
            }
        }
    }

    /// Compiles a component.
    pub(super) async fn compile(
        &self,
        rules: &Rules,
        spec: Arc<PluginSpec>,
        fetched: Fetched,
    ) -> Result<Code, LoadFailure> {
        let given = self.given.lock().get(&spec.id).cloned();
        match given {
            Some(Some(code)) => return Ok(code),
            Some(None) => return std::future::pending().await,
            None => {}
        }
        let engine = self.engine.clone();
        let policy = rules.policy.as_ref().and_then(|policy| policy.compiled_code_bytes(&spec.tenant()));
        let code_bytes = policy.unwrap_or(DEFAULT_TENANT_CODE_BYTES);
        if let Some(language) = spec.language {
            return self.script(language, &spec, fetched, code_bytes).await;
        }
        let compile = move || {
            let Fetched { bytes: wasm, image, signer, stored } = fetched;
            let plugin = engine.compile_within(&spec, &wasm, code_bytes)?;
            let component = Component {
                sha256: sha256(&wasm),
                imports: plugin.imports(),
                image,
                signer,
                stored,
                ..Component::default()
            };
            Ok(Code { reconcile: Arc::new(plugin), component: component.into() })
        };
        self.blocking(compile).await
    }

    /// Compiles on a thread of its own, or on the caller's in a simulation.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        compile: impl FnOnce() -> Result<T, LoadFailure> + Send + 'static,
    ) -> Result<T, LoadFailure> {
        if self.simulated {
            return compile();
        }
        let compiled = tokio::task::spawn_blocking(compile).await;
        compiled.unwrap_or_else(|error| Err(LoadFailure::Panicked(error.to_string())))
    }

    /// Reads a component from a file, again later if the disk does not answer within [`GIVE_UP`].
    pub(super) async fn in_file(&self, path: &Path, class: LimitClass) -> Result<Bytes, LoadFailure> {
        let file = path.to_owned();
        let read = move || component(&file, class).map(Bytes::from);
        if self.simulated {
            return read();
        }
        let reading = async {
            // Until the call has ended, so that a disk that hangs keeps a few threads only.
            let turn = self.files.turn(path).await;
            let reading = tokio::task::spawn_blocking(move || (read(), turn).0);
            reading.await.unwrap_or_else(|error| Err(LoadFailure::Panicked(error.to_string())))
        };
        let slow = |_| Err(unreadable(path, FileError::Io(io::ErrorKind::TimedOut.into())));
        timeout(GIVE_UP, reading).await.unwrap_or_else(slow)
    }

    /// Reads the record of a plugin's object, of which only the host can have written the file. Tries again for a few
    /// seconds if the disk returns an error.
    pub(super) async fn record(&self, id: PluginId) -> Option<Recorded> {
        let store = self.store.as_ref()?;
        let mut failures = 0;
        let record = loop {
            let plugin = id.clone();
            let error = match on_disk(store.clone(), move |store| store.record(&plugin)).await {
                Some(Ok(record)) => break record?,
                Some(Err(error)) => Some(error),
                None => None,
            };
            failures += 1;
            if failures == READS || error.is_none() {
                let error = error.map_or("the disk does not answer".to_owned(), |error| error.to_string());
                tracing::warn!(plugin = %id, error, "record of a plugin not read; its spec is loaded without it");
                return None;
            }
            sleep(BACKOFF.doubled(failures)).await;
        };
        let spec = match serde_json::from_str(record.ran.as_ref().map_or("null", |ran| &*ran.spec)) {
            Ok(value) => plugin_again(&id, &value).map_err(|problems| LoadFailure::Mistaken(problems).to_string()),
            Err(error) => Err(text::line(&error.to_string())),
        };
        Some(Recorded { record, spec: spec.map(Arc::new) })
    }

    /// Reads a component from its ConfigMap, or from the disk if the ConfigMap does not have it any more: the digest
    /// is the configured one either way, and a restart runs what ran before.
    async fn in_config_map(&self, spec: &PluginSpec, source: ConfigMapKey<'_>) -> Result<Fetched, LoadFailure> {
        let sender = Sender { manager: manager_name(&spec.id), impersonate: spec.impersonate.clone() };
        let limit = spec.language.map_or_else(|| max_component_bytes(spec.limits.class), |_| Language::MOST_BYTES);
        match config_map(&self.api, &sender, source, limit).await {
            Ok(bytes) => {
                let bytes = Bytes::from(bytes);
                if let Some(store) = self.store.clone() {
                    let tenant = spec.tenant();
                    let sha256 = source.sha256.to_owned();
                    let stored = bytes.clone();
                    on_disk(store, move |store| store.store_bytes(&tenant, &sha256, &stored)).await;
                }
                Ok(Fetched::plain(bytes))
            }
            Err(failure) => match self.bytes_on_disk(spec, source.sha256).await.filter(|bytes| bytes.len() <= limit) {
                Some(bytes) => {
                    let note = text::line(&format!("{failure}; the component of this digest on disk runs"));
                    Ok(Fetched { stored: Some(note), ..Fetched::plain(bytes) })
                }
                None => Err(failure.into()),
            },
        }
    }

    async fn bytes_on_disk(&self, spec: &PluginSpec, sha256: &str) -> Option<Bytes> {
        let store = self.store.clone()?;
        let tenant = spec.tenant();
        let sha256 = sha256.to_owned();
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
        error => unreadable(path, error),
    })
}

fn unreadable(path: &Path, error: FileError) -> LoadFailure {
    LoadFailure::Unreadable { path: text::path(path), error }
}
