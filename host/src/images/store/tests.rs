//! The store returns only bytes that have their digests, to the tenant that pulled them, and stays within its bound.

use std::os::unix::fs::{PermissionsExt, symlink};

use podium_life::Record;
use podium_registry::signature::Claim;
use serde_json::json;

use super::*;

fn component(byte: u8, length: usize) -> Component {
    let bytes = Bytes::from(vec![byte; length]);
    let config = json!({ "mediaType": "application/vnd.wasm.config.v0+json", "digest": "sha256:", "size": 0 });
    let layer = json!({
        "mediaType": "application/wasm", "digest": Digest::sha256(&bytes).to_string(), "size": length,
    });
    let manifest = json!({ "schemaVersion": 2, "config": config, "layers": [layer] }).to_string();
    Component::stored(Digest::sha256(manifest.as_bytes()), manifest.into(), bytes).unwrap()
}

fn reference(text: &str) -> Reference {
    text.parse().unwrap()
}

fn tenant(name: &str) -> Tenant {
    Tenant::Namespace(name.into())
}

fn claims() -> Claims {
    Claims { claims: vec![Claim::Bundle(b"x\n".to_vec())], passed_over: 0 }
}

impl Store {
    fn put(&self, tenant: &Tenant, component: &Component) {
        let reference = &reference("a.example/a:1");
        self.store(Kept { tenant, reference, manifest: &component.manifest }, component, &claims());
    }

    fn get(&self, tenant: &Tenant, image: &str, component: &Component) -> Option<Stored> {
        self.load(Kept { tenant, reference: &reference(image), manifest: &component.manifest })
    }
}

#[test]
fn a_component_is_returned_to_its_tenant_and_repository_only() {
    let state = tempfile::tempdir().unwrap();
    let shop = tenant("shop");
    let pulled = component(7, 3_000);
    Store::open(state.path()).unwrap().put(&shop, &pulled);
    let store = Store::open(state.path()).unwrap();
    let Stored { component: found, claims: signed } = store.get(&shop, "a.example/a:2", &pulled).unwrap();
    assert_eq!((found, signed), (pulled.clone(), claims()));
    assert!(store.get(&tenant("bank"), "a.example/a:1", &pulled).is_none());
    assert!(store.get(&Tenant::Cluster, "a.example/a:1", &pulled).is_none());
    assert!(store.get(&shop, "a.example/b:1", &pulled).is_none());
    assert!(store.get(&shop, "b.example/a:1", &pulled).is_none());
    assert!(store.get(&shop, "a.example/a:1", &component(8, 3_000)).is_none());
}

#[test]
fn a_file_with_any_byte_changed_is_removed() {
    let state = tempfile::tempdir().unwrap();
    let shop = tenant("shop");
    let pulled = component(7, 100);
    let store = Store::open(state.path()).unwrap();
    store.put(&shop, &pulled);
    let path = store.files().unwrap().remove(0).path;
    let whole = fs::read(&path).unwrap();
    let head = whole.iter().position(|byte| *byte == b'\n').unwrap();
    for at in (0..whole.len()).filter(|at| *at > head || at % 7 == 0) {
        let mut changed = whole.clone();
        changed[at] ^= 1;
        fs::write(&path, &changed).unwrap();
        match store.get(&shop, "a.example/a:1", &pulled) {
            // Of the head only signatures may differ, which the caller verifies.
            Some(found) => assert!(found.component == pulled && at < head, "byte {at}"),
            None => {
                assert!(!path.exists(), "byte {at}");
                store.put(&shop, &pulled);
            }
        }
    }
    for cut in [0, head, whole.len() - 1] {
        fs::write(&path, &whole[..cut]).unwrap();
        assert!(store.get(&shop, "a.example/a:1", &pulled).is_none() && !path.exists(), "{cut} bytes");
        store.put(&shop, &pulled);
    }
}

#[test]
fn a_file_that_others_can_write_or_that_is_a_link_is_removed() {
    let state = tempfile::tempdir().unwrap();
    let shop = tenant("shop");
    let pulled = component(7, 100);
    let store = Store::open(state.path()).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    store.put(&shop, &pulled);
    let path = store.files().unwrap().remove(0).path;
    assert_eq!((mode(&path), mode(&state.path().join(DIRECTORY))), (0o600, 0o700));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
    assert!(store.get(&shop, "a.example/a:1", &pulled).is_none() && !path.exists());

    store.put(&shop, &pulled);
    let elsewhere = state.path().join("elsewhere");
    fs::rename(&path, &elsewhere).unwrap();
    symlink(&elsewhere, &path).unwrap();
    assert!(store.get(&shop, "a.example/a:1", &pulled).is_none() && elsewhere.exists());
}

