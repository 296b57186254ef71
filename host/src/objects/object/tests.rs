use super::*;

/// Returns a namespaced object with this spec.
pub(crate) fn object(name: &str, generation: i64, spec: &Value) -> Object {
    let metadata = json!({
        "name": name, "namespace": "shop", "uid": format!("u-{name}"), "generation": generation,
        "resourceVersion": "7",
    });
    Object::read(Kind::Namespaced, &json!({ "metadata": metadata, "spec": spec }).to_string()).unwrap()
}

/// A spec that has no mistake.
pub(crate) fn spec() -> Value {
    json!({
        "source": { "configMap": { "name": "tidy", "key": "plugin.wasm", "sha256": "0".repeat(64) } },
        "grants": { "write": { "delete": true } },
    })
}

#[test]
fn an_object_is_read_with_its_plugin_or_with_its_mistakes() {
    let read = object("tidy", 3, &spec());
    let plugin = read.plugin.unwrap();
    assert_eq!((plugin.id.to_string().as_str(), read.generation, plugin.grants.write.delete), ("shop/tidy", 3, true));
    let problems = object("tidy", 1, &json!({ "limits": { "writes": "x" } })).plugin.unwrap_err();
    assert!(problems.iter().any(|problem| problem.field == "spec.limits.writes"), "{problems:?}");
}

#[test]
fn the_finalizers_of_a_plugin_are_known_whatever_mistakes_its_spec_has() {
    let finalizers = |change: Value| {
        let mut spec = spec();
        spec["serviceAccountName"] = "own".into();
        spec["grants"]["write"] = json!({ "finalizers": ["shop.example/a", "b.shop.example/*"] });
        for (field, value) in change.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let plugin = object("tidy", 1, &spec).of_finalizers()?;
        assert_eq!(plugin.impersonate.as_deref(), Some("system:serviceaccount:shop:own"));
        Some(plugin.grants.write.finalizers.iter().map(|pattern| pattern.0.clone()).collect::<Vec<_>>())
    };
    let both = Some(vec!["shop.example/a".to_owned(), "b.shop.example/*".to_owned()]);
    assert_eq!(finalizers(json!({})), both);
    assert_eq!(finalizers(json!({ "watch": 7, "limits": "none", "stateGroup": [] })), both);
    // One that earlier versions granted, and ones that none did.
    let odd = ["a.k8s.io/hold", "a", "*", "a*", "shop.example/**", "shop.example/*b", "*/a", "a b/c"];
    let write = json!({ "write": { "finalizers": odd, "labels": 7 } });
    assert_eq!(finalizers(json!({ "grants": write })), Some(vec!["a.k8s.io/hold".to_owned()]));
    assert_eq!(finalizers(json!({ "grants": { "write": { "finalizers": "a" } } })), None);
    assert_eq!(finalizers(json!({ "grants": 7 })), None);
    assert_eq!(object("tidy", 1, &json!({ "serviceAccountName": 7 })).of_finalizers(), None);
    assert_eq!(finalizers(json!({ "finalizers": "soon" })), both);
    let large = json!({ "a": "x".repeat(MAX_BYTES) });
    assert_eq!(finalizers(json!({ "config": large })), both);
}

#[test]
fn few_finalizers_are_known_of_a_spec_that_was_forgotten() {
    let forgotten = |count: usize, config: Value| {
        let mut spec = spec();
        let names: Vec<_> = (0..count).map(|at| format!("shop.example/hold-{at:03}")).collect();
        spec["grants"]["write"] = json!({ "finalizers": names });
        (spec["config"], spec["finalizers"]) = (config, json!({ "releaseAfterSeconds": 90 }));
        let mut object = object("tidy", 1, &spec);
        (0..3).for_each(|_| object.forget_spec());
        assert!(object.spec.text().len() <= 4);
        object.of_finalizers()
    };
    for config in [json!({}), json!(7), json!({ "a": "x".repeat(MAX_BYTES) })] {
        let plugin = forgotten(3, config.clone()).unwrap();
        assert_eq!(plugin.grants.write.finalizers.len(), 3);
        assert_eq!((plugin.release_after, plugin.config.len()), (Some(Duration::from_secs(90)), 2));
        assert_eq!(forgotten(200, config), None);
    }
}

#[test]
fn a_component_in_a_file_of_the_host_is_refused() {
    let problems = object("tidy", 1, &json!({ "source": { "file": "/etc/passwd" } })).plugin.unwrap_err();
    assert_eq!(problems[0].field, "spec.source.file");
}

