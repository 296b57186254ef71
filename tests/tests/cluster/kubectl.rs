//! kubectl with the administrator's kubeconfig, as itself or as another user.

use std::{
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use anyhow::{Context, Result, ensure};
use podium_tests::{controlplane::ControlPlane, process::workspace_dir};

pub(crate) struct Kubectl {
    program: PathBuf,
    kubeconfig: PathBuf,
}

impl Kubectl {
    pub(crate) fn new(plane: &ControlPlane) -> Self {
        Self { program: plane.kubectl_path(), kubeconfig: plane.kubeconfig_path() }
    }

    /// Runs kubectl as another user.
    pub(crate) fn run(&self, user: &str, arguments: &[&str], input: &[u8]) -> Result<Output> {
        self.run_with(&[&["--as", user], arguments].concat(), input)
    }

    fn run_with(&self, arguments: &[&str], input: &[u8]) -> Result<Output> {
        let mut command = Command::new(&self.program);
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        std::io::Write::write_all(&mut child.stdin.take().context("no stdin")?, input)?;
        Ok(child.wait_with_output()?)
    }

    /// Runs kubectl as the administrator; returns its stdout.
    pub(crate) fn admin(&self, arguments: &[&str]) -> Result<String> {
        let output = self.run_with(arguments, b"")?;
        ensure!(output.status.success(), "kubectl {}: {}", arguments.join(" "), stderr(&output));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Applies files of `deploy/kustomize/base` as the administrator.
    pub(crate) fn install(&self, files: &[&str]) -> Result<()> {
        for file in files {
            let path = workspace_dir().join("deploy/kustomize/base").join(file);
            self.admin(&["apply", "--server-side", "-f", &path.to_string_lossy()])?;
        }
        Ok(())
    }
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}
