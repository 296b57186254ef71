//! The guarantees on which a plugin may rely, tested with the fake host.

mod support;

use std::time::Duration;

use podium_sdk::{
    CallError, Condition, ConditionStatus, Error, Event, ObjectOwner, ObjectRef, Outcome, PodKey, Request, Result,
    Timestamp, Value, WriteResult, json, log, pods, state,
    testing::{Host, NOW, Write, pod, pod_from_json},
    writes,
};

use support::{LABELS_ONLY, run};

#[test]
fn reading_an_ungranted_section_is_an_error() {
    let mut host = Host::with_pods([pod("shop", "cart-0").label("app", "cart")]).configured_by(LABELS_ONLY);
    let run = run(&mut host, |request| {
        let pod = request.pod().ok_or_else(|| Error::terminal("gone"))?;
        assert_eq!(pod.label("app")?, Some("cart"));
        assert!(!pod.is_terminating()?);
        pod.annotation("note")?;
        Ok(Outcome::settled())
    });
    let error = run.result().as_ref().unwrap_err();
    assert!(error.is_terminal());
    assert_eq!(error.call_error(), Some(&CallError::NotGranted));
    assert!(error.message().contains("annotations"), "{error}");
}

#[test]
fn a_search_by_an_ungranted_section_is_an_error() {
    let mut host = Host::with_pods([pod("shop", "cart-0").label("app", "cart").node("n1")]).configured_by(LABELS_ONLY);
    let run = run(&mut host, |_| {
        assert_eq!(pods::find().in_namespace("shop").label("app", "cart").count()?, 1);
        let refused = [pods::find().on_node("n1"), pods::find().owned_by("u"), pods::find().in_phase("Running")];
        for query in refused {
            for error in [query.clone().count().unwrap_err(), query.into_iter().next().unwrap().unwrap_err()] {
                assert_eq!(error.call_error(), Some(&CallError::NotGranted));
            }
        }
        Err(Error::terminal("searched"))
    });
    let error = run.result().as_ref().unwrap_err();
    assert_eq!(error.message(), "searched; the search needs spec.grants.read.pods.sections: [status]");
}

#[test]
fn an_ungranted_write_fails_at_the_call_and_names_the_grant() {
    let mut host = Host::with_pods([pod("shop", "cart-0")]).configured_by(LABELS_ONLY);
    let run = run(&mut host, |request| {
        let pod = request.pod().ok_or_else(|| Error::terminal("gone"))?;
        pod.set_label("team", "web")?;
        pod.set_label("shop.example/tier", "1")?;
        pod.delete()?;
        Ok(Outcome::settled())
    });
    let error = run.result().as_ref().unwrap_err();
    assert!(error.message().contains("spec.grants.write.delete"), "{error}");
    assert_eq!(run.writes(), []);
    assert!(host.pod("shop", "cart-0").unwrap().labels.is_empty(), "a failure drops the staged writes");
}

#[test]
fn a_namespaced_plugin_cannot_see_or_write_another_namespace() {
    let mut host = Host::with_pods([pod("shop", "cart-0"), pod("bank", "vault-0")]).configured_by(LABELS_ONLY);
    let run = run(&mut host, |_| {
        assert!(pods::get("bank", "vault-0")?.is_none());
        assert_eq!(pods::find().count()?, 1);
        assert_eq!(pods::find().in_namespace("bank").into_iter().count(), 0);
        writes::set_label(&PodKey::new("bank", "vault-0", "uid-bank-vault-0"), "team", "mine")?;
        Ok(Outcome::settled())
    });
    let error = run.result().as_ref().unwrap_err();
    assert_eq!(error.call_error(), Some(&CallError::NotGranted));
    assert!(error.message().contains("the Pod bank/vault-0 is outside of the namespace shop"), "{error}");
    assert!(!error.message().contains("spec.grants"), "the grant is there: {error}");
}

