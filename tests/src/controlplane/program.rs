//! The program in `controlplane/main.go`.

use std::{
    io::ErrorKind,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Result, ensure};

use crate::go_program::GoProgram;

const CONTROL_PLANE: GoProgram = GoProgram {
    name: "controlplane",
    title: "a real control plane",
    sources: &["main.go", "go.mod", "go.sum"],
    // Without these kubectl and the API server report the version "v0.0.0-master".
    linker_flags: "-s -w \
        -X k8s.io/component-base/version.gitVersion=v1.36.3 \
        -X k8s.io/component-base/version.gitMajor=1 \
        -X k8s.io/component-base/version.gitMinor=36",
};

/// The built program, which is etcd, kube-apiserver and others by its first argument.
#[derive(Debug, Clone)]
pub(super) struct Program(PathBuf);

impl Program {
    /// Returns the built program, or `None` if the suites that need it are skipped, which is reported on stderr.
    pub(super) async fn build() -> Result<Option<Self>> {
        let Some(program) = CONTROL_PLANE.build().await?.map(Self) else { return Ok(None) };
        match std::os::unix::fs::symlink(CONTROL_PLANE.name, program.kubectl()) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error.into()),
            _ => Ok(Some(program)),
        }
    }

    pub(super) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(&self.0);
        command.arg(program);
        command
    }

    pub(super) fn kubectl(&self) -> PathBuf {
        self.0.with_file_name("kubectl")
    }

    /// Returns a private key in PEM.
    pub(super) fn new_signing_key(&self) -> Result<Vec<u8>> {
        let output = self.command("new-signing-key").stderr(Stdio::inherit()).output()?;
        ensure!(output.status.success(), "no signing key: {}", output.status);
        Ok(output.stdout)
    }
}
