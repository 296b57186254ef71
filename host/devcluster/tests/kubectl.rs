//! kubectl works against the cluster. Skipped with a message if there is no kubectl.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

mod common;

use std::{io::Write as _, process::Stdio, time::Duration};

use common::{Client, PODS, alive, pod};
use podium_devcluster::{Cluster, Server};
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
};

struct Kubectl {
    cluster: Cluster,
    server: Server,
    home: TempDir,
}

impl Kubectl {
    /// Returns `None` if kubectl is missing.
    async fn new() -> Option<Self> {
        let found = Command::new("kubectl").args(["version", "--client"]).stdout(Stdio::null()).status().await;
        if found.is_err() {
            let missing = "SKIPPED: kubectl is not installed, so nothing shows that it works against the cluster\n";
            std::io::stderr().write_all(missing.as_bytes()).unwrap();
            assert!(std::env::var_os("CI").is_none(), "CI must have kubectl");
            return None;
        }
        let cluster = alive();
        let server = cluster.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let home = TempDir::new().unwrap();
        std::fs::write(home.path().join("config"), server.kubeconfig()).unwrap();
        Some(Self { cluster, server, home })
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new("kubectl");
        command
            .args(line.split_whitespace())
            .env("HOME", self.home.path())
            .env("KUBECONFIG", self.home.path().join("config"))
            .current_dir(self.home.path())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Runs kubectl. Returns whether it succeeded, and its stdout and stderr.
    async fn run(&self, line: &str) -> (bool, String) {
        let running = self.command(line).output();
        let output = tokio::time::timeout(Duration::from_secs(60), running).await.expect("kubectl hangs").unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }

    async fn ok(&self, line: &str) -> String {
        let (success, text) = self.run(line).await;
        assert!(success, "kubectl {line}: {text}");
        text
    }

    fn file(&self, name: &str, object: &serde_json::Value) {
        std::fs::write(self.home.path().join(name), object.to_string()).unwrap();
    }

    async fn end(self) {
        self.server.stop().await;
        self.cluster.shutdown().await;
    }
}

/// Returns the words of the line that begins with the name.
fn row<'a>(table: &'a str, name: &str) -> Vec<&'a str> {
    let line = table.lines().find(|line| line.split_whitespace().next() == Some(name));
    line.unwrap_or_else(|| panic!("no row {name} in {table}")).split_whitespace().collect()
}

#[tokio::test]
async fn apply_wait_get_describe_label_annotate_and_delete_work() {
    let Some(kubectl) = Kubectl::new().await else { return };
    kubectl.file("pod.json", &pod("web"));
    assert!(kubectl.ok("apply -f pod.json").await.contains("pod/web created"));
    kubectl.ok("wait --for=condition=Ready pod/web --timeout=30s").await;
    let table = kubectl.ok("get pods -o wide").await;
    assert_eq!(row(&table, "web")[1..4], ["1/1", "Running", "0"]);
    assert!(row(&table, "web")[5].starts_with("10.244."), "{table}");
    assert!(row(&table, "web")[6].starts_with("node-"), "{table}");
    assert!(kubectl.ok("apply -f pod.json").await.contains("unchanged"));
    let mut newer = pod("web");
    newer["spec"]["containers"][0]["image"] = json!("registry.example/c:2");
    kubectl.file("pod.json", &newer);
    let applied = kubectl.ok("apply -f pod.json").await;
    assert!(applied.contains("configured") && !applied.to_lowercase().contains("warning"), "{applied}");
    assert!(kubectl.ok("get pod web -o jsonpath={.spec.containers[0].image}").await.ends_with(":2"));
    kubectl.ok("label pod web tier=front").await;
    kubectl.ok("annotate pod web note=x").await;
    let described = kubectl.ok("describe pod web").await;
    for expected in ["tier=front", "note: x", "Scheduled", "Successfully assigned"] {
        assert!(described.contains(expected), "{expected} is not in {described}");
    }
    kubectl.ok("label pod web tier-").await;
    assert!(kubectl.ok("get pods -l tier=front").await.contains("No resources found"));
    assert!(kubectl.ok("delete pod web").await.contains("deleted"));
    assert!(kubectl.run("get pod web").await.1.contains("NotFound"));
    kubectl.end().await;
}

