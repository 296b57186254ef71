//! `podium deploy` as a process against a cluster, with a host of which a test decides the answers.

#![expect(clippy::unwrap_used, reason = "a test whose set-up fails has failed")]

use std::{
    fs,
    path::{Path, PathBuf},
    pin::pin,
};

use futures::TryStreamExt;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
    runtime::{WatchStreamExt, watcher},
};
use podium_cli::hostile::Module;
use podium_devcluster::{Cluster, Options, Refusal, Requests, Server};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;

/// A cluster with the kinds and a namespace, and the folder of a new plugin in JavaScript.
struct Fixture {
    cluster: Cluster,
    server: Server,
    folder: TempDir,
}

/// The end of a command.
struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Ended {
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| unreachable!("{error}: {} {}", self.stdout, self.stderr))
    }

    fn documents(&self) -> Vec<Value> {
        let documents: Vec<Value> = serde_saphyr::from_multiple(&self.stdout).unwrap();
        documents.into_iter().filter(|document| !document.is_null()).collect()
    }

    /// Checks the exit code and that stderr has each part.
    fn says(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        for part in parts {
            assert!(self.stderr.contains(part), "{part:?} in {}", self.stderr);
        }
    }
}

impl Fixture {
    async fn new() -> Self {
        let fixture = Self::without_kinds().await;
        for definition in podium_config::definitions() {
            fixture.cluster.create(definition).unwrap();
        }
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "shop" } });
        fixture.cluster.create(namespace).unwrap();
        fixture
    }

    async fn without_kinds() -> Self {
        let cluster = Cluster::start(Options { simulate: false, ..Options::default() }).unwrap();
        let server = cluster.listen(([127, 0, 0, 1], 0).into()).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("kubeconfig"), server.kubeconfig()).unwrap();
        let fixture = Self { cluster, server, folder };
        fixture.podium(&["new", "hello", "--lang", "js"]).await.says(0, &[]);
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    async fn podium(&self, arguments: &[&str]) -> Ended {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_podium"));
        command.current_dir(self.folder.path()).args(arguments).env_remove("PODIUM_RUNNERS").kill_on_drop(true);
        let output = command.output().await.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ended { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) }
    }

    /// Deploys the folder `hello`.
    async fn deploy(&self, arguments: &[&str]) -> Ended {
        self.podium(&[&["deploy", "hello", "--kubeconfig", "kubeconfig"], arguments].concat()).await
    }

    /// Saves plugin.yaml with a part of it replaced.
    fn edit(&self, part: &str, other: &str) {
        let file = self.path("hello/plugin.yaml");
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.contains(part), "{part}: {text}");
        fs::write(&file, text.replace(part, other)).unwrap();
    }

    fn plugins(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("podium.dev", "v1alpha1", "ReconcilePlugin");
        let resource = ApiResource::from_gvk(&kind);
        Api::all_with(Client::new(self.cluster.service(), "default"), &resource)
    }

    /// Answers each object of a generation with conditions `(type, status, reason, message)`, and adds failures.
    fn host(&self, conditions: &'static [[&'static str; 4]], failures: &'static [&'static str]) -> JoinHandle<()> {
        let objects = self.plugins();
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("podium.dev", "v1alpha1", "ReconcilePlugin"));
        let client = Client::new(self.cluster.service(), "default");
        tokio::spawn(async move {
            let mut seen = pin!(watcher(objects, watcher::Config::default()).applied_objects());
            let mut answered = None;
            while let Some(object) = seen.try_next().await.unwrap() {
                let generation = object.metadata.generation;
                if answered == generation {
                    continue;
                }
                answered = generation;
                let condition = |[kind, status, reason, message]: &[&str; 4]| {
                    json!({
                        "type": kind, "status": status, "reason": reason, "message": message,
                        "observedGeneration": generation, "lastTransitionTime": "2026-01-01T00:00:00Z",
                    })
                };
                let failure = |message: &&str| {
                    // As of the host, a failure of another version is another one.
                    let message = format!("{message} of {generation:?}");
                    json!({ "reason": "retry", "message": message, "pod": "shop/a", "since": "2026-01-01T00:00:00Z" })
                };
                let conditions: Vec<_> = conditions.iter().map(condition).collect();
                let failures: Vec<_> = failures.iter().map(failure).collect();
                let status = json!({
                    "observedGeneration": generation, "conditions": conditions, "failures": failures,
                });
                let namespace = object.metadata.namespace.unwrap_or_default();
                let of = Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &resource);
                let patch = Patch::Merge(json!({ "status": status }));
                let name = object.metadata.name.unwrap_or_default();
                of.patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
            }
        })
    }

    /// A kubeconfig of a user without rights, except those of a role.
    fn user(&self, rules: &Value) {
        let user = self.server.kubeconfig().replace("user: {}", "user: { as: ann }");
        fs::write(self.path("kubeconfig"), user).unwrap();
        let group = "rbac.authorization.k8s.io";
        let metadata = json!({ "name": "ann", "namespace": "shop" });
        let role = json!({ "apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": metadata, "rules": rules });
        let binding = json!({
            "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": { "apiGroup": group, "kind": "Role", "name": "ann" },
            "subjects": [{ "apiGroup": group, "kind": "User", "name": "ann" }],
        });
        self.cluster.create(role).unwrap();
        self.cluster.create(binding).unwrap();
    }

    fn has_account(&self) -> bool {
        self.stored("serviceaccounts").iter().any(|account| account["metadata"]["name"] == "podium-plugin-hello")
    }

    fn stored(&self, resource: &str) -> Vec<Value> {
        let (_, mut objects) = self.cluster.list(resource);
        objects.retain(|object| object["metadata"]["namespace"] == "shop");
        objects
    }
}

