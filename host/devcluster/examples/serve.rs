//! Serves a cluster for kubectl until it is interrupted: prints a kubeconfig on stdout.
//! Usage: `cargo run -p podium-devcluster --example serve > devcluster.yaml`

use std::time::{SystemTime, UNIX_EPOCH};

use podium_devcluster::{Cluster, Options};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "a program for people: the cluster shows the time of their clock")]
    let now = SystemTime::now();
    let start_millis = i64::try_from(now.duration_since(UNIX_EPOCH)?.as_millis())?;
    let cluster = Cluster::start(Options { start_millis, ..Options::default() })?;
    let server = cluster.listen("127.0.0.1:0".parse()?).await?;
    print!("{}", server.kubeconfig());
    tokio::signal::ctrl_c().await?;
    server.stop().await;
    cluster.shutdown().await;
    Ok(())
}