#[test]
fn a_spec_that_nests_too_deep_is_a_mistake_of_its_object_alone() {
    let deep = format!("{}1{}", "[".repeat(5_000), "]".repeat(5_000));
    let json =
        format!(r#"{{"metadata":{{"name":"a","namespace":"shop","uid":"u"}},"spec":{{"config":{{"a":{deep}}}}}}}"#);
    let read = Object::read(Kind::Namespaced, &json).unwrap();
    assert_eq!(read.plugin.unwrap_err()[0].field, "spec");
}

#[test]
fn a_spec_or_status_of_many_values_is_not_kept_as_values() {
    let many = vec![json!({}); MAX_BYTES / 3];
    let mut large = spec();
    large["config"] = json!({ "a": many });
    let read = object("tidy", 1, &large);
    let problem = &read.plugin.unwrap_err()[0];
    assert_eq!(problem.field, "spec");
    assert!(problem.message.contains("at most 262144"), "{}", problem.message);
    assert_eq!(read.spec.value(), Value::Null);
    let metadata = json!({ "name": "tidy", "namespace": "shop", "uid": "u" });
    let json = json!({ "metadata": metadata, "spec": spec(), "status": { "a": many } }).to_string();
    let read = Object::read(Kind::Namespaced, &json).unwrap();
    assert_eq!(*read.status, Value::Null);
    assert_eq!(read.spec.value(), spec());
    assert!(read.spec.0.len() < 2 * spec().to_string().len());
}

#[test]
fn an_object_without_a_usable_identity_is_an_error() {
    for odd in [
        "",
        "null",
        "[]",
        "{}",
        r#"{"metadata":7}"#,
        r#"{"metadata":{"name":"a","namespace":"shop"}}"#,
        r#"{"metadata":{"name":"../a","namespace":"shop","uid":"u"}}"#,
        r#"{"metadata":{"name":"a","namespace":"a/b","uid":"u"}}"#,
        r#"{"metadata":{"name":"a","uid":"u"}}"#,
    ] {
        assert!(Object::read(Kind::Namespaced, odd).is_err(), "{odd}");
    }
}

#[test]
fn an_object_with_any_byte_changed_is_read_or_refused() {
    let metadata = json!({ "name": "tidy", "namespace": "shop", "uid": "u", "generation": 3, "labels": {} });
    let json = json!({ "metadata": metadata, "spec": spec(), "status": { "conditions": [] } }).to_string();
    let mut read = 0;
    let mut refused = 0;
    for at in 0..json.len() {
        for byte in *b"{[\"0-\\" {
            let mut changed = json.clone().into_bytes();
            changed[at] = byte;
            match Object::read(Kind::Namespaced, &String::from_utf8(changed).unwrap()) {
                Ok(_) => read += 1,
                Err(_) => refused += 1,
            }
        }
        assert!(Object::read(Kind::Namespaced, &json[..at]).is_err(), "{at} bytes");
    }
    assert!(read > 100 && refused > 100, "{read} read and {refused} refused prove little");
}

#[test]
fn permissions_of_a_spec_with_a_mistake_elsewhere_are_known() {
    let id = object("tidy", 1, &spec()).id;
    let mut wrong = spec();
    wrong["watch"] = json!({ "selector": 7 });
    assert!(permissions(&id, &wrong, &spec()).unwrap().grants.write.delete);
    wrong["grants"] = json!({});
    assert!(!permissions(&id, &wrong, &spec()).unwrap().grants.write.delete);
    wrong["grants"] = json!({ "write": { "delete": "perhaps" } });
    assert_eq!(permissions(&id, &wrong, &spec()), None);
    assert_eq!(permissions(&id, &Value::Null, &spec()), None);
}

#[test]
fn finalizers_of_the_status_are_removed_as_the_account_of_the_spec() {
    let mut long = spec();
    long["serviceAccountName"] = "own".into();
    long["config"] = "x".repeat(100).into();
    long["grants"] = json!({ "write": { "finalizers": ["a.example/granted"] } });
    let name = format!("{}.example/{}", "a".repeat(60), "b".repeat(63));
    let said = Arc::new(json!({ "finalizers": { "names": [name, "a.example/*", "no name", 7] } }));
    let names = |of: &Object| {
        let spec = of.may_have_held()?;
        assert_eq!(spec.impersonate.as_deref(), Some("system:serviceaccount:shop:own"));
        Some(spec.grants.write.finalizers.iter().map(|name| name.0.clone()).collect::<Vec<_>>())
    };
    let mut plugin = Object { status: said.clone(), ..object("tidy", 1, &long) };
    let expected = Some(vec![name.clone(), "a.example/*".to_owned()]);
    assert_eq!(names(&plugin), expected, "nothing of the spec, which anyone may change");
    plugin.forget_spec();
    assert_eq!(names(&plugin), expected);
    plugin.held = Some(0);
    let all = ["a.example/granted", &name, "a.example/*"].map(str::to_owned);
    assert_eq!(names(&plugin), Some(all.into()));

    let mut mistaken = long.clone();
    mistaken["serviceAccountName"] = 5.into();
    let unknown = Object { status: said, ..object("tidy", 1, &mistaken) };
    assert!(unknown.may_have_held().is_none(), "not as the account of the host");
    let none = Arc::new(json!({ "finalizers": { "names": ["no name"] } }));
    assert!(Object { status: none, ..object("tidy", 1, &long) }.may_have_held().is_none());
}

#[test]
fn the_status_in_an_answer_is_read_whatever_the_spec_is() {
    let spec = vec![json!({ "": 0 }); 100_000];
    let answer = json!({ "spec": { "config": spec }, "status": { "x": 1 } }).to_string();
    assert!(json::value(answer.as_bytes()).is_err(), "not parsed as a whole");
    assert_eq!(status_in(answer.as_bytes()), json!({ "x": 1 }));
    for answer in ["{}", "[]", "", r#"{"status":"#] {
        assert_eq!(status_in(answer.as_bytes()), Value::Null, "{answer}");
    }
}