/// Returns true if each field of `part` is in `whole`.
fn contains(whole: &Value, part: &Value) -> bool {
    match part {
        Value::Object(fields) => fields.iter().all(|(name, value)| contains(&whole[name], value)),
        part => whole == part,
    }
}

fn bytes(file: &Path) -> Vec<u8> {
    fs::read(file).unwrap()
}

#[tokio::test]
async fn a_dry_run_prints_without_a_request_what_a_deployment_stores() {
    let fixture = Fixture::new().await;
    fixture.edit("kind: ReconcilePlugin", "kind: ReconcilePlugin   # of the shop");
    let before = bytes(&fixture.path("hello/plugin.yaml"));
    let printed = fixture.podium(&["deploy", "hello", "--dry-run=client", "-o", "yaml", "-n", "shop"]).await;
    printed.says(0, &["note: shop/hello: serviceAccountName: podium-plugin-hello is filled in"]);
    assert_eq!(fixture.cluster.requests().all().len(), 0);
    let documents = printed.documents();
    let kinds: Vec<_> = documents.iter().map(|document| document["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ServiceAccount", "Role", "RoleBinding", "Role", "RoleBinding", "ReconcilePlugin"]);

    let applied = fixture.deploy(&["--no-wait"]).await;
    applied.says(0, &["Role shop/podium-plugin-hello applied", "ReconcilePlugin shop/hello applied"]);
    assert_eq!(applied.stdout, "shop/hello of generation 1 is applied\n");
    assert_eq!(bytes(&fixture.path("hello/plugin.yaml")), before, "the file is not changed");
    for document in &documents {
        let kind = document["kind"].as_str().unwrap().to_lowercase();
        let group = document["apiVersion"].as_str().unwrap().split_once('/').map_or("", |(group, _)| group);
        let resource = if group.is_empty() { format!("{kind}s") } else { format!("{kind}s.{group}") };
        let all = fixture.stored(&resource);
        let stored =
            all.iter().find(|of| contains(of, document)).unwrap_or_else(|| unreachable!("{document}: {all:?}"));
        let managers = stored["metadata"]["managedFields"].as_array().into_iter().flatten();
        let managers: Vec<_> = managers.map(|of| (&of["manager"], &of["operation"])).collect();
        // An account has no field to own.
        let is_owned = managers == [(&json!("podium-deploy"), &json!("Apply"))];
        assert!(is_owned || kind == "serviceaccount", "{managers:?} of {document}");
    }
    // A second deployment changes nothing.
    fixture.deploy(&["--no-wait"]).await.says(0, &[]);
    assert_eq!(fixture.stored("reconcileplugins.podium.dev")[0]["metadata"]["generation"], 1);
}