/// Returns the message of a call's panic.
fn panic_of(call: impl FnOnce()) -> String {
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).err();
    panic.and_then(|panic| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

#[test]
fn a_run_on_an_unknown_pod_panics_with_the_known_names() {
    let settled: fn(&Request) -> Result<Outcome> = |_| Ok(Outcome::settled());
    let mut host = Host::with_pods([pod("shop", "cart-0"), pod("shop", "cart-1")]);
    host.remove_pod("shop", "cart-1");
    let panic = panic_of(|| drop(host.reconcile(settled, "shop", "cart-O")));
    assert!(panic.contains("no Pod shop/cart-O. Pods: shop/cart-0; removed: shop/cart-1"), "{panic}");
    let panic = panic_of(|| host.remove_pod("shop", "cart-2"));
    assert!(panic.contains("no Pod shop/cart-2"), "{panic}");
    host.reconcile(settled, "shop", "cart-1").assert_quiet();
}

#[test]
fn a_run_on_a_pod_of_another_namespace_panics() {
    let mut host = Host::with_pods([pod("shop", "cart-0"), pod("bank", "vault-0")]).configured_by(LABELS_ONLY);
    let panic = panic_of(|| drop(host.reconcile(|_| Ok(Outcome::settled()), "bank", "vault-0")));
    assert!(panic.contains("bank/vault-0 is not in the namespace shop"), "{panic}");
}

#[test]
fn an_invalid_configuration_panics_with_every_wrong_field() {
    let yaml = "
apiVersion: podium.dev/v1alpha1
kind: ReconcilePlugin
metadata: { name: p, namespace: shop }
spce: {}
spec:
  source: { file: p.wasm }
  wach: { sections: [labels] }
  watch: { sections: [status] }
  grants:
    read: { pods: { sections: [labels] } }
  write: { labels: ['*'] }
";
    let panic = panic_of(|| drop(Host::with_pods([pod("shop", "cart-0")]).configured_by(yaml)));
    for part in [
        "spce: is not a known field",
        "spec.wach: is not a known field",
        "spec.write: is not a known field",
        "spec.watch.sections: status cannot be watched without being granted",
    ] {
        assert!(panic.contains(part), "{part} in {panic}");
    }
    let wild = LABELS_ONLY.replace("'shop.example/*'", "'*'");
    let panic = panic_of(|| drop(Host::with_pods([pod("shop", "cart-0")]).configured_by(&wild)));
    assert!(panic.contains("spec.grants.write.labels[1]: \"*\" may have a '*' only after a domain"), "{panic}");
}

#[test]
fn a_deletion_after_a_restart_comes_without_the_last_state() {
    let mut host = Host::with_pods([pod("shop", "cart-0")]);
    host.remove_pod("shop", "cart-0");
    host.restart();
    let reconcile: fn(&Request) -> Result<Outcome> = |request| {
        assert!(request.pod().is_none() && request.deleted().is_none());
        assert_eq!(request.key().uid, "uid-shop-cart-0");
        Ok(Outcome::settled())
    };
    run(&mut host, reconcile).assert_quiet();
}

#[test]
fn an_event_with_an_unchanged_write_is_not_sent() {
    let beside: fn(&Request) -> Result<Outcome> = |request| {
        let pod = request.pod().ok_or_else(|| Error::terminal("gone"))?;
        pod.set_label("team", "web")?;
        pod.emit(Event::normal("Labelled", "the team is web"))?;
        Ok(Outcome::settled())
    };
    let mut host = Host::with_pods([pod("shop", "cart-0")]);
    run(&mut host, beside).assert_events(["Labelled"]);
    run(&mut host, beside).assert_quiet();
    let already = pod("shop", "cart-0").label("team", "web");
    run(&mut Host::with_pods([already]), beside).assert_quiet();

    let alone: fn(&Request) -> Result<Outcome> = |request| {
        request.pod().ok_or_else(|| Error::terminal("gone"))?.emit(Event::normal("Seen", "a Pod"))?;
        Ok(Outcome::settled())
    };
    run(&mut host, alone).assert_events(["Seen"]);
    run(&mut host, alone).assert_quiet();
    host.restart();
    run(&mut host, alone).assert_quiet();
    host.advance(Duration::from_secs(360));
    run(&mut host, alone).assert_events(["Seen"]);
}

#[test]
fn an_event_about_an_unknown_pod_is_dropped_as_by_the_host() {
    let mut host = Host::with_pods([pod("shop", "cart-0")]);
    run(&mut host, |_| {
        podium_sdk::events::emit(&PodKey::new("shop", "other", "uid"), Event::normal("Seen", "a Pod"))?;
        Ok(Outcome::settled())
    })
    .assert_quiet();
}

#[test]
fn readiness_follows_the_condition_and_durations_subtract() {
    let ready = Condition::new("Ready", ConditionStatus::True);
    let mut host = Host::with_pods([pod("shop", "cart-0").condition(ready), pod("shop", "cart-1")]);
    run(&mut host, |request| {
        assert!(request.pod().ok_or_else(|| Error::terminal("gone"))?.is_ready()?);
        assert!(!pods::get("shop", "cart-1")?.ok_or_else(|| Error::terminal("gone"))?.is_ready()?);
        assert_eq!(NOW - Duration::from_millis(1) + Duration::from_millis(1), NOW);
        assert_eq!(Timestamp(i64::MIN) - Duration::MAX, Timestamp(i64::MIN));
        Ok(Outcome::settled())
    })
    .assert_quiet();
}

#[test]
fn the_budget_of_writes_comes_from_the_configuration() {
    let mut host = Host::with_pods([pod("shop", "cart-0")]).configured_by(LABELS_ONLY);
    let run = run(&mut host, |request| {
        for value in ["a", "b", "c"] {
            writes::set_label(request.key(), "team", value)?;
        }
        Ok(Outcome::settled())
    });
    assert_eq!(run.result().as_ref().unwrap_err().call_error(), Some(&CallError::OverBudget));
}

#[test]
fn a_wrong_config_is_terminal_and_names_its_field() {
    #[derive(Debug, serde::Deserialize)]
    struct Config {
        threshold: u8,
    }
    fn reconcile(request: &Request) -> Result<Outcome> {
        let config: Config = request.config()?;
        assert_eq!(config.threshold, 5);
        Ok(Outcome::settled())
    }
    let host = Host::with_pods([pod("shop", "cart-0")]).configured_by(LABELS_ONLY);
    let mut host = host;
    run(&mut host, reconcile).assert_quiet();
    let mut host = host.config(json!({ "threshold": "many" }));
    let failed = run(&mut host, reconcile);
    let error = failed.result().as_ref().unwrap_err();
    assert!(error.is_terminal());
    assert!(error.message().starts_with("spec.config.threshold: "), "{error}");
}

#[test]
fn staged_writes_are_not_seen_until_they_are_committed() {
    let mut host = Host::with_pods([pod("shop", "cart-0")]);
    run(&mut host, |request| {
        let pod = request.pod().ok_or_else(|| Error::terminal("gone"))?;
        let first = pod.set_label("team", "web")?;
        let second = pod.set_label("team", "web")?;
        let read = || pods::get("shop", "cart-0")?.ok_or_else(|| Error::terminal("gone"));
        assert_eq!(read()?.label("team")?, None);
        let reports = writes::commit()?;
        let results: Vec<_> = reports.into_iter().map(|report| (report.id, report.result)).collect();
        assert_eq!(results, [(first, WriteResult::Applied), (second, WriteResult::Unchanged)]);
        assert_eq!(read()?.label("team")?, Some("web"));
        Ok(Outcome::settled())
    })
    .assert_writes([Write::set_label("shop/cart-0", "team", "web")]);
}

#[test]
fn a_failed_run_keeps_committed_writes_and_drops_staged_ones() {
    let mut host = Host::with_pods([pod("shop", "cart-0")]);
    let run = run(&mut host, |request| {
        writes::set_label(request.key(), "a", "1")?;
        writes::commit()?;
        writes::set_label(request.key(), "b", "1")?;
        Err(Error::retry("later"))
    });
    assert_eq!(run.writes(), [Write::set_label("shop/cart-0", "a", "1")]);
}

#[test]
fn a_write_to_another_incarnation_is_gone_and_changes_nothing() {
    let mut host = Host::with_pods([pod("shop", "cart-0").uid("new")]);
    let run = run(&mut host, |_| {
        writes::delete(&PodKey::new("shop", "cart-0", "old"), None)?;
        Ok(Outcome::settled())
    });
    assert_eq!(run.reports()[0].result, WriteResult::Gone);
    assert!(host.pod("shop", "cart-0").is_some());
}

#[test]
fn an_unsettled_write_is_reported_to_the_next_attempt_only() {
    fn reconcile(request: &Request) -> Result<Outcome> {
        log::info("run", &[("attempt", &request.attempt()), ("unsettled", &request.unsettled_writes().len())]);
        writes::set_label(request.key(), "team", "web")?;
        Ok(Outcome::settled())
    }
    let mut host = Host::with_pods([pod("shop", "cart-0")]);
    let seen = |run: &podium_sdk::testing::Run| {
        run.logs()[0].fields.iter().map(|(_, value)| value.clone()).collect::<Vec<_>>()
    };
    host.answer_writes(Some(WriteResult::Conflict));
    assert_eq!(seen(&run(&mut host, reconcile)), ["1", "0"]);
    host.answer_writes(None);
    assert_eq!(seen(&run(&mut host, reconcile)), ["2", "1"]);
    assert_eq!(seen(&run(&mut host, reconcile)), ["1", "0"]);
}

#[test]
fn a_deletion_is_delivered_with_the_last_known_state() {
    let mut host = Host::with_pods([pod("shop", "cart-0").label("app", "cart")]);
    host.remove_pod("shop", "cart-0");
    let reconcile: fn(&Request) -> Result<Outcome> = |request| {
        assert!(request.pod().is_none());
        assert_eq!(request.key().uid, "uid-shop-cart-0");
        assert_eq!(request.deleted().map(|pod| pod.label("app")).transpose()?, Some(Some("cart")));
        Ok(Outcome::settled())
    };
    run(&mut host, reconcile).assert_quiet();
}

#[test]
fn queries_turn_pages_in_order_and_hold_every_requirement() {
    let member = |namespace: &str, name: &str| pod(namespace, name).owned_by("ReplicaSet", "web").label("app", "web");
    let mut host = Host::with_pods([
        member("shop", "e").node("n1"),
        member("shop", "d").label("tier", "gold").node("n2"),
        member("shop", "c"),
        member("bank", "z"),
        member("shop", "b").phase("Failed"),
        member("shop", "a").label("tier", "tin").phase("Running"),
        pod("shop", "cart-0"),
    ]);
    run(&mut host, |_| {
        let names =
            |query: pods::Query| query.into_iter().map(|pod| Ok(pod?.name().to_owned())).collect::<Result<Vec<_>>>();
        let web = || pods::find().label("app", "web");
        assert_eq!(names(web())?, ["z", "a", "b", "c", "d", "e"]);
        assert_eq!(names(web().in_namespace("shop"))?, ["a", "b", "c", "d", "e"]);
        assert_eq!(names(pods::find().owned_by("uid-ReplicaSet-web").on_node("n2"))?, ["d"]);
        assert_eq!(names(web().label_exists("tier"))?, ["a", "d"]);
        assert_eq!(names(web().label_in("tier", ["tin", "iron"]))?, ["a"]);
        assert_eq!(names(web().in_namespace("shop").label_not_in("tier", ["tin"]))?, ["b", "c", "d", "e"]);
        assert_eq!(names(pods::find().label_absent("app"))?, ["cart-0"]);
        assert_eq!(names(web().in_phase("Failed"))?, ["b"]);
        assert_eq!(web().count()?, 6);
        Ok(Outcome::settled())
    })
    .assert_quiet();
}

#[test]
fn the_full_object_is_the_pods_json_with_later_changes() {
    const POD: &str = r#"{
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"namespace": "shop", "name": "cart-0", "uid": "u1", "resourceVersion": "9", "managedFields": [{}],
            "labels": {"app": "cart", "old": "yes"}},
        "spec": {"dnsPolicy": "Default", "containers": [{"name": "c", "image": "nginx", "later": 1}]},
        "status": {"conditions": [{"type": "Ready", "status": "True", "lastProbeTime": null}]}
    }"#;
    let mut host = Host::with_pods([pod_from_json(POD), pod("shop", "plain").label("app", "web")]);
    let now = host.reconcile(
        |request| {
            let pod = request.pod().ok_or_else(|| Error::terminal("gone"))?;
            let full = pod.full_as::<Value>()?;
            assert_eq!(full["spec"]["dnsPolicy"], "Default");
            assert!(!pod.full()?.contains("managedFields"));
            pod.set_label("team", "gold")?;
            pod.remove_label("old")?;
            pod.set_condition(&Condition::new("shop.example/Seen", ConditionStatus::True))?;
            writes::commit()?;
            let after = pods::get("shop", "cart-0")?.ok_or_else(|| Error::terminal("gone"))?.full_as::<Value>()?;
            assert_eq!(after["metadata"]["labels"], json!({"app": "cart", "team": "gold"}));
            assert_eq!(after["spec"], full["spec"], "with what no other section holds");
            assert_eq!(after["status"]["conditions"][0], full["status"]["conditions"][0]);
            assert_eq!(after["status"]["conditions"][1]["type"], "shop.example/Seen");
            let plain = pods::get("shop", "plain")?.ok_or_else(|| Error::terminal("gone"))?;
            assert_eq!(plain.full_as::<Value>()?["metadata"]["labels"]["app"], "web", "made from nothing");
            let wrong = plain.full_as::<Vec<String>>().unwrap_err();
            assert!(wrong.is_terminal() && wrong.message().starts_with("shop/plain: "), "{wrong}");
            Ok(Outcome::settled())
        },
        "shop",
        "cart-0",
    );
    assert!(now.result().is_ok(), "{:?}", now.result());

    let mut host = Host::with_pods([pod_from_json(POD)]).configured_by(LABELS_ONLY);
    let blind = run(&mut host, |request| {
        request.pod().ok_or_else(|| Error::terminal("gone"))?.full()?;
        Ok(Outcome::settled())
    });
    assert!(blind.result().as_ref().unwrap_err().message().contains("section full"), "{:?}", blind.result());
}

