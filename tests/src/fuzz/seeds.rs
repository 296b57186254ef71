//! The seeds of the fuzz targets: small valid inputs of each target, generated on demand.

use std::fs;

use anyhow::Result;
use podium_engine::journal;
use podium_vocabulary::{PluginId, PodKey};
use podium_wire::{Pod, SectionBytes, SectionSet};
use serde_json::json;

use super::{
    abi, components,
    frames::LISTED,
    journal::{FILE, FRAME, HEADER},
    sample::{self, bookmark, event},
};
use crate::programs::{Choices, Program, Vocabulary};

/// Returns the seeds of a target; `pods` are in the form of an API server, each in one or several consecutive states.
///
/// # Errors
/// Returns an error if the target is unknown, or if a Pod cannot be decoded.
pub fn for_target(target: &str, pods: &[Vec<String>]) -> Result<Vec<Vec<u8>>> {
    let mut states: Vec<Vec<String>> =
        vec![(0..3).map(|at| sample::pod("cart-0", 1, 1_001 + at)).collect(), vec![sample::pod("cart-1", 2, 1_010)]];
    states.extend_from_slice(pods);
    match target {
        "abi" => abi::seeds(),
        "calls" => Ok(calls()),
        "components" => Ok(components::seeds()),
        "frames" => Ok(frames(&states)),
        "pods" => Ok(states.iter().map(|states| states.join("\n").into_bytes()).collect()),
        "records" => records(&states),
        "journal" => Ok(vec![journal()?]),
        "queries" => Ok(queries()),
        "selectors" => Ok(selectors()),
        _ => anyhow::bail!("{target} is no target"),
    }
}

fn frames(states: &[Vec<String>]) -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for states in states {
        let watch: String = states.iter().map(|state| event("MODIFIED", state)).collect();
        seeds.push(watch.clone());
        let last = states.last().map_or("{}", String::as_str);
        seeds.push(event("ADDED", last) + &bookmark(LISTED * 100_000, false) + &event("DELETED", last));
        let list: String = states.iter().map(|state| event("ADDED", state)).collect();
        seeds.push(format!("{list}{}\n{watch}", bookmark(LISTED * 200_000, true)));
        let page = format!(
            r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{LISTED}"}},"items":[{}]}}"#,
            states.join(",")
        );
        seeds.push(format!("{page}\n\n{watch}"));
    }
    let expired = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
    let busy = json!({"kind": "Status", "code": 429, "details": {"retryAfterSeconds": 5, "causes": [{"reason": "a"}]}});
    seeds.extend([expired, busy].map(|status| event("ERROR", &status.to_string())));
    seeds.into_iter().map(String::into_bytes).collect()
}

fn records(states: &[Vec<String>]) -> Result<Vec<Vec<u8>>> {
    let mut seeds = Vec::new();
    for state in states.iter().filter_map(|states| states.first()) {
        let pod: Pod = podium_wire::json::decode(state.as_bytes())?;
        let sections = SectionBytes::encode(&pod)?;
        let record = sections.record(&pod.header, SectionSet::ALL)?;
        let length = u32::try_from(record.len())?.to_le_bytes();
        seeds.push([&length[..], &record, &length, &record].concat());
        seeds.push(record);
        seeds.push(podium_wire::encode(&pod.header)?);
        seeds.extend(podium_wire::Section::ALL.map(|section| sections.get(section).to_vec()));
    }
    Ok(seeds)
}

/// Returns the journal of a host that loads two plugins.
fn journal() -> Result<Vec<u8>> {
    let directory = tempfile::tempdir()?;
    let mut opened = journal::open(directory.path(), 0)?;
    let plugin =
        |namespace: Option<&str>, name: &str| PluginId { namespace: namespace.map(Into::into), name: name.into() };
    let accounts = [plugin(None, "p"), plugin(Some("shop"), "q")].map(|id| opened.journal.plugin_entries(&id));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    for (at, account) in accounts.iter().enumerate() {
        for own in 0..2 {
            let key = PodKey::new("shop", &format!("cart-{own}"), &sample::uid(own));
            runtime.block_on(async {
                let (store, journal) = (&mut opened.store, &opened.journal);
                tokio::join!(account.enter(&key), async { store.write(journal) }).1
            })?;
            if at == 0 {
                account.settled(&key);
            }
        }
    }
    opened.journal.absent(&plugin(None, "p"), 1);
    opened.store.write(&opened.journal)?;
    let bytes = fs::read(directory.path().join(FILE))?;
    anyhow::ensure!(bytes.len() > HEADER + FRAME, "nothing was written");
    Ok(bytes)
}

/// Returns random programs with arguments near those that are accepted.
fn calls() -> Vec<Vec<u8>> {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let words = Vocabulary {
        namespaces: texts(&["shop", "bank", "", "../bank"]),
        names: texts(&["cart-3", "cart-4", "no-such", "a/b"]),
        uids: texts(&["u3", "u4", "u1", ""]),
        nodes: texts(&["node-of-cart", "x"]),
        owners: texts(&["owner-of-cart", "x"]),
        phases: texts(&["phase-of-cart", ""]),
        keys: texts(&["app", "x y"]),
        values: texts(&["cart", "", "\u{202e}x\u{1b}[2J"]),
        cursors: texts(&["shop/cart-3", "bank/cart-1", "/"]),
    };
    (0..40).map(|seed| Program::random(&mut Choices::new(seed), &words).bytes()).collect()
}

fn queries() -> Vec<Vec<u8>> {
    let put = |namespace: u8, name: u8| [1, namespace, name, 3, name % 4, 1, 2, 3];
    let pods: Vec<u8> = (0..4).flat_map(|namespace| (0..8).flat_map(move |name| put(namespace, name))).collect();
    let ask = |namespace: u8, node: u8, owner: u8| [192, namespace, node, owner, 0, 2, 3, 0, 3, 2];
    let steps = [pods, ask(4, 3, 3).to_vec(), ask(1, 0, 3).to_vec(), vec![128, 1, 2], ask(4, 3, 0).to_vec()].concat();
    ["shop/p3", "", "z/", "bank/p-1.x"].map(|cursor| [&steps[..], &[0], cursor.as_bytes()].concat()).to_vec()
}

fn selectors() -> Vec<Vec<u8>> {
    let all = json!({"matchLabels": {"app": "cart", "shop.example/tier": ""}, "matchExpressions": [
        {"key": "app", "operator": "In", "values": ["cart", "web"]},
        {"key": "tier", "operator": "NotIn", "values": ["a"]},
        {"key": "track", "operator": "Exists"}, {"key": "canary", "operator": "DoesNotExist"},
    ]});
    let file = "apiVersion: podium.dev/v1alpha1\nkind: ReconcilePlugin\nmetadata: {name: a, namespace: shop}\nspec:\n  \
        source: {file: a.wasm}\n  watch:\n    selector: {matchLabels: {app: cart}}\n    sections: [labels]\n    \
        resyncSeconds: 60\n  limits: {memoryMiB: 8, class: native}\n  grants:\n    \
        read: {pods: {sections: [labels]}}\n  config: {a: 1}\n---\nkind: ClusterReconcilePlugin\n";
    vec![all.to_string().into_bytes(), file.into(), b"{}".to_vec()]
}