#[tokio::test]
async fn a_script_over_64_kib_goes_to_a_config_map() {
    let fixture = Fixture::new().await;
    let before = bytes(&fixture.path("hello/plugin.yaml"));
    let script = format!("// {}\nexport default () => {{}};\n", "x".repeat(64 << 10));
    fs::write(fixture.path("hello/plugin.js"), &script).unwrap();
    fixture.deploy(&["--no-wait"]).await.says(0, &["ConfigMap shop/podium-plugin-hello applied"]);
    assert_eq!(bytes(&fixture.path("hello/plugin.yaml")), before);
    let of = &fixture.stored("reconcileplugins.podium.dev")[0]["spec"]["source"]["script"];
    assert_eq!((&of["configMap"]["key"], of.get("inline")), (&json!("plugin.js"), None));
    let map: k8s_openapi::api::core::v1::ConfigMap =
        serde_json::from_value(fixture.stored("configmaps").remove(0)).unwrap();
    assert_eq!(map.binary_data.unwrap()["plugin.js"].0, script.as_bytes());
    // Small again, it is in the object, and the copy in the file is renewed.
    fs::write(fixture.path("hello/plugin.js"), "export default () => {};\n").unwrap();
    fixture.deploy(&["--no-wait"]).await.says(0, &[]);
    let of = &fixture.stored("reconcileplugins.podium.dev")[0]["spec"]["source"]["script"];
    assert_eq!((of.get("configMap"), &of["inline"]), (None, &json!("export default () => {};\n")));
}

#[tokio::test]
async fn a_dry_run_does_not_change_the_file() {
    let fixture = Fixture::new().await;
    let before = bytes(&fixture.path("hello/plugin.yaml"));
    fs::write(fixture.path("hello/plugin.js"), "export default () => {};\n").unwrap();
    let dry = fixture.deploy(&["--dry-run=client"]).await;
    assert_eq!(bytes(&fixture.path("hello/plugin.yaml")), before);
    dry.says(1, &["hello/plugin.yaml", "not a copy of plugin.js", "podium build hello"]);
}

#[tokio::test]
async fn a_large_script_belongs_to_the_plugin_beside_it() {
    let fixture = Fixture::new().await;
    let script = format!("// {}\nexport default () => {{}};\n", "x".repeat(64 << 10));
    fs::write(fixture.path("hello/plugin.js"), script).unwrap();
    let one = |name: &str| {
        format!(
            "apiVersion: podium.dev/v1alpha1\nkind: ReconcilePlugin\nmetadata: {{ name: {name}, namespace: shop }}\n\
             spec: {{ source: {{ script: {{ language: javascript, inline: 'export default () => {name}' }} }} }}\n---\n"
        )
    };
    for (file, text) in [("other.yaml", one("a")), ("plugin.yaml", one("a") + &one("b"))] {
        fs::write(fixture.path("hello").join(file), text).unwrap();
        let path = format!("hello/{file}");
        let printed = fixture.podium(&["deploy", &path, "--dry-run=client", "-o", "yaml"]).await;
        printed.says(0, &[]);
        let documents = printed.documents();
        let inline = documents.iter().find_map(|of| of.pointer("/spec/source/script/inline"));
        assert_eq!(inline, Some(&json!("export default () => a")), "{file}");
    }
}

