//! Figures: a start with many plugins, compiled and from the cache, and the memory of plugins that share code.

use std::{fs, net::Ipv4Addr, time::Instant};

use podium_devcluster::{Cluster, Options};
use podium_tests::{
    bombs, guests,
    process::{Host, HostOptions},
    sandbox,
};

use super::{Place, host::configuration, program};

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
#[ignore = "prints figures and checks nothing"]
#[expect(clippy::print_stdout, clippy::disallowed_methods, reason = "measures")]
fn a_start_with_many_plugins() {
    let (place, good) = (Place::new(), guests::component("good").unwrap());
    let components: Vec<_> = (0..100).map(|number| bombs::marked(&good, &number.to_string())).collect();
    for what in ["compiled", "from the cache"] {
        let engine = super::engine(program(), Some(place.cache()));
        let began = Instant::now();
        // Two at a time, as the host does.
        std::thread::scope(|scope| {
            for half in components.chunks(50) {
                scope
                    .spawn(|| half.iter().for_each(|wasm| drop(engine.compile(&sandbox::spec("good"), wasm).unwrap())));
            }
        });
        println!("100 plugins of 100 components, {what}: {:.2?}", began.elapsed());
    }
    let engine = super::engine(program(), Some(place.cache()));
    let (began, before) = (Instant::now(), resident_kib());
    let distinct: Vec<_> =
        components[..50].iter().map(|wasm| engine.compile(&sandbox::spec("good"), wasm).unwrap()).collect();
    let between = resident_kib();
    let shared: Vec<_> =
        (50..500).map(|at| engine.compile(&sandbox::spec("good"), &components[at % 50]).unwrap()).collect();
    println!("500 plugins of 50 components, from the cache: {:.2?}", began.elapsed());
    println!("{} KiB for each component of {} KiB", (between - before) / 50, good.len() >> 10);
    println!("{} bytes for each further plugin", (resident_kib() - between) * 1_024 / shared.len() as u64);
    drop(distinct);
}

#[tokio::test]
#[ignore = "prints figures and checks nothing"]
#[expect(clippy::print_stdout, clippy::disallowed_methods, reason = "measures")]
async fn a_host_with_500_plugins_of_50_components() {
    let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
    let server = cluster.listen((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    fs::write(path("kubeconfig"), server.kubeconfig()).unwrap();
    fs::create_dir(path("plugins")).unwrap();
    let good = guests::component("good").unwrap();
    for number in 0..500 {
        let component = path(&format!("{}.wasm", number % 50));
        fs::write(&component, bombs::marked(&good, &(number % 50).to_string())).unwrap();
        let name = format!("good-{number}");
        fs::write(path(&format!("plugins/{name}.yaml")), configuration(&name, &component, "")).unwrap();
    }
    let options = HostOptions {
        kubeconfig: path("kubeconfig"),
        plugins: vec![path("plugins")],
        arguments: vec!["--state-dir".to_owned(), path("state").display().to_string()],
    };
    for what in ["compiled", "from the cache"] {
        let began = Instant::now();
        let host = Host::spawn(&options).await.unwrap();
        let ready = began.elapsed();
        let resident = host.metric("process_resident_memory_bytes", &[]).await.unwrap() / 1e6;
        println!("podium-host with 500 plugins of 50 components, {what}: ready in {ready:.2?}, {resident:.0} MB");
        host.terminate().await.unwrap();
    }
}