#[test]
fn a_tenant_with_many_components_removes_its_own_oldest() {
    let state = tempfile::tempdir().unwrap();
    let store = Store { max_bytes: 60_000, ..Store::open(state.path()).unwrap() };
    let shop = tenant("shop");
    let bank = tenant("bank");
    let of_bank = component(0, 5_000);
    store.put(&bank, &of_bank);
    let of_shop: Vec<_> = (1..=10).map(|byte| component(byte, 10_000)).collect();
    for (age, component) in of_shop.iter().enumerate() {
        store.put(&shop, component);
        let path = store.component(Kept {
            tenant: &shop,
            reference: &reference("a.example/a:1"),
            manifest: &component.manifest,
        });
        let used = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(age as u64 + 1);
        fs::File::options().write(true).open(path).unwrap().set_modified(used).unwrap();
    }
    let kept = of_shop.iter().map(|component| store.get(&shop, "a.example/a:1", component).is_some());
    let kept: Vec<bool> = kept.collect();
    assert_eq!(kept, [[false; 5], [true; 5]].concat());
    assert!(store.get(&bank, "a.example/a:1", &of_bank).is_some());
    assert!(store.files().unwrap().iter().map(|file| file.bytes).sum::<u64>() <= 60_000);

    // One that is too large for the bound removes nothing of others.
    store.put(&tenant("new"), &component(9, 70_000));
    assert!(store.get(&bank, "a.example/a:1", &of_bank).is_some());
}

#[test]
fn room_is_made_with_components_and_never_with_records_or_tags() {
    let state = tempfile::tempdir().unwrap();
    let store = Store { max_bytes: 60_000, ..Store::open(state.path()).unwrap() };
    let id = PluginId { namespace: Some("shop".into()), name: "tidy".into() };
    let record = Record::new("u");
    store.keep_record(&id, Some(&record), Held::new).unwrap();
    store.tag_names(&id, &reference("a.example/a:1"), &Digest::sha256(b"a"));
    for file in store.files().unwrap() {
        aged(&file.path, 1);
    }
    for byte in 1..=10 {
        store.put(&tenant("shop"), &component(byte, 10_000));
    }
    assert!(store.get(&tenant("shop"), "a.example/a:1", &component(10, 10_000)).is_some());
    assert_eq!(store.record(&id).unwrap(), Some(record), "a restart runs the version before a refused one");
    assert!(store.tag(&id).exists());
    // Without components the bound refuses new files.
    let store = Store { max_bytes: 1, ..store };
    store.tag_names(&id, &reference("a.example/b:1"), &Digest::sha256(b"b"));
    assert!(store.record(&id).unwrap().is_some() && store.files().unwrap().len() == 2, "only the record and the tag");
}

#[test]
fn a_file_that_cannot_be_read_now_is_not_removed() {
    let state = tempfile::tempdir().unwrap();
    let store = Store::open(state.path()).unwrap();
    let id = PluginId { namespace: Some("shop".into()), name: "tidy".into() };
    store.keep_record(&id, Some(&Record::new("u")), Held::new).unwrap();
    store.store_bytes(&tenant("shop"), &Digest::sha256(b"a").hex(), b"a");
    let files = store.files().unwrap();
    // The system does not open a socket as a file.
    for file in &files {
        let socket = state.path().join("socket");
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        fs::rename(&socket, &file.path).unwrap();
    }
    assert!(store.record(&id).is_err() && store.load_bytes(&tenant("shop"), &Digest::sha256(b"a").hex()).is_none());
    assert!(files.len() == 2 && files.iter().all(|file| file.path.exists()));
}

/// Makes a file older than all that were used.
fn aged(path: &Path, seconds: u64) {
    let used = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    fs::File::options().write(true).open(path).unwrap().set_modified(used).unwrap();
}

#[test]
fn a_tenant_has_a_bounded_number_of_components_of_any_size() {
    let state = tempfile::tempdir().unwrap();
    let store = Store::open(state.path()).unwrap();
    let shop = tenant("shop");
    let bank = tenant("bank");
    let sha256 = |at: usize| Digest::sha256(&[at as u8]).hex();
    let put = |tenant: &Tenant, at: usize| {
        store.store_bytes(tenant, &sha256(at), &[at as u8]);
        aged(&store.bytes(tenant, &sha256(at)), at as u64 + 1);
    };
    put(&bank, 0);
    let id = PluginId { namespace: Some("shop".into()), name: "tidy".into() };
    store.tag_names(&id, &reference("a.example/a:1"), &Digest::sha256(b"a"));
    aged(&store.tag(&id), 0);
    for at in 0..MAX_COMPONENTS + 10 {
        put(&shop, at);
    }
    let kept = (0..MAX_COMPONENTS + 10).map(|at| store.bytes(&shop, &sha256(at)).exists());
    assert_eq!(kept.filter(|kept| !kept).count(), 10);
    assert!(!store.bytes(&shop, &sha256(9)).exists() && store.bytes(&shop, &sha256(10)).exists(), "the oldest go");
    assert!(store.load_bytes(&bank, &sha256(0)).is_some());
    assert!(store.tag(&id).exists(), "a tag is no component");
}

