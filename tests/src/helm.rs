//! Helm, which Go builds: machines that run the suites may have none.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::go_program::GoProgram;

const HELM: GoProgram = GoProgram {
    name: "helm",
    title: "the chart with Helm",
    sources: &["main.go", "go.mod", "go.sum"],
    linker_flags: "-s -w",
};

/// The built program.
#[derive(Debug, Clone)]
pub struct Helm(PathBuf);

impl Helm {
    /// Returns the built program, or `None` if the suites that need it are skipped, which is reported on stderr.
    ///
    /// # Errors
    /// Returns an error if it cannot be built; also without Go if CI (`CI=true`) or `PODIUM_CLUSTER_TESTS=1` requests
    /// it.
    pub async fn build() -> Result<Option<Self>> {
        Ok(HELM.build().await?.map(Self))
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}