#[test]
fn state_survives_runs_and_is_lost_with_the_host() {
    #[derive(serde::Serialize, serde::Deserialize, Default)]
    struct Memo {
        runs: u32,
    }
    fn reconcile(_: &Request) -> Result<Outcome> {
        let memo = state::update::<Memo>("memo", |memo| Memo { runs: memo.unwrap_or_default().runs + 1 })?;
        log::info("runs", &[("n", &memo.runs)]);
        Ok(Outcome::settled())
    }
    let mut host = Host::with_pods([pod("shop", "cart-0")]);
    let count = |host: &mut Host| run(host, reconcile).logs()[0].fields[0].1.clone();
    assert_eq!((count(&mut host), count(&mut host)), ("1".into(), "2".into()));
    host.restart();
    assert_eq!(count(&mut host), "1");
    run(&mut host, |_| {
        let entry = state::entry::<Memo>("memo")?.ok_or_else(|| Error::terminal("absent"))?;
        assert!(state::put_if("memo", &Memo { runs: 7 }, entry.version)?);
        assert!(!state::put_if("memo", &Memo { runs: 8 }, entry.version)?, "the version has moved on");
        assert!(!state::put_if("memo", &Memo { runs: 9 }, 0)?, "the key is not absent");
        assert!(!state::remove_if("memo", entry.version)?);
        assert_eq!(state::get::<Memo>("memo")?.map(|memo| memo.runs), Some(7));
        state::remove("memo")?;
        assert!(state::get::<Memo>("memo")?.is_none());
        Ok(Outcome::settled())
    })
    .assert_quiet();
}