#[tokio::test]
async fn a_component_is_pushed_after_the_dry_run_on_the_server() {
    let fixture = Fixture::new().await;
    fs::create_dir(fixture.path("rust")).unwrap();
    fs::write(fixture.path("rust/a.wasm"), Module::DEFAULT.component().unwrap()).unwrap();
    let deploy = async |namespace: &str, flags: &[&str]| {
        let yaml = format!(
            "apiVersion: podium.dev/v1alpha1\nkind: ReconcilePlugin\nmetadata: {{ name: a, namespace: {namespace} }}\n\
             spec: {{ source: {{ file: a.wasm }} }}\n"
        );
        fs::write(fixture.path("rust/plugin.yaml"), yaml).unwrap();
        let to = ["deploy", "rust", "--kubeconfig=kubeconfig", "--registry=127.0.0.1:1/a:1", "--plain-http"];
        fixture.podium(&[&to, flags].concat()).await
    };
    deploy("other", &[]).await.says(1, &["kubectl create namespace other"]);
    deploy("shop", &["--pull-secret=No"]).await.says(1, &["spec.source.oci.pullSecretName"]);
    // The registry does not answer, and nothing is stored.
    deploy("shop", &[]).await.says(1, &["127.0.0.1:1"]);
    assert!(fixture.stored("serviceaccounts").iter().all(|of| of["metadata"]["name"] != "podium-plugin-a"));
}

#[tokio::test]
async fn a_status_that_cannot_be_read_is_read_again() {
    let fixture = Fixture::new().await;
    let mut objects = pin!(watcher(fixture.plugins(), watcher::Config::default()).applied_objects());
    let refuse = async {
        objects.try_next().await.unwrap();
        fixture.cluster.faults().refuse(Requests::All, Refusal::Internal, 2);
        std::future::pending::<()>().await;
    };
    let ended = tokio::select! {
        ended = fixture.deploy(&["--wait", "4s"]) => ended,
        () = refuse => return,
    };
    ended.says(1, &["its status cannot be read, which is tried again: ", "no host has answered within 4 s"]);
}

#[tokio::test]
async fn documents_beside_each_other_are_deployed_in_their_order() {
    let fixture = Fixture::new().await;
    let documents = "# The first one\n---\napiVersion: podium.dev/v1alpha1\nkind: ReconcilePlugin\n\
        metadata: { name: one, namespace: shop }\nspec: &spec\n  serviceAccountName: both\n  suspend: true\n  \
        source: { script: { language: javascript, inline: export default () => f } }\n---\n# nothing\n---\n\
        apiVersion: podium.dev/v1alpha1\nkind: ReconcilePlugin\nmetadata: { name: two, namespace: shop }\nspec:\n  \
        serviceAccountName: both\n  source: { script: { language: javascript, inline: export default () => f } }\n";
    fs::write(fixture.path("two.yaml"), documents).unwrap();
    let printed = fixture.podium(&["deploy", "two.yaml", "--dry-run=client", "--output", "json"]).await;
    let names = printed.json()["objects"].as_array().unwrap().iter().map(|of| of["metadata"]["name"].clone()).collect();
    let names: Vec<Value> = names;
    assert_eq!(
        names,
        ["both", "podium-host-one", "podium-host-one", "one", "podium-host-two", "podium-host-two", "two"]
    );
}

