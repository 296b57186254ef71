//! The chart with values that clusters of companies need, and with values that are null; without a cluster.

use std::{
    collections::BTreeSet,
    fs,
    process::{Command, Output},
};

use anyhow::{Context, Result, ensure};
use podium_tests::{helm::Helm, process::workspace_dir};
use serde_json::{Value, json};

use super::manifests::{deploy, find, policy, rendered, template};
use crate::{cluster, kubectl::Kubectl, workloads::namespace};

/// Values whose fields stay out if they are null.
const NO_DEFAULTS: [&str; 4] = ["policy", "resources", "podSecurityContext", "securityContext"];

/// Returns the specs of the Pods of a Deployment and a Job.
fn pods(objects: &[Value]) -> Result<[&Value; 2]> {
    let spec = |kind| Ok::<_, anyhow::Error>(&find(objects, kind)?["spec"]["template"]["spec"]);
    Ok([spec("Deployment")?, spec("Job")?])
}

/// Fails on a Pod that Pod Security `restricted` of Kubernetes would refuse.
fn is_restricted(spec: &Value) -> Result<()> {
    const VOLUMES: [&str; 8] =
        ["configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"];
    let pod = &spec["securityContext"];
    ensure!(pod["runAsNonRoot"] == true && pod["seccompProfile"]["type"] == "RuntimeDefault", "{pod}");
    ensure!(["hostNetwork", "hostPID", "hostIPC"].iter().all(|field| spec[field].is_null()), "{spec}");
    for container in spec["containers"].as_array().context("no containers")? {
        let own = &container["securityContext"];
        ensure!(own["allowPrivilegeEscalation"] == false && own["capabilities"] == json!({ "drop": ["ALL"] }), "{own}");
        ensure!(own["privileged"].is_null() && own["runAsUser"].is_null(), "{own}");
    }
    for volume in spec["volumes"].as_array().context("no volumes")? {
        let kinds = volume.as_object().into_iter().flatten().map(|(key, _)| key.as_str());
        ensure!(kinds.filter(|key| *key != "name").all(|kind| VOLUMES.contains(&kind)), "{volume}");
    }
    Ok(())
}

