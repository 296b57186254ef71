//! A real OCI registry on a free port of 127.0.0.1: the reference implementation of the protocol, in memory. Dropping
//! it removes everything.

mod signer;

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result};

pub use signer::{IMAGE, SIGNATURE, Signer};

use crate::go_program::GoProgram;

const REGISTRY: GoProgram = GoProgram {
    name: "registry",
    title: "a real registry",
    sources: &["main.go", "go.mod", "go.sum"],
    linker_flags: "-s -w",
};

/// A running registry. It ends with the pipe to its standard input.
#[derive(Debug)]
pub struct Registry {
    child: Child,
    address: SocketAddr,
}

impl Registry {
    /// Starts a registry, for all clients or for the users of a file of `htpasswd`. Returns `None` if it is not built
    /// and no variable requests it, or if Go is missing: the suite is skipped, with one line on stderr.
    ///
    /// # Errors
    /// Returns an error if it cannot be built or started; also without Go if it is requested by CI (`CI=true`) or
    /// `PODIUM_CLUSTER_TESTS=1`.
    pub async fn start(users: Option<&Path>) -> Result<Option<Self>> {
        let Some(program) = REGISTRY.build().await? else { return Ok(None) };
        let mut command = Command::new(program);
        command.args(users).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("start the registry")?;
        let stdout = child.stdout.take().context("the registry has no output")?;
        let line = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            BufReader::new(stdout).read_line(&mut line).map(|_| line)
        });
        let line = line.await??;
        let address = line.trim().parse().with_context(|| format!("the registry printed {line:?}"))?;
        Ok(Some(Self { child, address }))
    }

    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
