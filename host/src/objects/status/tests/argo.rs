//! Executes the check of health that Argo CD has from `deploy/argocd/health.yaml`, over statuses of the host.

use std::{fs, path::Path};

use mlua::{Lua, Table};

use super::*;

/// Returns the value as Argo CD hands it to Lua, without fields that are null.
fn of_lua<'lua>(lua: &'lua Lua, value: &Value) -> mlua::Value<'lua> {
    match value {
        Value::Null => mlua::Value::Nil,
        Value::Bool(value) => mlua::Value::Boolean(*value),
        Value::Number(number) => mlua::Value::Number(number.as_f64().unwrap()),
        Value::String(text) => mlua::Value::String(lua.create_string(text).unwrap()),
        Value::Array(items) => {
            let items = items.iter().map(|item| of_lua(lua, item));
            mlua::Value::Table(lua.create_sequence_from(items).unwrap())
        }
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (name.as_str(), of_lua(lua, value)));
            mlua::Value::Table(lua.create_table_from(fields).unwrap())
        }
    }
}

/// Returns status and message of the health of an object of generation 3, as `STATUS: MESSAGE`; that of both kinds.
fn health(status: &Value) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/argocd/health.yaml");
    let file: Value = serde_saphyr::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    let object = json!({ "metadata": { "name": "tidy", "generation": 3 }, "spec": {}, "status": status });
    let health = |check: &Value| {
        let lua = Lua::new();
        lua.globals().set("obj", of_lua(&lua, &object)).unwrap();
        let health: Table<'_> = lua.load(check.as_str().unwrap()).eval().unwrap();
        let text = |field: &str| health.get::<_, String>(field).unwrap();
        format!("{}: {}", text("status"), text("message"))
    };
    let mut checks: Vec<_> = file["data"].as_object().unwrap().values().map(health).collect();
    assert_eq!(checks.len(), 2);
    checks.dedup();
    assert_eq!(checks.len(), 1, "{checks:?}");
    checks.remove(0)
}

#[test]
fn argo_cd_shows_the_health_of_each_state() {
    let of = |state: State| health(&status(&facts(state), &Value::Null, 0).unwrap());
    let begins = |health: String, expected: &str| assert!(health.starts_with(expected), "{health}");
    begins(of(RUNNING), "Healthy: Running: ");
    begins(of(State::Running { unprobed: true }), "Healthy: Unprobed: ");
    begins(of(State::Suspended), "Suspended: ");
    begins(of(State::Loading), "Progressing: Loading: ");
    begins(of(State::NameTaken), "Degraded: NameTaken: ");
    begins(of(failed(Step::Granted, "PolicyForbids")), "Degraded: PolicyForbids: why");
    begins(of(failed(Step::Fetched, "DigestMismatch")), "Degraded: DigestMismatch: why");
    begins(of(State::Removing { pods: 2, refused: None }), "Progressing: RemovingFinalizers: ");
    let beyond = Beyond { reason: "TooManyPlugins", message: "at most 100".to_owned() };
    begins(of(State::Beyond(beyond)), "Degraded: TooManyPlugins: at most 100");
}

#[test]
fn argo_cd_does_not_follow_the_results_of_runs() {
    let [reason, message, pod, since] = ["retry", "no team", "shop/a", "2026-01-01T00:00:00Z"].map(str::to_owned);
    let failing = vec![Failing { reason, message, pod, since, is_of_before: false }];
    let status = status(&Facts { active: active(3), failing, ..facts(RUNNING) }, &Value::Null, 0).unwrap();
    assert_eq!(listed(&status)[5], "Healthy=False RunsFail");
    assert!(health(&status).starts_with("Healthy: Running: "), "{}", health(&status));
}

#[test]
fn argo_cd_waits_for_the_status_of_the_present_generation() {
    let unseen = "Progressing: podium-host has not seen this version of the object";
    assert_eq!(health(&Value::Null), unseen);
    assert_eq!(health(&json!({})), unseen);
    for state in [RUNNING, State::Suspended, failed(Step::Fetched, "DigestMismatch")] {
        let earlier = status(&Facts { generation: 2, ..facts(state) }, &Value::Null, 0).unwrap();
        assert_eq!(health(&earlier), unseen);
        // A new spec is being loaded.
        let loading = status(&facts(State::Loading), &earlier, 0).unwrap();
        assert!(health(&loading).starts_with("Progressing: "), "{}", health(&loading));
    }
    assert_eq!(health(&json!({ "observedGeneration": 3, "conditions": null })), unseen, "of another client");
}