#[tokio::test]
async fn the_values_of_a_large_company_render_and_are_valid() -> Result<()> {
    let Some(helm) = Helm::build().await? else { return Ok(()) };
    let values = workspace_dir().join("docs/values-company.yaml");
    let objects = rendered(&helm, "podium", &["--values", &values.to_string_lossy()])?;
    // The file that the cluster mounts is not on this machine.
    let on_disk = serde_json::to_string(&objects)?.replace("/etc/vendor-ca/ca.crt", "company-ca.pem");
    let registries = &policy(&serde_json::from_str::<Vec<Value>>(&on_disk)?)?["spec"]["registries"];
    ensure!(registries[0]["caFile"] == "company-ca.pem", "{registries}");
    for spec in pods(&objects)? {
        is_restricted(spec)?;
        ensure!(
            ["runAsUser", "runAsGroup", "fsGroup"].iter().all(|id| spec["securityContext"][id].is_null()),
            "{spec}"
        );
        ensure!(spec["nodeSelector"] == json!({ "kubernetes.io/arch": "amd64" }), "{spec}");
        let container = &spec["containers"][0];
        ensure!(container["env"][0]["name"] == "NO_PROXY", "{container}");
        ensure!(container["envFrom"][0]["secretRef"]["name"] == "company-proxy", "{container}");
        let mounted = |path: &str| {
            let mounts = container["volumeMounts"].as_array().into_iter().flatten();
            mounts.clone().any(|mount| mount["mountPath"] == path)
        };
        ensure!(mounted("/etc/podium") && mounted("/etc/vendor-ca"), "{container}");
        ensure!(spec["volumes"].as_array().is_some_and(|all| all.iter().any(|volume| volume["name"] == "vendor-ca")));
    }
    let claim = find(&objects, "PersistentVolumeClaim")?;
    ensure!(claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep", "{claim}");
    Ok(())
}

#[tokio::test]
async fn the_new_image_checks_the_new_policy_before_an_upgrade() -> Result<()> {
    let Some(helm) = Helm::build().await? else { return Ok(()) };
    let objects = rendered(&helm, "podium", &[])?;
    let [host, check] = pods(&objects)?;
    is_restricted(host)?;
    is_restricted(check)?;
    // The same image and flags, so that the same program reads the same files.
    let arguments = |spec: &Value| spec["containers"][0]["args"].as_array().cloned().unwrap_or_default();
    ensure!(arguments(check) == [vec![json!("--check")], arguments(host)].concat(), "{check}");
    ensure!(check["containers"][0]["image"] == host["containers"][0]["image"], "{check}");
    ensure!(check["automountServiceAccountToken"] == false && check["serviceAccountName"].is_null(), "{check}");
    let name = &check["volumes"][0]["configMap"]["name"];
    let maps: Vec<_> = objects.iter().filter(|object| object["kind"] == "ConfigMap").collect();
    let read = maps.iter().find(|map| map["metadata"]["name"] == *name).context("no ConfigMap of the check")?;
    ensure!(read["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade", "{read}");
    ensure!(maps.len() == 2 && maps[0]["data"] == maps[1]["data"], "{maps:?}");
    // Its Pod is none of the host's: neither Service nor NetworkPolicy select it.
    let labels = &find(&objects, "Job")?["spec"]["template"]["metadata"]["labels"];
    ensure!(labels["app.kubernetes.io/component"].is_null(), "{labels}");
    let without = rendered(&helm, "podium", &["--set", "policyCheck.enabled=false"])?;
    ensure!(find(&without, "Job").is_err(), "a check that is switched off");
    Ok(())
}

#[tokio::test]
async fn the_host_may_connect_to_its_collector_of_traces() -> Result<()> {
    let Some(helm) = Helm::build().await? else { return Ok(()) };
    let ports =
        |objects: &[Value]| Ok::<_, anyhow::Error>(find(objects, "NetworkPolicy")?["spec"]["egress"].to_string());
    let before = rendered(&helm, "podium", &[])?;
    ensure!(!ports(&before)?.contains("4318") && pods(&before)?[0]["containers"][0]["env"].is_null(), "{before:?}");
    let collector = "networkPolicy.collectors[0].to[0].namespaceSelector.matchLabels.a=b,networkPolicy.collectors[0].\
        ports[0]=4318,traces.endpoint=http://c:4318,env[0].name=OTEL_TRACES_SAMPLER,env[0].value=always_on";
    let objects = rendered(&helm, "podium", &["--set", collector])?;
    ensure!(ports(&objects)?.contains("4318"), "{}", ports(&objects)?);
    let environment = &pods(&objects)?[0]["containers"][0]["env"];
    let endpoint = json!({ "name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://c:4318" });
    ensure!(
        *environment == json!([endpoint, { "name": "OTEL_TRACES_SAMPLER", "value": "always_on" }]),
        "{environment}"
    );
    let refused = template(&helm, "podium", &["--set", "traces.endpoint=collector:4318"])?;
    ensure!(String::from_utf8_lossy(&refused.stderr).contains("/traces/endpoint"), "{refused:?}");
    Ok(())
}

#[tokio::test]
async fn a_file_that_the_policy_names_is_there_or_nothing_is_rendered() -> Result<()> {
    let Some(helm) = Helm::build().await? else { return Ok(()) };
    let registry = |file: &str| format!("policy.registries[0].host=a.example,policy.registries[0].caFile={file}");
    let output = template(&helm, "podium", &["--set", &registry("registry-ca.pem")])?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success() && said.contains("add this file to policyFiles"), "{said}");
    // A file that is mounted.
    rendered(&helm, "podium", &["--set", &registry("/etc/ca/ca.crt")])?;
    // Another text is no other Pod, because the host reads the files again.
    let with = |text: &str| {
        let value = format!("{},policyFiles.ca=-{text}-", registry("ca"));
        let objects = rendered(&helm, "podium", &["--set", &value])?;
        Ok::<_, anyhow::Error>(find(&objects, "Deployment")?["spec"]["template"]["metadata"]["annotations"].clone())
    };
    ensure!(with("a")? == with("b")?, "a changed authority restarts the host");
    Ok(())
}

/// Returns the paths of all values, of mappings among them.
fn paths(values: &Value, above: &str, found: &mut Vec<String>) {
    for (key, value) in values.as_object().into_iter().flatten() {
        let path = format!("{above}{key}");
        paths(value, &format!("{path}."), found);
        found.push(path);
    }
}

#[tokio::test]
async fn a_value_that_is_null_is_the_default() -> Result<()> {
    let Some(helm) = Helm::build().await? else { return Ok(()) };
    // With what else is rendered only on demand.
    let on = "persistence.enabled=true,metrics.serviceMonitor.enabled=true,metrics.rules.enabled=true,\
        metrics.dashboard.enabled=true,podDisruptionBudget.enabled=true";
    let file: Value = serde_json::from_slice(&fs::read(deploy("chart/defaults.json"))?)?;
    let mut all = Vec::new();
    paths(&file, "", &mut all);
    let expected = rendered(&helm, "podium", &["--set", on])?;
    let mut differing = BTreeSet::new();
    for path in &all {
        // `on` sets these.
        if on.contains(path.as_str()) {
            continue;
        }
        let objects = rendered(&helm, "podium", &["--set", on, "--set", &format!("{path}=null")])
            .with_context(|| format!("{path}=null"))?;
        if objects != expected {
            differing.insert(path.split('.').next().unwrap_or(path));
        }
    }
    ensure!(differing.iter().all(|path| NO_DEFAULTS.contains(path)), "{differing:?}");
    ensure!(differing.contains("podSecurityContext") && all.len() > 60, "{differing:?} of {all:?}");
    for path in ["persistence", "metrics", "podDisruptionBudget"] {
        rendered(&helm, "podium", &["--set", &format!("{path}=null")]).with_context(|| format!("{path}=null"))?;
    }
    Ok(())
}

/// A client-side apply compares lists without keys as a whole: a default that the API server adds to an item is a
/// difference for ever.
#[tokio::test]
async fn lists_have_the_defaults_that_the_api_server_would_add() -> Result<()> {
    let Some(helm) = Helm::build().await? else { return Ok(()) };
    let objects =
        rendered(&helm, "podium", &["--values", &workspace_dir().join("docs/values-company.yaml").to_string_lossy()])?;
    let of = |kind: &'static str| objects.iter().filter(move |object| object["kind"] == kind);
    let mut rules = 0;
    for policy in of("ValidatingAdmissionPolicy") {
        for rule in policy["spec"]["matchConstraints"]["resourceRules"].as_array().context("no rules")? {
            ensure!(rule["scope"] == "*", "{rule}");
            rules += 1;
        }
    }
    let network = &find(&objects, "NetworkPolicy")?["spec"];
    let directions = ["ingress", "egress"].map(|field| network[field].as_array().cloned().unwrap_or_default()).concat();
    let ports: Vec<_> = directions.iter().flat_map(|rule| rule["ports"].as_array().into_iter().flatten()).collect();
    ensure!(rules == 9 && ports.len() == 9, "{rules} rules, {ports:?}");
    ensure!(ports.iter().all(|port| port["protocol"].is_string()), "{ports:?}");
    // kubectl sends the selector of a PodDisruptionBudget each time.
    ensure!(find(&rendered(&helm, "podium", &[])?, "PodDisruptionBudget").is_err());
    Ok(())
}

#[tokio::test]
async fn only_several_replicas_need_a_lease() -> Result<()> {
    let Some(helm) = Helm::build().await? else { return Ok(()) };
    for (value, is_leased) in [
        ("replicas=2", true),
        ("replicas=1", false),
        ("replicas=null", false),
        ("replicas=2,persistence.enabled=true", false),
    ] {
        let objects = rendered(&helm, "podium", &["--set", value])?;
        let deployment = &find(&objects, "Deployment")?["spec"];
        let strategy = if is_leased { "RollingUpdate" } else { "Recreate" };
        ensure!(deployment["replicas"] == 1 + usize::from(is_leased), "{value}: {deployment}");
        ensure!(deployment["strategy"]["type"] == strategy, "{value}: {deployment}");
        ensure!(deployment.to_string().contains("--lease=on") == is_leased, "{value}: {deployment}");
        ensure!(find(&objects, "PodDisruptionBudget").is_ok() == is_leased, "{value}");
        for part in ["\"podium-host-shard-0\"", "podium.dev/lease-namespace", "\"leases\"],\"verbs\":[\"create\"]"] {
            let has = objects.iter().any(|object| object.to_string().contains(part));
            ensure!(has == is_leased, "{value}: {part}");
        }
    }
    for (values, is_shared) in [
        ("replicas=2,activeReplicas=all", true),
        ("replicas=2,activeReplicas=1", false),
        ("replicas=2,activeReplicas=null", false),
        ("activeReplicas=all", false),
    ] {
        let objects = rendered(&helm, "podium", &["--set", values])?;
        let has = |part: &str| objects.iter().any(|object| object.to_string().contains(part));
        ensure!(has("--active-replicas=all") == is_shared, "{values}");
        // Replicas that share the shards use their rights until the end of a rollout to one active replica.
        let is_leased = values.contains("replicas=2");
        for part in
            ["\"podium-host-shard-0\"", "\"podium-host-shard-15\"", "\"resources\":[\"leases\"],\"verbs\":[\"list\"]"]
        {
            ensure!(has(part) == is_leased, "{values}: {part}");
        }
        ensure!(!has("\"podium-host-shard-16\""), "{values}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_client_side_apply_changes_nothing() -> Result<()> {
    let Some(helm) = Helm::build().await? else { return Ok(()) };
    let Some((plane, client, _turn)) = cluster(0).await? else { return Ok(()) };
    namespace(&client, "podium").await?;
    let output = template(&helm, "podium", &["--set", "persistence.enabled=true"])?;
    let file = tempfile::NamedTempFile::new()?;
    fs::write(&file, &output.stdout)?;
    let apply = ["apply", "--filename", &file.path().to_string_lossy()];
    let kubectl = Kubectl::new(&plane);
    let first = kubectl.admin(&apply)?;
    let second = kubectl.admin(&apply)?;
    ensure!(first.lines().count() > 35 && first.lines().all(|line| line.ends_with(" created")), "{first}");
    let changed: Vec<_> = second.lines().filter(|line| !line.ends_with(" unchanged")).collect();
    ensure!(changed.is_empty(), "{changed:?}");
    Ok(())
}

/// Helm leaves the kinds to the release of their name and namespace; docs/install.md names the flag.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_of_another_name_takes_the_kinds_over_with_a_flag() -> Result<()> {
    let Some(helm) = Helm::build().await? else { return Ok(()) };
    let Some((plane, _client, _turn)) = cluster(0).await? else { return Ok(()) };
    let home = tempfile::tempdir()?;
    let run = |arguments: &[&str]| {
        let mut command = Command::new(helm.path());
        command.args(arguments).env("KUBECONFIG", plane.kubeconfig_path());
        command.env("HELM_CACHE_HOME", home.path()).env("HELM_CONFIG_HOME", home.path());
        command.output()
    };
    let chart = deploy("chart");
    let install = |name: &str, more: &[&str]| {
        // No node runs the hook's Job.
        let flags = ["--namespace", name, "--create-namespace", "--set", "policyCheck.enabled=false"];
        run(&[&["install", name, &*chart.to_string_lossy()][..], &flags, more].concat())
    };
    let done = |output: Output| {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{said}");
        Ok(said)
    };
    done(install("podium", &[])?)?;
    done(run(&["uninstall", "podium", "--namespace", "podium"])?)?;
    done(install("podium", &[])?)?;
    done(run(&["uninstall", "podium", "--namespace", "podium"])?)?;
    let refused = install("plat", &[])?;
    let said = String::from_utf8_lossy(&refused.stderr);
    ensure!(!refused.status.success() && said.contains("invalid ownership metadata"), "{said}");
    done(install("plat", &["--take-ownership"])?)?;
    let owner = ["get", "crd", "reconcileplugins.podium.dev", "--output=jsonpath={.metadata.annotations}"];
    let owner = Kubectl::new(&plane).admin(&owner)?;
    ensure!(owner.contains("\"meta.helm.sh/release-name\":\"plat\""), "{owner}");
    let page = fs::read_to_string(workspace_dir().join("docs/install.md"))?;
    ensure!(["--take-ownership", "invalid ownership metadata"].iter().all(|words| page.contains(words)));
    Ok(())
}

#[tokio::test]
async fn accounts_of_cluster_plugins_are_where_pods_status_is_bound() -> Result<()> {
    let Some(helm) = Helm::build().await? else { return Ok(()) };
    let policy = |objects: &[Value], name: &str| {
        let named =
            |object: &&Value| object["kind"] == "ValidatingAdmissionPolicy" && object["metadata"]["name"] == name;
        objects.iter().find(named).map(|policy| policy["spec"].to_string()).with_context(|| format!("no {name}"))
    };
    for (values, list) in [
        ("clusterAccountNamespaces=null", "['platform']"),
        ("clusterAccountNamespaces={team-a,team-b}", "['platform', 'team-a', 'team-b']"),
    ] {
        let objects = rendered(&helm, "platform", &["--set", &format!("admission.{values}")])?;
        let status = policy(&objects, "podium-pods-status")?;
        ensure!(status.contains(&format!("{list}.exists(home, ")), "{status}");
        let cluster = policy(&objects, "podium-plugins-cluster")?;
        ensure!(cluster.contains(&format!("variables.home in {list}")), "{cluster}");
    }
    // Where every account is bound, it may be anywhere.
    let everyone = rendered(&helm, "platform", &["--set", "admission.podsStatus.everyAccount=true"])?;
    let cluster = policy(&everyone, "podium-plugins-cluster")?;
    ensure!(!cluster.contains("variables.home in"), "{cluster}");
    Ok(())
}

/// Argo CD takes the part of the name behind the last point for a group and a kind.
#[test]
fn argo_cd_has_a_check_of_the_health_of_both_kinds() -> Result<()> {
    let file: Value = serde_saphyr::from_str(&fs::read_to_string(deploy("argocd/health.yaml"))?)?;
    let checks = file["data"].as_object().context("no data")?;
    let kinds: Vec<Value> = serde_saphyr::from_multiple(&fs::read_to_string(deploy("chart/crds.yaml"))?)?;
    // A RunReport is no part of what Argo CD deploys.
    let of_plugins = kinds.iter().filter(|kind| kind["spec"]["names"]["kind"] != "RunReport");
    let names = of_plugins.map(|kind| {
        let spec = &kind["spec"];
        let (group, kind) =
            (spec["group"].as_str().unwrap_or_default(), spec["names"]["kind"].as_str().unwrap_or_default());
        format!("resource.customizations.health.{group}_{kind}")
    });
    let names: BTreeSet<String> = names.collect();
    ensure!(checks.keys().cloned().collect::<BTreeSet<_>>() == names, "{:?}, expected {names:?}", checks.keys());
    ensure!(checks.values().all(|check| check.as_str().is_some_and(|check| check.ends_with("return health\n"))));
    Ok(())
}
