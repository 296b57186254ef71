//! The host behind an API server that fails as real ones do: responses that are lost after the write was done, storms
//! of conflicts, 429 with Retry-After, and slow responses. The API server is real; the faults are injected between it
//! and the host's client, and which write meets one follows a seed.
//!
//! Two sample plugins write to each Pod of a Deployment: a label, and a condition with an Event. `PODIUM_FAULTS` sets
//! the number of Pods.

use std::{collections::BTreeMap, io::Write, time::Duration};

use anyhow::{Context, Result, ensure};
use http::{Method, Request};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use podium_host::app::{App, Options};
use podium_tests::{
    controlplane::{ControlPlane, Faults, Link},
    plugins,
    wait::until,
};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::{
    cluster,
    workloads::{Shape, all, condition, deployment, host_account, label, namespace, pods},
};

const SHOP: &str = "shop";
const DEFAULT_PODS: usize = 40;
const WITHIN: Duration = Duration::from_secs(120);
/// How long a storm lasts.
const STORM: Duration = Duration::from_secs(10);
const WORKERS: usize = 4;

/// A host with two plugins, and the Pods of a Deployment that both concern.
struct Scene {
    plane: ControlPlane,
    client: Client,
    link: Link,
    app: App,
    pods: usize,
}

impl Scene {
    async fn start(plane: ControlPlane, client: Client, seed: u64) -> Result<Self> {
        let pods = match std::env::var("PODIUM_FAULTS") {
            Ok(text) => text.parse().context("PODIUM_FAULTS is not a number")?,
            Err(_) => DEFAULT_PODS,
        };
        namespace(&client, SHOP).await?;
        let kubeconfig = Kubeconfig::read_from(host_account(&plane, &client).await?)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let link = Link::new(seed);
        let options = Options::new(link.client(podium_api::client(config)?), seed, 0);
        let app = App::start(Options { workers: WORKERS, ..options }).await?;
        for name in ["image-policy", "workload-label"] {
            app.load(plugins::sample(name)?).await?;
        }
        Ok(Self { plane, client, link, app, pods })
    }

    /// Creates Pods while the faults last.
    async fn create(&self, faults: Faults) -> Result<()> {
        self.link.set(faults);
        deployment(&self.client, SHOP, "careless", self.pods, Shape { careless: true, ..Shape::default() }).await?;
        until("the Pods", WITHIN, async || {
            let found = pods(&self.client, SHOP, "app=careless").await?.len();
            ensure!(found == self.pods, "{found}");
            Ok(())
        })
        .await
    }

    /// Waits until both plugins have written to each Pod, and returns how long that took.
    async fn converged(&self) -> Result<Duration> {
        let began = Instant::now();
        until("what the plugins write", WITHIN, async || {
            let found = pods(&self.client, SHOP, "app=careless").await?;
            all(&found, self.pods, "labelled and judged", |pod| {
                label(pod, "podium.dev/workload") == Some("careless")
                    && condition(pod, "podium.dev/ImagePolicy") == Some("False")
            })?;
            ensure!(self.app.is_idle(), "keys are due");
            Ok(())
        })
        .await?;
        Ok(began.elapsed())
    }

    /// Checks that each write was done once: what had reached the API server was not sent again.
    fn wrote_once(&self) -> Result<()> {
        let mut reached = BTreeMap::<_, u32>::new();
        for sent in self.link.sent().into_iter().filter(|sent| sent.reached && sent.method != Method::POST) {
            *reached.entry((sent.path, sent.body)).or_default() += 1;
        }
        let again: Vec<_> = reached.iter().filter(|(_, times)| **times > 1).collect();
        ensure!(again.is_empty(), "sent again after the API server had it: {again:#?}");
        ensure!(reached.len() == 2 * self.pods, "{} writes for {} Pods", reached.len(), self.pods);
        Ok(())
    }

    /// Waits for an Event of each Pod, and checks that there is no second one.
    async fn reported_once(&self) -> Result<()> {
        // Events are sent after the writes, at a rate.
        until("an Event of each Pod", WITHIN, async || {
            let by_pod = self.events().await?;
            ensure!(by_pod.len() == self.pods, "{} Pods have one", by_pod.len());
            Ok(())
        })
        .await?;
        let by_pod = self.events().await?;
        ensure!(by_pod.values().all(|events| *events == 1), "Events by Pod: {by_pod:#?}");
        Ok(())
    }

