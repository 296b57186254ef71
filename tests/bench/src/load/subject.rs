//! The programs that label new Pods: podium-host with a plugin for each namespace, and its peers.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use podium_tests::{
    plugins::write_labellers,
    process::{Host, HostOptions, Process},
};

/// A program with all namespaces, or as many programs with a namespace each.
#[derive(Debug, Clone)]
pub(super) struct Contender {
    pub(super) name: &'static str,
    program: PathBuf,
    /// The arguments before the kubeconfig; `None` for podium-host.
    arguments: Option<&'static [&'static str]>,
    is_one_for_each_namespace: bool,
}

/// The name of podium-host, to which the others are compared.
pub(super) const PODIUM: &str = "podium";
/// The name of the program that stores nothing.
pub(super) const FLOOR: &str = "wire-write";

/// Returns the requested subjects, or all.
///
/// # Errors
/// Returns an error if one is unknown or not built.
pub(super) fn contenders(wanted: &[String], controller: Option<&Path>) -> Result<Vec<Contender>> {
    let own = env::current_exe()?;
    let beside = |name: &str| own.with_file_name(name);
    let go = controller.map_or_else(|| beside("controller"), Path::to_owned);
    let new = |name, program, arguments| Contender { name, program, arguments, is_one_for_each_namespace: false };
    let go_with = |name, arguments| new(name, go.clone(), Some(arguments));
    let processes = go_with("controller-runtime-processes", &["-leader-elect", "1"]);
    let mut known = vec![
        new(PODIUM, beside("podium-host"), None),
        new(FLOOR, own.clone(), Some(&["floor"])),
        go_with("controller-runtime-1", &["1"]),
        go_with("controller-runtime-10", &["10"]),
        new("kube-rs-jemalloc", beside("podium-bench-jemalloc"), Some(&["controller"])),
        Contender { is_one_for_each_namespace: true, ..processes },
    ];
    if wanted.is_empty() {
        known.retain(|contender| contender.program.is_file());
        return Ok(known);
    }
    let names: Vec<_> = known.iter().map(|contender| contender.name).collect();
    for wanted in wanted {
        let found = known.iter().find(|contender| contender.name == wanted);
        let found = found.with_context(|| format!("there is no subject {wanted}; there are {}", names.join(", ")))?;
        let file = found.program.display();
        ensure!(found.program.is_file(), "{file} of subject {wanted} is not built; `just bench-load` does");
    }
    known.retain(|contender| wanted.iter().any(|wanted| wanted == contender.name));
    Ok(known)
}

/// A subject that runs. Its processes end when it is dropped.
pub(super) enum Running {
    Podium(Host),
    Peers(Vec<Process>),
}

impl Running {
    /// Starts a subject for these namespaces. `directory` is for its files.
    pub(super) async fn start(
        contender: &Contender,
        kubeconfig: &Path,
        namespaces: &[String],
        directory: &Path,
    ) -> Result<Self> {
        let Some(arguments) = contender.arguments else {
            let plugins = directory.join("plugins");
            fs::create_dir_all(&plugins)?;
            write_labellers(&plugins, namespaces)?;
            let arguments = vec!["--strict".to_owned()];
            let options = HostOptions { kubeconfig: kubeconfig.to_owned(), plugins: vec![plugins], arguments };
            return Ok(Self::Podium(Host::spawn_by(Command::new(&contender.program), &options).await?));
        };
        let many = if contender.is_one_for_each_namespace { 1 } else { namespaces.len() };
        let start = |(number, of): (usize, &[String])| {
            let mut command = Command::new(&contender.program);
            command.args(arguments).arg(kubeconfig).args(of);
            Process::spawn(contender.name, &mut command, directory.join(format!("{number}.log")))
        };
        Ok(Self::Peers(namespaces.chunks(many).enumerate().map(start).collect::<Result<_>>()?))
    }

    pub(super) fn ids(&self) -> Vec<u32> {
        match self {
            Self::Podium(host) => vec![host.id()],
            Self::Peers(processes) => processes.iter().map(Process::id).collect(),
        }
    }

    pub(super) fn check_running(&mut self) -> Result<()> {
        match self {
            // Its files in /proc, which every measurement reads, end with it.
            Self::Podium(_) => Ok(()),
            Self::Peers(processes) => processes.iter_mut().try_for_each(Process::check_running),
        }
    }
}
