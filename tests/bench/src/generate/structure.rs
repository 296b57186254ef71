//! Pods that all differ in structure: optional fields that are present or absent, in another order and number.

use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::{
    draft::{CONTAINER_FIELDS, Draft},
    json::{Json, list, number, object, text},
};

/// Returns a draft of a single Pod, derived from its seed. It contains everything of the workload's draft.
pub(super) fn scatter(base: &Draft, seed: u64) -> Draft {
    let mut random = SmallRng::seed_from_u64(seed);
    let random = &mut random;
    let mut draft = base.clone();
    for map in [&mut draft.labels, &mut draft.annotations] {
        for _ in 0..random.random_range(1..8) {
            let key = format!("example.com/{}", name(random));
            map.set_sorted(&key, text(random.random_range(0..1_000_000).to_string()));
        }
    }
    for _ in 0..random.random_range(1..6) {
        let volume = volume(random);
        let at = random.random_range(0..=draft.volumes.len());
        draft.volumes.insert(at, volume);
    }
    for container in &mut draft.containers {
        add_environment(random, container);
        if random.random_bool(0.5) {
            let hook = object([("command", list([text("sleep"), number_text(random)]))]);
            container.set("lifecycle", object([("preStop", object([("exec", hook)]))]));
        }
        if random.random_bool(0.5) {
            container.set("workingDir", text(format!("/srv/{}", name(random))));
        }
        if random.random_bool(0.3) {
            container.set("tty", Json::Bool(true));
        }
        container.sort_by(CONTAINER_FIELDS);
    }
    draft
}

fn add_environment(random: &mut SmallRng, container: &mut Json) {
    let Some(Json::List(environment)) = container.get_mut("env") else { return };
    for _ in 0..random.random_range(1..12) {
        let name = name(random).to_uppercase().replace('-', "_");
        let mut entry = object([("name", text(name))]);
        match random.random_range(0..3) {
            0 => entry.set("value", number_text(random)),
            1 => {
                let key = object([("name", text(self::name(random))), ("key", text("value"))]);
                entry.set("valueFrom", object([("configMapKeyRef", key)]));
            }
            _ => {
                let field = object([("resource", text("limits.cpu")), ("divisor", text("0"))]);
                entry.set("valueFrom", object([("resourceFieldRef", field)]));
            }
        }
        let at = random.random_range(0..=environment.len());
        environment.insert(at, entry);
    }
}

fn volume(random: &mut SmallRng) -> Json {
    let mut volume = object([("name", text(name(random)))]);
    let mut source = Vec::new();
    let kind = match random.random_range(0..4) {
        0 => {
            source.push(("medium", text("Memory")));
            source.push(("sizeLimit", text(format!("{}Mi", random.random_range(1..4096)))));
            "emptyDir"
        }
        1 => {
            source.push(("secretName", text(name(random))));
            source.push(("defaultMode", number(random.random_range(256..512))));
            "secret"
        }
        2 => {
            source.push(("name", text(name(random))));
            source.push(("defaultMode", number(420)));
            "configMap"
        }
        _ => {
            source.push(("path", text(format!("/var/lib/{}", name(random)))));
            source.push(("type", text("DirectoryOrCreate")));
            "hostPath"
        }
    };
    // Each field except the first may be missing.
    let left = random.random_range(1..=source.len());
    source.truncate(left);
    volume.set(kind, object(source));
    volume
}

/// Returns a name that no other Pod has.
fn name(random: &mut SmallRng) -> String {
    format!("x{}-{}", super::suffix(random.random()), super::suffix(random.random()))
}

fn number_text(random: &mut SmallRng) -> Json {
    text(random.random_range(0..100_000).to_string())
}