#[tokio::test]
async fn a_refusal_names_the_next_step_and_changes_nothing() {
    let fixture = Fixture::without_kinds().await;
    fixture.deploy(&[]).await.says(1, &["does not serve the kinds", "podium schema crds | kubectl apply"]);
    for definition in podium_config::definitions() {
        fixture.cluster.create(definition).unwrap();
    }
    let missing = "nothing was changed: cannot apply ServiceAccount shop/podium-plugin-hello: the namespace is \
        missing; create it: kubectl create namespace shop";
    fixture.deploy(&[]).await.says(1, &[missing]);
    fixture.deploy(&["-n", "other"]).await.says(1, &["--namespace other", "pass --namespace=shop"]);
    fixture.deploy(&["-o", "yaml"]).await.says(1, &["add --dry-run=client"]);
    let source = "source: { oci: { image: 'r.example/a:1' } }";
    let head = "apiVersion: podium.dev/v1alpha1\nkind: ClusterReconcilePlugin\nmetadata: { name: a }";
    let cluster = format!("{head}\nspec: {{ {source} }}\n");
    fs::write(fixture.path("cluster.yaml"), cluster).unwrap();
    let of_cluster = async |flag| fixture.podium(&["deploy", "cluster.yaml", "--dry-run=client", flag]).await;
    of_cluster("--namespace=shop").await.says(1, &["--namespace shop", "a ClusterReconcilePlugin has no namespace"]);
    of_cluster("--configmap").await.says(1, &["--configmap: no plugin of cluster.yaml has"]);
    fixture.deploy(&["--context", "none"]).await.says(1, &["none"]);
    fixture.deploy(&["--registry", "r.example/a:1"]).await.says(1, &["has a component in a file to push"]);
    let json = fixture.deploy(&["-o", "json"]).await;
    assert_eq!((json.code, &json.json()["ok"]), (Some(1), &json!(false)));
    fixture.edit("write: { labels: [team] }", "wite: {}");
    fixture.deploy(&[]).await.says(1, &["plugin.yaml:10: spec.grants.wite"]);
    assert!(fixture.cluster.requests().all().iter().all(|request| request.code == 404 || !request.is_write()));
    fs::create_dir(fixture.path("rust")).unwrap();
    let yaml = "apiVersion: podium.dev/v1alpha1\nkind: ReconcilePlugin\nmetadata: { name: a, namespace: shop }\n\
        spec: { source: { file: a.wasm } }\n";
    fs::write(fixture.path("rust/plugin.yaml"), yaml).unwrap();
    fixture.podium(&["deploy", "rust"]).await.says(1, &["rust/plugin.yaml:4: spec.source.file", "podium build"]);
}

#[tokio::test]
async fn a_field_of_another_manager_is_named_and_can_be_taken_over() {
    let fixture = Fixture::new().await;
    fixture.deploy(&["--no-wait"]).await.says(0, &[]);
    let objects = fixture.plugins();
    let client = objects.into_client();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("podium.dev", "v1alpha1", "ReconcilePlugin"));
    let of = Api::<DynamicObject>::namespaced_with(client, "shop", &resource);
    let by = PatchParams { field_manager: Some("argocd".to_owned()), ..PatchParams::default() };
    let patch = Patch::Merge(json!({ "spec": { "grants": { "write": { "labels": ["other"] } } } }));
    of.patch("hello", &by, &patch).await.unwrap();
    let refused = fixture.deploy(&["--no-wait"]).await;
    refused.says(1, &["nothing was changed: ReconcilePlugin shop/hello", "\"argocd\"", ".spec.grants.write.labels"]);
    assert!(refused.stderr.contains("--force-conflicts"), "{}", refused.stderr);
    fixture.deploy(&["--no-wait", "--force-conflicts"]).await.says(0, &[]);
    let labels = &fixture.stored("reconcileplugins.podium.dev")[0]["spec"]["grants"]["write"]["labels"];
    assert_eq!(labels, &json!(["team"]));
}