#[tokio::test]
async fn server_side_apply_shows_conflicts_and_takes_over_when_forced() {
    let Some(kubectl) = Kubectl::new().await else { return };
    let map = |value: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"},
        "data": {"k": value}})
    };
    kubectl.file("map.json", &map("1"));
    kubectl.ok("apply --server-side --field-manager=one -f map.json").await;
    kubectl.file("map.json", &map("2"));
    let (success, text) = kubectl.run("apply --server-side --field-manager=two -f map.json").await;
    assert!(!success && text.contains("conflict with \"one\": .data.k"), "{text}");
    kubectl.ok("apply --server-side --field-manager=two --force-conflicts -f map.json").await;
    assert_eq!(kubectl.ok("get cm c -o jsonpath={.data.k}").await, "2");
    kubectl.file("pod.json", &pod("web"));
    kubectl.ok("apply -f pod.json").await;
    let moved = kubectl.ok("apply --server-side -f pod.json").await;
    assert!(moved.contains("serverside-applied") && !moved.contains("Warning"), "{moved}");
    kubectl.end().await;
}

#[tokio::test]
async fn a_watch_prints_each_state_and_events_are_listed() {
    let Some(kubectl) = Kubectl::new().await else { return };
    let mut watching = kubectl.command("get pods --watch --no-headers").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    kubectl.cluster.create(pod("web")).unwrap();
    let reading = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains("1/1") && line.contains("Running") {
                return;
            }
        }
        panic!("the watch ended");
    };
    tokio::time::timeout(Duration::from_secs(60), reading).await.expect("the watch never showed the running Pod");
    watching.kill().await.unwrap();
    let events = kubectl.ok("get events").await;
    assert!(events.contains("pod/web") && events.contains("Scheduled"), "{events}");
    assert!(kubectl.ok("events --for pod/web").await.contains("Started"));
    kubectl.end().await;
}

#[tokio::test]
async fn typed_commands_that_speak_protobuf_work() {
    let Some(kubectl) = Kubectl::new().await else { return };
    kubectl.ok("create namespace shop").await;
    kubectl.ok("create configmap c -n shop --from-literal=a=b").await;
    kubectl.ok("create secret generic s -n shop --from-literal=a=b").await;
    assert_eq!(kubectl.ok("get secret s -n shop -o jsonpath={.data.a}").await, "Yg==");
    kubectl.ok("create serviceaccount plugin -n shop").await;
    kubectl.ok("create role r -n shop --verb=get --resource=pods").await;
    kubectl.ok("create rolebinding r -n shop --role=r --serviceaccount=shop:plugin").await;
    let can = |verb: &str| format!("auth can-i {verb} pods -n shop --as=system:serviceaccount:shop:plugin");
    assert!(kubectl.ok(&can("get")).await.starts_with("yes"));
    assert!(kubectl.run(&can("patch")).await.1.starts_with("no"));
    assert!(kubectl.ok("auth whoami").await.contains("admin"));
    kubectl.ok("delete namespace shop --timeout=30s").await;
    assert!(kubectl.run("get cm c -n shop").await.1.contains("NotFound"));
    kubectl.end().await;
}

#[tokio::test]
async fn nodes_are_cordoned_and_drained_and_definitions_established() {
    let Some(kubectl) = Kubectl::new().await else { return };
    let client = Client::new(&kubectl.cluster);
    kubectl.cluster.create(pod("web")).unwrap();
    let bound = client.until(&format!("{PODS}/web"), |_, pod| pod["status"]["phase"] == "Running").await;
    let node = bound["spec"]["nodeName"].as_str().unwrap();
    kubectl.ok(&format!("drain {node} --force --timeout=30s")).await;
    assert!(row(&kubectl.ok("get nodes").await, node)[1].contains("SchedulingDisabled"));
    assert!(kubectl.ok("get pods").await.contains("No resources found"));
    kubectl.ok(&format!("uncordon {node}")).await;
    assert!(kubectl.ok(&format!("describe node {node}")).await.contains("KubeletReady"));
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.podium.dev"},
        "spec": {"group": "podium.dev", "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"]},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}],
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    });
    kubectl.file("crd.json", &definition);
    kubectl.ok("apply -f crd.json").await;
    kubectl.ok("wait --for=condition=Established crd/things.podium.dev --timeout=30s").await;
    let thing = json!({"apiVersion": "podium.dev/v1", "kind": "Thing", "metadata": {"name": "t"}, "spec": {"size": 3}});
    kubectl.file("thing.json", &thing);
    kubectl.ok("apply -f thing.json").await;
    assert_eq!(row(&kubectl.ok("get th").await, "t")[1], "3");
    kubectl.end().await;
}