#[test]
fn state_of_another_type_is_lost_and_an_added_field_keeps_it() {
    #[derive(serde::Serialize)]
    struct Old {
        runs: u32,
        since: i64,
    }
    /// A type whose values have as many bytes as the old one's in an encoding without names.
    #[derive(serde::Deserialize)]
    struct Other {
        #[serde(rename = "until")]
        _until: i64,
        #[serde(rename = "failures")]
        _failures: u32,
    }
    #[derive(serde::Deserialize)]
    struct Grown {
        #[serde(default)]
        node: Option<String>,
        runs: u32,
    }
    #[derive(serde::Serialize, PartialEq, Eq, PartialOrd, Ord)]
    struct NoKey(Vec<u8>);
    let mut host = Host::with_pods([pod("shop", "cart-0")]);
    run(&mut host, |_| {
        state::put("memo", &Old { runs: 7, since: 1 })?;
        assert!(state::get::<Other>("memo")?.is_none());
        assert!(state::entry::<(String, String)>("memo")?.is_none());
        assert_eq!(state::get::<Grown>("memo")?.map(|memo| (memo.node, memo.runs)), Some((None, 7)));
        assert_eq!(state::update::<u32>("memo", |memo| memo.unwrap_or(1))?, 1, "a value that is no number is replaced");
        let unfit = state::put("memo", &std::collections::BTreeMap::from([(NoKey(vec![]), 1)]));
        assert!(unfit.unwrap_err().is_terminal());
        assert_eq!(state::get("memo")?, Some(1));
        Ok(Outcome::settled())
    })
    .assert_quiet();
}