#[tokio::test]
async fn without_rights_to_rbac_an_administrator_gets_the_objects() {
    let fixture = Fixture::new().await;
    fixture.user(&json!([
        { "apiGroups": ["podium.dev"], "resources": ["reconcileplugins"], "verbs": ["get", "create", "patch"] },
        { "apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["create", "patch"] },
    ]));
    let refused = fixture.deploy(&[]).await;
    refused.says(1, &["User \"ann\" cannot patch resource \"roles\"", "nothing was changed", "repeat with --no-rbac"]);
    assert!(!fixture.has_account());
    let documents = refused.documents();
    let kinds: Vec<_> = documents.iter().map(|document| document["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["ServiceAccount", "Role", "RoleBinding", "Role", "RoleBinding"]);
    let json = fixture.deploy(&["--output", "json"]).await;
    assert_eq!((json.code, &json.json()["objects"]), (Some(1), &json!(documents)));
    fixture.deploy(&["--no-rbac", "--no-wait"]).await.says(0, &["ReconcilePlugin shop/hello applied"]);
    assert!(!fixture.has_account());
}

#[tokio::test]
async fn the_hosts_answer_decides_the_exit_code() {
    let fixture = Fixture::new().await;
    let silent = fixture.deploy(&["--wait", "1s"]).await;
    silent.says(1, &["shop/hello of generation 1 waits for the host", "no host has answered within 1 s"]);

    const MISTAKE: &str = "spec.source.script.inline: line 3, column 14: SyntaxError: unexpected token; the version of \
        generation 1 goes on";
    const REFUSED: &[[&str; 4]] = &[["Ready", "False", "InvalidScript", MISTAKE]];
    let host = fixture.host(REFUSED, &[]);
    let refused = fixture.deploy(&[]).await;
    refused.says(1, &["hello/plugin.js:3:14: shop/hello of generation 1 is ", "is refused (InvalidScript)", "next: "]);
    host.abort();

    fixture.edit("write: { labels: [team] }", "write: { labels: [team], events: true }");
    const FAILING: &[[&str; 4]] = &[["Ready", "True", "Running", ""], ["Healthy", "False", "RunsFail", "no team"]];
    let host = fixture.host(FAILING, &["no team"]);
    let failing = fixture.deploy(&["-o", "json"]).await;
    failing.says(1, &["shop/hello of generation 2 fails (RunsFail): no team", "podium runs --plugin shop/hello"]);
    let json = failing.json();
    let plugin = &json["plugins"][0];
    assert_eq!((&json["ok"], &plugin["state"], &plugin["generation"]), (&json!(false), &json!("Failing"), &json!(2)));
    let again = fixture.deploy(&["--wait", "1s"]).await;
    again.says(1, &["fails (RunsFail)", "the failure was there before this deployment"]);
    host.abort();

    fixture.edit("events: true", "events: false");
    const PASSING: &str = "no ConfigMap; it is tried again with back-off; the version of generation 2 goes on";
    let host = fixture.host(&[["Ready", "False", "ConfigMapNotFound", PASSING]], &[]);
    let loading = fixture.deploy(&["--wait", "1s"]).await;
    loading.says(1, &["loads (ConfigMapNotFound): no ConfigMap", "not loaded after 1 s", "generation 2 goes on"]);
    host.abort();

    fixture.edit("events: false", "delete: true");
    const WELL: &[[&str; 4]] = &[["Ready", "True", "Running", ""], ["Healthy", "True", "NoFailures", ""]];
    let host = fixture.host(WELL, &[]);
    let began = tokio::time::Instant::now();
    let well = fixture.deploy(&["--wait", "1s"]).await;
    well.says(0, &[]);
    assert_eq!(well.stdout, "shop/hello of generation 4 runs (NoFailures)\n");
    assert!(began.elapsed().as_secs() >= 7, "before the host may have written a second status: {:?}", began.elapsed());
    // It has settled, so that this takes no time.
    let began = tokio::time::Instant::now();
    let unchanged = fixture.deploy(&[]).await;
    assert!(began.elapsed().as_secs() < 6, "{:?}", began.elapsed());
    let expected = "shop/hello of generation 4 is unchanged; the host reported that it runs (NoFailures)\n";
    assert_eq!(unchanged.stdout, expected);
    host.abort();

    fixture.edit("spec:\n", "spec:\n  suspend: true\n");
    const SUSPENDED: &[[&str; 4]] = &[["Suspended", "True", "Suspended", "spec.suspend is true"]];
    let host = fixture.host(SUSPENDED, &[]);
    let suspended = fixture.deploy(&[]).await;
    assert_eq!(suspended.stdout, "shop/hello of generation 5 is suspended (Suspended): spec.suspend is true\n");
    host.abort();
}