#[tokio::test]
async fn kinds_that_are_not_served_are_refused_as_by_a_real_server() {
    let Some(kubectl) = Kubectl::new().await else { return };
    for (api_version, kind) in [("apps/v1", "DaemonSet"), ("batch/v1", "CronJob"), ("v1", "Service")] {
        kubectl
            .file("a.json", &json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}, "spec": {}}));
        for line in ["apply -f a.json", "create -f a.json", "apply --server-side -f a.json"] {
            let (success, text) = kubectl.run(line).await;
            let expected = format!("no matches for kind \"{kind}\" in version \"{api_version}\"");
            assert!(!success && text.contains(&expected), "kubectl {line}: {text}");
        }
    }
    let (success, text) = kubectl.run("get daemonsets").await;
    assert!(!success && text.contains("the server doesn't have a resource type \"daemonsets\""), "{text}");
    kubectl.end().await;
}

#[tokio::test]
async fn deployments_are_created_scaled_rolled_out_undone_and_deleted() {
    let Some(kubectl) = Kubectl::new().await else { return };
    kubectl.ok("create deployment web --image=registry.example/web:1 --replicas=3").await;
    let done = "deployment \"web\" successfully rolled out";
    assert!(kubectl.ok("rollout status deployment/web --timeout=60s").await.contains(done));
    assert_eq!(row(&kubectl.ok("get deployments").await, "web")[1..4], ["3/3", "3", "3"]);
    kubectl.ok("scale deployment/web --replicas=4").await;
    kubectl.ok("wait deployment/web --for=jsonpath={.status.readyReplicas}=4 --timeout=60s").await;
    kubectl.ok("set image deployment/web web=registry.example/web:2").await;
    assert!(kubectl.ok("rollout status deployment/web --timeout=60s").await.contains(done));
    kubectl.ok("rollout restart deployment/web").await;
    assert!(kubectl.ok("rollout status deployment/web --timeout=60s").await.contains(done));
    let history = kubectl.ok("rollout history deployment/web").await;
    assert!(["1", "2", "3"].iter().all(|revision| row(&history, revision).len() == 2), "{history}");
    kubectl.ok("rollout undo deployment/web --to-revision=1").await;
    assert!(kubectl.ok("rollout status deployment/web --timeout=60s").await.contains(done));
    assert!(kubectl.ok("get deployment web -o wide").await.contains("registry.example/web:1"));
    let pods = kubectl.ok("get pods -l app=web -o jsonpath={.items[*].spec.containers[0].image}").await;
    assert!(pods.split_whitespace().filter(|image| *image == "registry.example/web:1").count() >= 4, "{pods}");
    kubectl.ok("rollout pause deployment/web").await;
    kubectl.ok("rollout resume deployment/web").await;
    assert!(kubectl.ok("describe deployment web").await.contains("MinimumReplicasAvailable"));
    kubectl.ok("delete deployment web").await;
    kubectl.ok("wait pod -l app=web --for=delete --timeout=60s").await;
    assert!(kubectl.ok("get replicasets,pods").await.contains("No resources found"));
    kubectl.end().await;
}

#[tokio::test]
async fn stateful_sets_and_jobs_run_and_are_read() {
    let Some(kubectl) = Kubectl::new().await else { return };
    let containers = json!([{"name": "db", "image": "registry.example/db:1"}]);
    let template = json!({"metadata": {"labels": {"app": "db"}}, "spec": {"containers": containers}});
    let set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {"replicas": 2, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}}, "template": template},
    });
    kubectl.file("set.json", &set);
    kubectl.ok("apply -f set.json").await;
    kubectl.ok("rollout status statefulset/db --timeout=60s").await;
    assert_eq!(row(&kubectl.ok("get statefulsets").await, "db")[1], "2/2");
    assert_eq!(row(&kubectl.ok("get pods").await, "db-1")[2], "Running");
    kubectl.ok("set image statefulset/db db=registry.example/db:2").await;
    kubectl.ok("rollout status statefulset/db --timeout=60s").await;
    kubectl.ok("rollout undo statefulset/db").await;
    kubectl.ok("rollout status statefulset/db --timeout=60s").await;
    assert!(kubectl.ok("get pod db-0 -o jsonpath={.spec.containers[0].image}").await.ends_with(":1"));
    kubectl.ok("create job backup --image=registry.example/backup:1").await;
    kubectl.ok("wait pod -l job-name=backup --for=condition=Ready --timeout=60s").await;
    assert_eq!(row(&kubectl.ok("get jobs").await, "backup")[1..3], ["Running", "0/1"]);
    kubectl.ok("annotate pod -l job-name=backup devcluster.podium.dev/behaviour=finish").await;
    kubectl.ok("wait job/backup --for=condition=Complete --timeout=60s").await;
    assert_eq!(row(&kubectl.ok("get jobs").await, "backup")[1..3], ["Complete", "1/1"]);
    kubectl.ok("delete job backup").await;
    kubectl.ok("wait pod -l job-name=backup --for=delete --timeout=60s").await;
    kubectl.end().await;
}