#[test]
fn equal_conditions_and_objects_cost_no_write() {
    fn reconcile(request: &Request) -> Result<Outcome> {
        let pod = request.pod().ok_or_else(|| Error::terminal("gone"))?;
        let condition = Condition::new("shop.example/Checked", ConditionStatus::True).because("Fine", "all is well");
        if !pod.has_condition(&condition)? {
            pod.set_condition(&condition)?;
            pod.emit(Event::normal("Checked", "all is well"))?;
        }
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "namespace": "shop", "name": "summary" }, "data": { "checked": "yes" },
        });
        writes::apply_object(&object, Some(ObjectOwner::Pod(pod.key())))?;
        Ok(Outcome::requeue_after(Duration::from_secs(60)))
    }
    let mut host = Host::with_pods([pod("shop", "cart-0")]);
    let first = run(&mut host, reconcile);
    assert_eq!(first.writes().len(), 2);
    first.assert_events(["Checked"]).assert_outcome(Outcome::requeue_after(Duration::from_secs(60)));
    let object = host.object(&ObjectRef::new("v1", "ConfigMap", "shop", "summary")).unwrap();
    assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "uid-shop-cart-0");
    let condition = host.pod("shop", "cart-0").unwrap().status.conditions[0].clone();
    assert_eq!(condition.last_transition_time, Some(NOW));
    host.advance(Duration::from_secs(60));
    run(&mut host, reconcile).assert_quiet();
}

