//! Runs the commands of docs/install.md: each block of a section that is marked as `sh`, as one script of bash.

use std::{
    env, fs,
    os::unix::fs::symlink,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};
use podium_tests::{
    controlplane::ControlPlane,
    helm::Helm,
    process::{host_binary, podium_binary, target_dir, workspace_dir},
    registry::Registry,
    runner,
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A person who follows the page: the administrator, or the tenant alice in blocks that are marked with `tenant`.
pub(crate) struct Reader {
    pub(crate) version: String,
    page: String,
    registry: Registry,
    /// Programs and kubeconfigs.
    directory: TempDir,
}

impl Reader {
    pub(crate) fn new(plane: &ControlPlane, helm: &Helm, registry: Registry) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let path = |name: &str| directory.path().join(name);
        fs::create_dir(path("bin"))?;
        symlink(helm.path(), path("bin/helm"))?;
        symlink(plane.kubectl_path(), path("bin/kubectl"))?;
        symlink(podium_binary()?, path("bin/podium"))?;
        let mut config: Value = serde_json::from_slice(&fs::read(plane.kubeconfig_path())?)?;
        fs::write(path("administrator"), config.to_string())?;
        config["users"][0]["user"]["as"] = json!("alice");
        fs::write(path("tenant"), config.to_string())?;
        // The registry of the tests is on loopback and has no TLS.
        let insecure = format!("[[registry]]\nlocation = \"{}\"\ninsecure = true\n", registry.address());
        fs::write(path("registries.conf"), insecure)?;
        let page = fs::read_to_string(workspace_dir().join("docs/install.md"))?;
        Ok(Self { version: "0.1.0".to_owned(), page, registry, directory })
    }

    /// Runs the blocks of a section that have this mark, as one script. Returns its stdout.
    pub(crate) async fn run(&self, section: &str, mark: &str) -> Result<String> {
        let script = blocks(&self.page, section, mark)?;
        let path = |name: &str| self.directory.path().join(name);
        let programs = env::var_os("PATH").context("no PATH")?;
        let programs = [path("bin")].into_iter().chain(env::split_paths(&programs));
        let mut command = Command::new("bash");
        command.args(["-euo", "pipefail", "-x", "-c", &script]).current_dir(workspace_dir());
        command.env("PATH", env::join_paths(programs)?);
        command.env("KUBECONFIG", path(if mark == "tenant" { "tenant" } else { "administrator" }));
        command.env("HELM_CACHE_HOME", path("helm")).env("HELM_CONFIG_HOME", path("helm"));
        command.env("CONTAINERS_REGISTRIES_CONF", path("registries.conf"));
        command.env("REGISTRY", self.registry.address().to_string()).env("VERSION", &self.version);
        command.env("PRIVATE", "true").env("PLAIN_HTTP", "true");
        // Plugins are built beside the guests of other suites, whose dependencies they share.
        command.env("CARGO_TARGET_DIR", target_dir()?.join("guests"));
        command.env("PODIUM_IMAGE_BINARY", host_binary()?);
        let runners = runner::for_image()?;
        command.env("PODIUM_IMAGE_RUNNERS", runners.path());
        let output = tokio::task::spawn_blocking(move || {
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).output()
        });
        let output = output.await??;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{section} {mark}: {}\n{said}", output.status);
        Ok(String::from_utf8(output.stdout)?)
    }

    fn images(&self) -> Vec<String> {
        let list = ["images", "--format", "{{.Repository}}:{{.Tag}}"];
        let Ok(output) = Command::new("podman").args(list).output() else { return Vec::new() };
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let own = self.registry.address().to_string();
        printed.lines().filter(|name| name.starts_with(&own)).map(str::to_owned).collect()
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let images = self.images();
        if !images.is_empty() {
            let _ = Command::new("podman").args(["rmi", "--force"]).args(images).stdout(Stdio::null()).status();
        }
    }
}

/// Returns the blocks of a section, up to the next heading, that begin with "sh" and the mark.
fn blocks(page: &str, section: &str, mark: &str) -> Result<String> {
    let mut lines = page.lines().skip_while(|line| *line != format!("## {section}")).skip(1).peekable();
    let fence = "`".repeat(3);
    let start = format!("{fence}sh {mark}");
    let mut script = String::new();
    while let Some(line) = lines.next_if(|line| !line.starts_with("## ")) {
        if line == start.trim_end() {
            let block = lines.by_ref().take_while(|line| *line != fence);
            block.for_each(|line| script.extend([line, "\n"]));
        }
    }
    ensure!(!script.is_empty(), "docs/install.md has no {start:?} in the section {section:?}");
    Ok(script)
}
