//! Many attacks at one time: the rows of all tables in turn as the plugins of one tenant, or of several, in one host,
//! on a Pod of each tenant. A neighbour of another tenant has as many runs and writes as without them, as soon, and the
//! host's memory grows by a bounded part for each plugin.
//!
//! By default a tenant has 20 plugins, and one row of each end is tried by itself, as all plugins of a tenant.
//! `PODIUM_HOSTILE_PLUGINS=100` has as many as the policy permits, and `PODIUM_HOSTILE_ROWS=all` tries each row, also
//! in five tenants, which takes an hour in a debug build.

use std::{collections::BTreeSet, fs, io::Write, time::Duration};

use anyhow::{Context, Result, ensure};
use tokio::time::Instant;

use super::{
    attack::{Attack, End, is_one_line},
    attacks,
    in_host::HostRig,
};

/// The most memory in KiB that a plugin may cost the host with its code, in a debug build.
const KIB_PER_PLUGIN: u64 = 4 << 10;
/// The most time of the simulation in which the neighbour's Pods are written and gone.
const LATENCY: Duration = Duration::from_secs(60);

fn plugins() -> usize {
    std::env::var("PODIUM_HOSTILE_PLUGINS").map_or(20, |plugins| plugins.parse().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_neighbour_notices_nothing_of_a_tenant_of_hostile_plugins() {
    beside(1, &rows()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_neighbour_notices_nothing_of_5_tenants_of_hostile_plugins() {
    beside(5, &rows()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_neighbour_notices_nothing_of_many_plugins_of_one_attack() {
    let is_all = std::env::var("PODIUM_HOSTILE_ROWS").is_ok_and(|rows| rows == "all");
    let mut ends = BTreeSet::new();
    for attack in rows() {
        let end = match attack.end {
            End::Fails(kind, _) => kind.name(),
            End::Succeeds(..) | End::Refused(_) => "none",
        };
        let is_first = ends.insert(end);
        for tenants in [1, 5].into_iter().filter(|tenants| is_all || (is_first && *tenants == 1)) {
            beside(tenants, &[attack]).await.with_context(|| format!("{}, {tenants} tenants", attack.name)).unwrap();
            writeln!(std::io::stderr(), "{}, {tenants} tenants: nothing noticed", attack.name).unwrap();
        }
    }
    assert!(ends.len() >= 4, "{ends:?}");
}

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// All that run: components that compilers refuse, or take long for, are of no use here.
fn rows() -> Vec<Attack> {
    attacks().into_iter().filter(|attack| !matches!(attack.end, End::Refused(_))).collect()
}

async fn beside(tenants: usize, rows: &[Attack]) -> Result<()> {
    let plugins = plugins();
    let mut rig = HostRig::new().await?;
    let quiet = rig.round(None).await?;
    let before = resident_kib();
    // Few plugins are rows from all tables.
    let step = (rows.len() / plugins).max(1);
    let mut loaded = Vec::new();
    for tenant in 0..tenants {
        let namespace = if tenant == 0 { "shop".to_owned() } else { format!("shop-{tenant}") };
        if tenant > 0 {
            rig.create_namespace(&namespace)?;
        }
        for (at, attack) in rows.iter().skip(tenant % step).step_by(step).cycle().take(plugins).enumerate() {
            loaded.extend(rig.load_as(attack, &namespace, &format!("attack-{at}")).await?);
        }
        // All are there, because some delete the Pod.
        rig.create(&namespace, "cart")?;
    }
    ensure!(loaded.len() == tenants * plugins, "{} plugins", loaded.len());
    let began = Instant::now();
    let delta = rig.round(None).await?;
    ensure!(delta == quiet, "the neighbour: {delta:?}, otherwise {quiet:?}");
    ensure!(began.elapsed() < LATENCY, "the neighbour's Pods took {:?}", began.elapsed());
    for (spec, status) in &loaded {
        ensure!(status.runs() > 0, "{} has not run", spec.id);
        status.last_failure().iter().try_for_each(|last| is_one_line(last, 8 << 10))?;
    }
    let grown = resident_kib().saturating_sub(before);
    ensure!(grown < KIB_PER_PLUGIN * loaded.len() as u64, "{grown} KiB more for {} plugins", loaded.len());
    rig.app.shutdown().await;
    Ok(())
}