#[tokio::test]
async fn a_misspelt_field_is_refused_or_causes_a_warning() {
    let Some(kubectl) = Kubectl::new().await else { return };
    let mut misspelt = pod("web");
    misspelt["spec"]["contaners"] = json!([]);
    misspelt["spec"]["containers"][0]["imag"] = json!("x");
    kubectl.file("pod.json", &misspelt);
    for line in ["apply -f pod.json", "create -f pod.json", "apply --server-side -f pod.json"] {
        let (success, text) = kubectl.run(line).await;
        assert!(!success && text.contains("spec.contaners") && text.contains(".imag"), "kubectl {line}: {text}");
    }
    let (_, text) = kubectl.run("create -f pod.json").await;
    let expected = "strict decoding error: unknown field \"spec.containers[0].imag\", unknown field \"spec.contaners\"";
    assert!(text.contains(expected), "{text}");
    let text = kubectl.ok("create -f pod.json --validate=warn").await;
    assert!(text.contains("Warning: unknown field \"spec.contaners\""), "{text}");
    kubectl.file(
        "map.json",
        &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}, "data": {"a": 1}}),
    );
    let (success, text) = kubectl.run("apply -f map.json").await;
    assert!(!success && text.contains("cannot unmarshal number into Go struct field ConfigMap.data"), "{text}");
    kubectl.end().await;
}

#[tokio::test]
async fn fields_of_built_in_kinds_and_custom_resources_are_explained() {
    let Some(kubectl) = Kubectl::new().await else { return };
    for (field, expected) in [
        ("pod", "<PodSpec>"),
        ("pod.spec.containers", "<[]ContainerPort>"),
        ("pod.spec.containers.resources.limits", "<map[string]Quantity>"),
        ("configmap.data", "<map[string]string>"),
        ("lease.spec", "acquireTime\t<string>"),
        ("clusterrole.rules", "-required-"),
    ] {
        let text = kubectl.ok(&format!("explain {field}")).await;
        assert!(text.contains("VERSION:") && text.contains(expected), "kubectl explain {field}: {text}");
    }
    let text = kubectl.run("explain pod.spec.contaners").await.1;
    assert!(text.contains("field \"contaners\" does not exist"), "{text}");
    assert!(kubectl.ok("explain pod --recursive").await.contains("terminationGracePeriodSeconds"));
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "size": {"type": "integer", "description": "How large it is."}}}}});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.podium.dev"},
        "spec": {"group": "podium.dev", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
    });
    kubectl.file("crd.json", &definition);
    kubectl.ok("create -f crd.json").await;
    assert!(kubectl.ok("explain thing.spec").await.contains("size"));
    kubectl.end().await;
}

#[tokio::test]
async fn commands_that_need_a_running_container_fail_with_the_reason() {
    let Some(kubectl) = Kubectl::new().await else { return };
    kubectl.cluster.create(pod("web")).unwrap();
    kubectl.ok("wait --for=condition=Ready pod/web --timeout=30s").await;
    let (success, text) = kubectl.run("logs web").await;
    assert!(!success && text.contains("the dev cluster simulates containers and runs none"), "{text}");
    let (success, text) = kubectl.run("logs web -c other").await;
    assert!(!success && text.contains("container other is not valid for pod web"), "{text}");
    let (success, text) = kubectl.run("debug web --image=busybox").await;
    assert!(!success && text.contains("ephemeral containers are disabled for this cluster"), "{text}");
    kubectl.end().await;
}