#[test]
fn a_tenant_with_many_tags_removes_its_own_oldest() {
    let state = tempfile::tempdir().unwrap();
    let store = Store { max_tags: 6, ..Store::open(state.path()).unwrap() };
    let id =
        |namespace: &str, name: usize| PluginId { namespace: Some(namespace.into()), name: name.to_string().into() };
    let image = reference("a.example/a:1");
    let put = |id: &PluginId, age: u64| {
        store.tag_names(id, &image, &Digest::sha256(b"a"));
        aged(&store.tag(id), age);
    };
    (0..2).for_each(|at| put(&id("bank", at), 1));
    (0..20).for_each(|at| put(&id("shop", at), 100 + at as u64));
    let kept = |namespace, names: std::ops::Range<usize>| {
        names.filter(|name| store.tag(&id(namespace, *name)).exists()).collect::<Vec<_>>()
    };
    assert_eq!((kept("bank", 0..2), kept("shop", 0..20)), (vec![0, 1], vec![16, 17, 18, 19]));
    // A tenant with few still gets its place.
    put(&id("pay", 0), 500);
    assert_eq!((kept("pay", 0..1), kept("bank", 0..2).len(), kept("shop", 0..20).len()), (vec![0], 2, 3));
}

#[test]
fn a_tag_is_remembered_for_its_plugin_and_its_text() {
    let state = tempfile::tempdir().unwrap();
    let store = Store::open(state.path()).unwrap();
    let id = |name: &str| PluginId { namespace: Some("shop".into()), name: name.into() };
    let image = reference("a.example/a:1");
    let digest = Digest::sha256(b"a");
    store.tag_names(&id("tidy"), &image, &Digest::sha256(b"b"));
    store.tag_names(&id("tidy"), &image, &digest);
    let store = Store::open(state.path()).unwrap();
    assert_eq!(store.tagged(&id("tidy"), &image), Some(digest));
    assert_eq!(store.tagged(&id("other"), &image), None);
    assert_eq!(store.tagged(&id("tidy"), &reference("a.example/a:2")), None);
    fs::write(store.tag(&id("tidy")), "{").unwrap();
    assert_eq!(store.tagged(&id("tidy"), &image), None);
}

#[test]
fn files_that_go_while_the_directory_is_read_are_not_missed() {
    let state = tempfile::tempdir().unwrap();
    let store = Store::open(state.path()).unwrap();
    let stops = std::sync::atomic::AtomicBool::new(false);
    let are_read = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stops.load(std::sync::atomic::Ordering::Relaxed) {
                let all = (0..20).map(|at| store.directory.join(at.to_string()));
                all.clone().for_each(|file| fs::write(file, "").unwrap());
                all.for_each(|file| fs::remove_file(file).unwrap());
            }
        });
        let are_read = (0..2_000).all(|_| store.files().is_ok());
        stops.store(true, std::sync::atomic::Ordering::Relaxed);
        are_read
    });
    assert!(are_read);
}

#[test]
fn the_file_of_a_plugin_with_the_most_finalizers_is_read_again() {
    let state = tempfile::tempdir().unwrap();
    let store = Store::open(state.path()).unwrap();
    let id = PluginId { namespace: Some("shop".into()), name: "tidy".into() };
    let spec: std::sync::Arc<str> = "\"".repeat(256 << 10).into();
    let ran = podium_life::Ran { generation: 1, spec: spec.clone(), manifest: None };
    let refused = podium_life::Refused { spec, tried: podium_life::Tried::After, failure: "it failed".to_owned() };
    let mut record = Record::new("u");
    record.ran = Some(ran);
    record.refused = Some(refused);
    let held = Held::from([("u".to_owned(), json!("a".repeat(MOST_HELD_BYTES)))]);
    store.keep_record(&id, Some(&record), || held.clone()).unwrap();
    assert!(store.record(&id).unwrap() == Some(record));
    assert!(store.held().unwrap() == (vec![(id, held)], Vec::new()));
}