    /// Returns the number of the policy's Events by Pod.
    async fn events(&self) -> Result<BTreeMap<String, u32>> {
        let path = format!("/apis/events.k8s.io/v1/namespaces/{SHOP}/events");
        let list: Value = self.client.request(Request::get(path).body(Vec::new())?).await?;
        let mut by_pod = BTreeMap::new();
        for event in list["items"].as_array().context("a list without items")? {
            if event["action"] == "CheckImages" {
                *by_pod.entry(event["regarding"]["name"].to_string()).or_default() += 1;
            }
        }
        Ok(by_pod)
    }

    async fn end(self) {
        self.app.shutdown().await;
        drop(self.plane);
    }
}

fn say(line: &str) {
    // Past the test harness, which hides the output of tests that pass.
    let _ = writeln!(std::io::stderr(), "faults: {line}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_response_is_lost_is_not_sent_again() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(3).await? else { return Ok(()) };
    let scene = Scene::start(plane, client, 1).await?;
    scene.create(Faults::Lost(40)).await?;
    let took = scene.converged().await?;
    scene.wrote_once()?;
    scene.reported_once().await?;
    say(&format!("{} writes, 40 % of the responses lost: done once each after {took:?}", scene.link.sent().len()));
    scene.end().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_conflicts_ends_in_one_write_each() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(3).await? else { return Ok(()) };
    let scene = Scene::start(plane, client, 2).await?;
    scene.create(Faults::Conflicts(100)).await?;
    sleep(STORM).await;
    let in_full = scene.link.sent().len();
    scene.link.set(Faults::Conflicts(50));
    sleep(STORM).await;
    let sent = scene.link.sent().len();
    scene.link.set(Faults::None);
    let took = scene.converged().await?;
    scene.wrote_once()?;
    scene.reported_once().await?;
    say(&format!("{in_full} writes while all conflict, {} while half do; converged {took:?} later", sent - in_full));
    // A key that fails is tried again after 10 ms, doubling: 10 times in 10 s, and each of two plugins sends one write.
    let most = 2 * scene.pods * 14;
    ensure!(in_full <= most, "{in_full} writes of {} Pods while all conflict, more than {most}", scene.pods);
    scene.end().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_or_slow_api_server_is_given_time() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(3).await? else { return Ok(()) };
    let scene = Scene::start(plane, client, 3).await?;
    scene.create(Faults::Busy(2)).await?;
    let began = Instant::now();
    sleep(STORM).await;
    let busy = scene.link.since(began);
    scene.link.set(Faults::Slow(Duration::from_secs(1)));
    scene.link.forget_most_under_way();
    let took = scene.converged().await?;
    let most = scene.link.most_under_way();
    scene.wrote_once()?;
    scene.reported_once().await?;
    say(&format!("{busy} writes in {STORM:?} of 429; converged in {took:?} at 1 s a write, {most} at a time at most"));
    // Five Retry-Afters end in 10 s; each lets the writes that are under way at once find the next 429.
    ensure!(busy <= 6 * WORKERS, "{busy} writes while each is answered with 429 and a Retry-After of 2 s");
    ensure!(scene.app.unready().is_none(), "{:?}", scene.app.unready());
    scene.end().await;
    Ok(())
}

/// Q7: neither responses nor reads nor the watch show the first writes, for longer than the host waits for its cache.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_neither_responses_nor_the_watch_show_is_not_sent_again() -> Result<()> {
    let Some((plane, client, _turn)) = cluster(3).await? else { return Ok(()) };
    let scene = Scene::start(plane, client, 4).await?;
    scene.create(Faults::Unseen).await?;
    sleep(STORM).await;
    let unseen = scene.link.sent().len();
    scene.link.set(Faults::None);
    let took = scene.converged().await?;
    // The Event of a write is sent with a known result only, so those of the writes without one may be missing.
    scene.wrote_once()?;
    ensure!(unseen > 0, "no write was sent while nothing was shown");
    say(&format!("{unseen} writes that nothing showed for {STORM:?}; converged {took:?} later, each done once"));
    scene.end().await;
    Ok(())
}
