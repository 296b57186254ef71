//! `podium profile`: where a running host, or the guests of one plugin, spend their time.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context;
use clap::Args;
use podium_host::admin::SAMPLES_HEADER;

use crate::{
    args::Output,
    runs::{self, Server},
    ui,
};

/// The time for the answer after the seconds of the profile.
const AFTERWARDS: Duration = Duration::from_secs(30);

/// Profile the host's processor time, or a plugin's functions
#[derive(Debug, Args)]
#[command(
    long_about = "Profile a running host, and write it to a file that go tool pprof reads.\n\nWithout \
        --plugin it shows in which functions the host uses the processor; the code of plugins is one function, \
        [guest]. With --plugin it shows in which functions of its component a plugin spends its runs, summed over all \
        runs of these seconds. The names are those of the component's name section, which podium build keeps; without \
        one a function is wasm[NUMBER].\n\nA host takes one profile at a time, from its port of /metrics. While it \
        samples a plugin, that plugin's runs are slower. With replicas, the one that runs the plugin is asked.",
    after_help = "To reach the host:\n  \
        kubectl -n podium port-forward deployment/podium-host 8080 &\n  \
        export PODIUM_TOKEN=$(kubectl -n podium create token operator)\n\n\
        Examples:\n  \
        podium profile                              30 s of the host, in host.pprof\n  \
        podium profile --plugin shop/hello          the functions of a plugin, in shop-hello.pprof\n  \
        podium profile --plugin audit --seconds 10 -o audit.pprof\n  \
        go tool pprof -top host.pprof               the functions, most time first\n  \
        go tool pprof -http=: host.pprof            the same in a browser, with call graph and flame graph\n\n\
        Exit codes: 0 written, 1 the host did not answer, or has no such plugin, 2 called wrongly"
)]
pub struct Profile {
    /// Profile the guests of this plugin: NAMESPACE/NAME, or NAME of a ClusterReconcilePlugin
    #[arg(long, value_name = "PLUGIN", value_parser = runs::path)]
    pub plugin: Option<String>,
    /// How long to sample
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=120))]
    pub seconds: u64,
    /// The file to write [default: the plugin's name, or host, with .pprof]
    #[arg(short = 'o', long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub server: Server,
}

pub(crate) async fn run(profile: &Profile) -> anyhow::Result<ExitCode> {
    let Profile { plugin, seconds, out, server } = profile;
    let path = match plugin {
        Some(plugin) => format!("/debug/pprof/guest?plugin={plugin}&seconds={seconds}"),
        None => format!("/debug/pprof/profile?seconds={seconds}"),
    };
    let name = plugin.as_deref().unwrap_or("host").replace('/', "-");
    let file = out.clone().unwrap_or_else(|| format!("{name}.pprof").into());
    let time = Duration::from_secs(*seconds);
    let mut replica = match plugin {
        Some(plugin) => Some(server.of_plugin(plugin).await?),
        None => None,
    };
    let asked = match &mut replica {
        Some(replica) => replica.server()?,
        None => server,
    };
    let answer = tokio::select! {
        answer = asked.fetch(&path, time + AFTERWARDS) => answer?,
        never = progress(*seconds) => never,
        stopped = ui::stopped() => return stopped.map(|()| ExitCode::FAILURE),
    };
    let samples = answer.headers().get(SAMPLES_HEADER).and_then(|samples| samples.to_str().ok()?.parse::<u64>().ok());
    let samples =
        samples.with_context(|| format!("the answer to {path} is no profile; is the host of this version?"))?;
    std::fs::write(&file, answer.body()).with_context(|| format!("cannot write {}", file.display()))?;
    if samples == 0 {
        let subject = plugin.as_deref().map_or_else(|| "the host".to_owned(), |plugin| format!("plugin {plugin}"));
        ui::report(&format!(
            "no samples: nothing of {subject} ran in {seconds} s. Take a longer one, or change a Pod meanwhile; \
             podium top shows whether it runs"
        ));
    }
    let shown = file.display();
    let written = serde_json::json!({ "ok": true, "file": file, "samples": samples });
    ui::print(&match server.output {
        Output::Json => format!("{written}\n"),
        Output::Table => {
            format!(
                "{samples} samples in {shown}\n\n    go tool pprof -top {shown}\n    go tool pprof -http=: {shown}\n"
            )
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Shows the seconds until it is dropped.
async fn progress<T>(seconds: u64) -> T {
    let bar = ui::bar(seconds);
    bar.set_prefix("s");
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        bar.inc(u64::from(bar.position() < seconds));
    }
}