#[test]
fn an_object_with_a_missing_or_terminating_owner_is_gone() {
    let mut host = Host::with_pods([pod("shop", "cart-0"), pod("shop", "cart-1").terminating(NOW)]);
    let run = run(&mut host, |_| {
        let object = |name: &str| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "namespace": "shop", "name": name },
            })
        };
        for owner in ["cart-1", "cart-2"] {
            let key = PodKey::new("shop", owner, format!("uid-shop-{owner}"));
            writes::apply_object(&object(owner), Some(ObjectOwner::Pod(&key)))?;
            writes::apply_object(&object(owner), Some(ObjectOwner::Workload(&key)))?;
        }
        Ok(Outcome::settled())
    });
    assert!(run.reports().iter().all(|report| report.result == WriteResult::Gone), "{:?}", run.reports());
    assert!(host.object(&ObjectRef::new("v1", "ConfigMap", "shop", "cart-1")).is_none());
}

#[test]
fn the_workloads_object_has_one_owner_for_all_pods_of_a_rollout() {
    fn reconcile(request: &Request) -> Result<Outcome> {
        let object = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "namespace": "shop", "name": "summary" },
        });
        writes::apply_object(&object, Some(ObjectOwner::Workload(request.key())))?;
        Ok(Outcome::settled())
    }
    let owned = |name: &str, replica_set: &str| pod("shop", name).owned_by("ReplicaSet", replica_set);
    let pods = [owned("old", "cart-1"), owned("new", "cart-2"), pod("shop", "bare"), owned("top", "free")];
    let mut host = Host::with_pods(pods.into_iter().chain([pod("shop", "mirror").owned_by("Node", "n")]))
        .controlled("ReplicaSet", "cart-1", "Deployment", "cart")
        .controlled("ReplicaSet", "cart-2", "Deployment", "cart");
    let first = host.reconcile(reconcile, "shop", "old");
    assert_eq!(first.writes().len(), 1);
    let owner = |host: &Host| {
        let object = host.object(&ObjectRef::new("v1", "ConfigMap", "shop", "summary")).unwrap();
        object["metadata"]["ownerReferences"][0]["uid"].clone()
    };
    assert_eq!(owner(&host), "uid-Deployment-cart");
    host.reconcile(reconcile, "shop", "new").assert_quiet();
    for (name, uid) in [("bare", "uid-shop-bare"), ("top", "uid-ReplicaSet-free"), ("mirror", "uid-shop-mirror")] {
        assert_eq!(host.reconcile(reconcile, "shop", name).reports()[0].result, WriteResult::Applied);
        assert_eq!(owner(&host), uid);
    }
}

