//! `--policy` of `podium-host`: plugins that it refuses, its mistakes, and the last good one.

use super::*;

const POLICY: &str = "apiVersion: podium.dev/v1alpha1\nkind: Policy\nspec:\n  \
    defaults: { limits: { writes: 20 } }\n  namespaces: { shop: { excluded: true } }\n";

#[tokio::test]
async fn a_plugin_beyond_the_policy_is_refused_and_the_others_run() {
    let fixture = Fixture::still().await;
    fixture.write("policy.yaml", POLICY);
    fixture.write("greedy.yaml", &registrar("  limits: { writes: 21 }").replace("name: registrar", "name: greedy"));
    let of_shop = registrar("").replace("Cluster", "").replace("name: registrar", "name: tidy, namespace: shop");
    fixture.write("excluded.yaml", &of_shop);
    fixture.write("registrar.yaml", &registrar(""));
    let files = ["greedy.yaml", "excluded.yaml", "registrar.yaml"];
    let policy = fixture.path("policy.yaml").display().to_string();
    let ended = fixture.run_with_plugins(&[&files[..], &["--policy", &policy, "--strict"]].concat()).await;
    let mut errors = ended.errors();
    // Components are loaded side by side, and either may be refused first.
    errors.sort_by_key(|error| error.contains("file=excluded.yaml"));
    let [greedy, excluded] = errors[..] else { unreachable!("{}", ended.stderr) };
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    let named = [
        r#"greedy.yaml plugin=greedy retry=false error="the policy does not permit it: spec.limits.writes is 21"#,
        "plugins of the cluster may have at most 20",
        &format!("({policy}: spec.defaults.limits.writes); set it to at most 20"),
    ];
    assert!(named.iter().all(|named| greedy.contains(named)), "{greedy}");
    assert!(
        excluded.contains("plugins of namespace shop are excluded") && excluded.contains("namespaces.shop.excluded")
    );

    let host = fixture.spawn(&files, &["--policy", &policy]).await;
    embedded::create_pod(&fixture.cluster, "cart-0", "cart").unwrap();
    fixture.labelled("cart-0").await;
    let metrics = host.get("/metrics").await.unwrap();
    let ready = host.get("/readyz?verbose").await.unwrap();
    for (name, runs) in [("registrar", 1), ("greedy", 0), ("shop/tidy", 0)] {
        let line = format!(r#"podium_plugin_ready{{controller="{name}"}} {runs}"#);
        assert!(metrics.contains(&line), "{line} is not in {metrics}");
        let line =
            if runs == 1 { format!("[+]plugin/{name} ok") } else { format!("[-]plugin/{name} failed: refused\n") };
        assert!(ready.contains(&line), "{line} is not in {ready}");
    }
    assert!(host.terminate().await.unwrap().success());
}

#[tokio::test]
async fn require_service_account_refuses_a_plugin_without_one() {
    let fixture = Fixture::still().await;
    fixture.write("registrar.yaml", &registrar(""));
    let ended = fixture.run_with_plugins(&["registrar.yaml", "--require-service-account"]).await;
    let [error] = ended.errors()[..] else { unreachable!("{}", ended.stderr) };
    assert_eq!(ended.code, Some(2), "{}", ended.stderr);
    let named = ["plugin=registrar", "retry=false", "spec.serviceAccountName is missing", "--require-service-account"];
    assert!(named.iter().all(|named| error.contains(named)), "{error}");
}

#[tokio::test]
async fn an_invalid_policy_ends_the_host_with_all_its_mistakes() {
    let fixture = Fixture::still().await;
    fixture.write("registrar.yaml", &registrar(""));
    fixture.write("broken.yaml", &POLICY.replace("writes: 20", "writes: many, reads: 1").replace("true", "yes please"));
    for (file, mistakes) in [
        ("nowhere.yaml", &[r#"flag="--policy" file=nowhere.yaml error="cannot be read: "#][..]),
        (
            "registrar.yaml",
            &[r#"field="metadata" error="is not a known field"#, r#"field="kind" error="must be Policy"#],
        ),
        (
            "broken.yaml",
            &[
                r#"limits.reads" error="is not"#,
                r#"writes" error="must be a whole"#,
                r#"excluded" error="must be true or"#,
            ],
        ),
    ] {
        let ended = fixture.run_with_plugins(&["registrar.yaml", "--policy", file]).await;
        let errors = ended.errors();
        assert_eq!((ended.code, errors.len() >= mistakes.len()), (Some(2), true), "{}", ended.stderr);
        for mistake in mistakes {
            assert!(errors.iter().any(|error| error.contains(mistake)), "{mistake}: {}", ended.stderr);
        }
    }
}

#[tokio::test]
async fn a_start_with_a_mistake_in_the_policy_has_the_last_good_one() {
    let fixture = Fixture::still().await;
    fixture.write("policy.yaml", POLICY);
    fixture.write("registrar.yaml", &registrar(""));
    fixture.write("greedy.yaml", &registrar("  limits: { writes: 21 }").replace("name: registrar", "name: greedy"));
    let [policy, state] = ["policy.yaml", "state"].map(|name| fixture.path(name).display().to_string());
    let flags = ["--policy", &policy, "--state-dir", &state];
    let files = ["registrar.yaml", "greedy.yaml"];
    let refused = async |expected: u8| {
        let host = fixture.spawn(&files, &flags).await;
        until("the policy on the disk", WITHIN, async || {
            ensure!(fixture.path("state").join("policy.last").exists(), "not stored");
            Ok(())
        })
        .await
        .unwrap();
        let metrics = host.get("/metrics").await.unwrap();
        for line in [
            &format!("podium_policy_refused {expected}"),
            r#"podium_plugin_ready{controller="registrar"} 1"#,
            r#"podium_plugin_ready{controller="greedy"} 0"#,
        ] {
            assert!(metrics.contains(line), "{line} is not in {metrics}");
        }
        assert!(host.terminate().await.unwrap().success());
    };
    refused(0).await;
    fixture.write("policy.yaml", &POLICY.replace("writes: 20", "writes: many"));
    refused(1).await;
}