#[test]
fn a_finalizer_holds_a_deleted_pod_until_it_is_removed() {
    let mut host = Host::with_pods([pod("shop", "cart-0").finalizer("shop.example/hold")]);
    let delete: fn(&Request) -> Result<Outcome> = |request| {
        writes::delete(request.key(), None)?;
        Ok(Outcome::settled())
    };
    run(&mut host, delete).assert_writes([Write::delete("shop/cart-0")]);
    run(&mut host, delete).assert_quiet();
    let release: fn(&Request) -> Result<Outcome> = |request| {
        assert!(request.pod().is_some_and(|pod| pod.is_terminating() == Ok(true)));
        writes::add_finalizer(request.key(), "shop.example/more")?;
        let reports = writes::commit()?;
        assert!(matches!(reports[0].result, WriteResult::Invalid(_)), "{reports:?}");
        writes::remove_finalizer(request.key(), "shop.example/hold")?;
        Ok(Outcome::settled())
    };
    run(&mut host, release).assert_outcome(Outcome::settled());
    assert!(host.pod("shop", "cart-0").is_none());
}

#[test]
fn malformed_writes_are_refused_at_the_call() {
    let mut host = Host::with_pods([pod("shop", "cart-0")]);
    run(&mut host, |request| {
        let pod = request.pod().ok_or_else(|| Error::terminal("gone"))?;
        assert!(pod.set_label("team", &"x".repeat(64)).is_err());
        assert!(pod.set_label("team", "-x").is_err());
        assert!(pod.set_label("Team.Example/x", "x").is_err());
        assert!(pod.set_annotation("a/b/c", "x").is_err());
        assert!(pod.emit(Event::normal("two words", "x")).is_err());
        assert!(pod.emit(Event::normal("Word", "x".repeat(1025))).is_err());
        assert!(pod.emit(Event::normal("Word", "")).is_err());
        assert!(pod.add_finalizer("no-domain").is_err());
        assert!(pod.set_annotation("note", &"x".repeat(65_537)).is_err());
        assert!(pod.set_condition(&Condition::new("Ready", ConditionStatus::True)).is_err(), "the kubelet's");
        assert!(state::put("key", &"x".repeat(65_536)).is_err());
        Ok(Outcome::settled())
    })
    .assert_quiet();
}

#[test]
fn a_host_call_outside_of_a_run_is_unavailable() {
    assert!(matches!(pods::find().count().unwrap_err().call_error(), Some(CallError::Unavailable(_))));
}
