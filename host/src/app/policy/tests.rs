//! Claims about policies that are replaced while the host runs, and at its start.

use std::{fs, net::SocketAddr, os::unix::fs::PermissionsExt, path::Path};

use base64::{Engine, prelude::BASE64_STANDARD};
use futures::future::BoxFuture;
use podium_engine::{fixtures::log_to, status::LoadState};
use podium_registry::{Resolve, signature::Key};
use podium_vocabulary::{PluginId, PluginSpec, Source};
use rcgen::PublicKeyData as _;

use super::{
    super::life::{
        Rules,
        tests::{Idle, driver_on, give, spec},
    },
    *,
};

fn write(directory: &Path, rules: &str) -> PathBuf {
    let file = directory.join("policy.yaml");
    fs::write(&file, format!("apiVersion: podium.dev/v1alpha1\nkind: Policy\nspec: {rules}\n")).unwrap();
    file
}

fn file_of(directory: &Path) -> PolicyFile {
    let random = |key: &mut [u8]| {
        key.fill(7);
        Ok(())
    };
    let disk = Cache::open(directory, random, 0).unwrap();
    PolicyFile::new(directory.join("policy.yaml"), Proxies::default()).stored_in(Some(Arc::new(disk)))
}

/// Returns the certificate of a new authority.
fn authority() -> String {
    let key = rcgen::KeyPair::generate().unwrap();
    let authority = rcgen::CertificateParams::new(Vec::new()).unwrap().self_signed(&key).unwrap();
    let pem = BASE64_STANDARD.encode(authority.der());
    format!("-----BEGIN CERTIFICATE-----\n{pem}\n-----END CERTIFICATE-----\n")
}

const WIDE: &str = "{ defaults: { limits: { writes: 20 } } }";
const NARROW: &str = "{ defaults: { limits: { writes: 19 } } }";
const BAD: &str = "{ defaults: { limits: { wites: 1 } } }";

#[tokio::test(start_paused = true)]
async fn runs_end_with_a_narrower_policy_and_begin_with_a_wider_one() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), WIDE);
    let file = Arc::new(file_of(directory.path()));
    let (policy, images) = file.read().unwrap().unwrap();
    let (driver, _observe) = driver_on(Rules { policy: Some(policy), images, ..Rules::default() }, None).await;
    let [tidy, modest] = ["tidy", "modest"].map(|name| PluginId { namespace: Some("shop".into()), name: name.into() });
    let mut few = PluginSpec { id: modest.clone(), ..spec() };
    few.limits.writes = 1;
    for spec in [spec(), few] {
        give(&driver, &spec.id, Idle);
        let prepared = driver.prepare(spec).await.unwrap();
        driver.install(prepared).await;
    }
    let load = |id: &PluginId| driver.plugins().into_iter().find(|plugin| plugin.id == *id).unwrap().load;
    let lane = |id: &PluginId| driver.dispatch.registry.by_id(id).map(|loaded| loaded.lane);
    let unchanged = lane(&modest);
    tokio::spawn(file.clone().follow(driver.clone()));

    write(directory.path(), NARROW);
    sleep(READ_AGAIN + Duration::from_secs(1)).await;
    assert!(matches!(load(&tidy), LoadState::Refused { reason } if reason.contains("at most 19")), "{:?}", load(&tidy));
    assert_eq!((lane(&tidy), lane(&modest)), (None, unchanged), "the other one goes on as it was");

    write(directory.path(), BAD);
    sleep(READ_AGAIN).await;
    assert!(file.is_refused() && matches!(load(&tidy), LoadState::Refused { .. }));
    let mistake = file.read().err().unwrap().remove(0);
    assert_eq!((mistake.line, &*mistake.field), (Some(3), "spec.defaults.limits.wites"));
    assert!(driver.rules().policy.as_ref().unwrap().problems(&spec())[0].message.contains("at most 19"));

    write(directory.path(), WIDE);
    sleep(READ_AGAIN).await;
    assert!(!file.is_refused());
    assert_eq!((load(&tidy), lane(&tidy).is_some(), lane(&modest)), (LoadState::Loaded, true, unchanged));
    fs::remove_file(directory.path().join("policy.yaml")).unwrap();
    sleep(READ_AGAIN).await;
    assert!(file.is_refused() && load(&tidy) == LoadState::Loaded, "a policy that is gone is none that permits more");
}

/// Resolves no name; a copy of this lives as long as it resolves one.
struct Resolving(Arc<()>);

impl Resolve for Resolving {
    fn resolve<'a>(&'a self, _: &'a str, _: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        let resolving = self.0.clone();
        Box::pin(async move {
            let _resolving = resolving;
            std::future::pending().await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_fetch_ends_with_the_policy_that_lists_its_registry() {
    let directory = tempfile::tempdir().unwrap();
    let policy = |rules: &str| Policy::read(&write(directory.path(), rules)).unwrap();
    let listed = policy("{ registries: [{ host: registry.example }] }");
    let allowed = disk::registries(&listed, listed.registries().unwrap(), &Proxies::default()).unwrap().unwrap();
    let resolving = Arc::new(());
    let images = Some(Images::new(allowed, Resolving(resolving.clone())));
    let (driver, _observe) = driver_on(Rules { policy: Some(listed), images, ..Rules::default() }, None).await;
    let image = format!("registry.example/a@sha256:{}", "0".repeat(64));
    let fetched = PluginSpec { source: Source::Oci { image, pull_secret: None }, ..spec() };
    let narrower = async {
        sleep(Duration::from_secs(1)).await;
        assert_eq!(Arc::strong_count(&resolving), 3);
        driver.set_policy(policy("{}"), None);
        sleep(Duration::from_millis(1)).await;
        assert_eq!(Arc::strong_count(&resolving), 1, "nothing connects to it any more");
    };
    let (prepared, ()) = tokio::join!(driver.prepare(fetched), narrower);
    let failure = prepared.err().unwrap().to_string();
    assert!(failure.contains("registry.example, which is not listed"), "{failure}");
}

#[test]
fn files_that_are_replaced_between_two_of_them_are_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let pem = |name: &str| fs::write(directory.path().join(name), authority()).unwrap();
    let listed = |file: &str, writes: u32| {
        let registry = format!("registries: [{{ host: registry.example, caFile: {file} }}]");
        write(directory.path(), &format!("{{ {registry}, defaults: {{ limits: {{ writes: {writes} }} }} }}"));
    };
    pem("one.pem");
    listed("one.pem", 19);
    let file = file_of(directory.path());
    let mut read = 0;
    let replaced = file.read_from(&mut |path| {
        let bytes = read_file(path);
        read += 1;
        if read == 1 {
            listed("two.pem", 18);
            fs::remove_file(directory.path().join("one.pem")).unwrap();
            pem("two.pem");
        }
        bytes
    });
    let (policy, _) = replaced.unwrap().unwrap();
    assert!(policy.problems(&spec())[0].message.contains("at most 18"));
    // The same name with another text.
    let mut read = 0;
    let replaced = file.read_from(&mut |path| {
        let bytes = read_file(path);
        read += 1;
        if read == 1 {
            pem("two.pem");
            listed("two.pem", 17);
        }
        bytes
    });
    let (policy, _) = replaced.unwrap().unwrap();
    assert!(policy.problems(&spec())[0].message.contains("at most 17"));
    assert!(file.read().unwrap().is_none() && !file.is_refused());
}

#[tokio::test(start_paused = true)]
async fn the_log_has_each_mistake_once_and_says_when_it_is_corrected() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let lines = Arc::new(fs::File::options().create(true).append(true).open(&log).unwrap());
    let _logged = log_to(tracing_subscriber::fmt().with_ansi(false).with_writer(lines.clone()).finish());
    write(directory.path(), WIDE);
    let file = Arc::new(file_of(directory.path()));
    let (policy, images) = file.read().unwrap().unwrap();
    let (driver, _observe) = driver_on(Rules { policy: Some(policy), images, ..Rules::default() }, None).await;
    tokio::spawn(file.clone().follow(driver));
    let other = BAD.replace("wites", "memory");
    for (rules, expected) in [
        (WIDE, vec![]),
        (BAD, vec!["ERROR", "policy.yaml", "line=3", "spec.defaults.limits.wites", IN_FORCE]),
        (&other, vec!["ERROR", "spec.defaults.limits.memory"]),
        (WIDE, vec!["INFO", "policy accepted; it is the one in force"]),
        (NARROW, vec!["INFO", "policy replaced"]),
        (BAD, vec!["ERROR", "wites"]),
        (WIDE, vec!["INFO", "policy replaced"]),
        (WIDE, vec![]),
    ] {
        write(directory.path(), rules);
        lines.set_len(0).unwrap();
        sleep(3 * READ_AGAIN).await;
        let logged = fs::read_to_string(&log).unwrap();
        let logged: Vec<_> = logged.lines().filter(|line| line.contains("policy")).collect();
        assert_eq!(logged.len(), usize::from(!expected.is_empty()), "{rules}: {logged:?}");
        assert!(expected.iter().all(|text| logged[0].contains(text)), "{rules}: {logged:?}");
    }
}

#[tokio::test]
async fn a_start_with_mistakes_has_the_last_good_policy_of_this_host() {
    let directory = tempfile::tempdir().unwrap();
    let stored = directory.path().join(LAST_GOOD);
    let registry = "registries: [{ host: registry.example, caFile: ca.pem }]";
    fs::write(directory.path().join("ca.pem"), authority()).unwrap();
    write(directory.path(), &format!("{{ {registry}, defaults: {{ limits: {{ writes: 19 }} }} }}"));
    let good = Arc::new(file_of(directory.path()));
    assert!(good.last_good().err().unwrap().contains("no good one"));
    assert!(good.read().unwrap().is_some() && good.read().unwrap().is_none(), "the same is not read twice");
    good.store();
    while !stored.exists() {
        sleep(Duration::from_millis(1)).await;
    }

    write(directory.path(), BAD);
    fs::remove_file(directory.path().join("ca.pem")).unwrap();
    let bad = || {
        let file = file_of(directory.path());
        assert!(file.read().is_err() && file.is_refused());
        file
    };
    let file = bad();
    let (policy, images) = file.last_good().unwrap();
    assert!(policy.problems(&spec())[0].message.contains("at most 19") && images.is_some());
    assert!(file.is_refused(), "also when it is in force");

    let bytes = fs::read(&stored).unwrap();
    for at in [0, bytes.len() / 2, bytes.len() - 1] {
        let mut tampered = bytes.clone();
        tampered[at] ^= 1;
        fs::write(&stored, tampered).unwrap();
        let error = bad().last_good().err().unwrap();
        assert!(error.contains("policy.last was not written by this host, or was changed"), "{error}");
    }
    fs::write(&stored, &bytes[..9]).unwrap();
    assert!(bad().last_good().is_err());
    fs::write(&stored, &bytes).unwrap();
    assert!(bad().last_good().is_ok());
    fs::set_permissions(&stored, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(bad().last_good().err().unwrap().contains("lets others read"));
    assert!(PolicyFile { disk: None, ..bad() }.last_good().is_err());
}

#[tokio::test]
async fn a_policy_that_cannot_be_stored_leaves_none_that_permits_more() {
    let directory = tempfile::tempdir().unwrap();
    let stored = directory.path().join(LAST_GOOD);
    let file = Arc::new(file_of(directory.path()));
    for (rules, obstacle) in [(WIDE, false), (NARROW, true), (NARROW, false)] {
        write(directory.path(), rules);
        let in_the_way = directory.path().join("policy.next");
        if obstacle {
            // A write that an earlier turn began has a file there until it ends.
            while fs::create_dir(&in_the_way).is_err() {
                sleep(Duration::from_millis(1)).await;
            }
        } else {
            let _ = fs::remove_dir(&in_the_way);
        }
        file.read().unwrap();
        while stored.exists() == obstacle || file.unstored.load(Relaxed) != obstacle {
            file.store();
            sleep(Duration::from_millis(1)).await;
        }
    }
    let (policy, _) = file_of(directory.path()).last_good().unwrap();
    assert!(policy.problems(&spec())[0].message.contains("at most 19"));
}

#[tokio::test(start_paused = true)]
async fn the_policy_in_force_is_stored_also_while_the_files_have_mistakes() {
    let directory = tempfile::tempdir().unwrap();
    let stored = directory.path().join(LAST_GOOD);
    let in_the_way = directory.path().join("policy.next");
    write(directory.path(), NARROW);
    let file = Arc::new(file_of(directory.path()));
    let (policy, images) = file.read().unwrap().unwrap();
    let (driver, _observe) = driver_on(Rules { policy: Some(policy), images, ..Rules::default() }, None).await;
    fs::create_dir(&in_the_way).unwrap();
    tokio::spawn(file.clone().follow(driver));
    sleep(Duration::from_secs(1)).await;
    assert!(!stored.exists());
    write(directory.path(), BAD);
    fs::remove_dir(&in_the_way).unwrap();
    sleep(2 * READ_AGAIN).await;
    assert!(file.is_refused() && stored.exists());
    let (policy, _) = file_of(directory.path()).last_good().unwrap();
    assert!(policy.problems(&spec())[0].message.contains("at most 19"));
}

#[tokio::test]
async fn one_thread_waits_for_a_disk_that_does_not_take_the_policy() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), NARROW);
    let file = Arc::new(file_of(directory.path()));
    file.read().unwrap();
    let hanging = file.storing.lock();
    (0..100).for_each(|_| file.store());
    // Each call that waits has the file.
    while Arc::strong_count(&file) > 1 {
        std::thread::yield_now();
    }
    drop(hanging);
    assert!(file.unstored.load(Relaxed), "it is stored later");
}

#[test]
fn only_a_version_that_a_listed_key_signed_stays() {
    let key = || {
        let der = BASE64_STANDARD.encode(rcgen::KeyPair::generate().unwrap().subject_public_key_info());
        format!("-----BEGIN PUBLIC KEY-----\n{der}\n-----END PUBLIC KEY-----\n")
    };
    let one = key();
    let other = key();
    let directory = tempfile::tempdir().unwrap();
    let rules = |keys: &[&String]| {
        let images = serde_json::json!({ "signatureRequired": !keys.is_empty(), "signatureKeys": keys });
        let images = if keys.is_empty() { serde_json::json!({}) } else { images };
        let registries = serde_json::json!([{ "host": "registry.example" }]);
        let spec = serde_json::json!({ "registries": registries, "defaults": { "images": images } });
        let policy = Policy::read(&write(directory.path(), &spec.to_string())).unwrap();
        Arc::new(Rules { policy: Some(policy), ..Rules::default() })
    };
    let image = format!("registry.example/a@sha256:{}", "0".repeat(64));
    let signed = PluginSpec { source: Source::Oci { image, pull_secret: None }, ..spec() };
    let stays = |signer: Option<&String>, now: &[&String]| {
        rules(now).trusts(&signed, signer.map(|key| Key::from_pem(key).unwrap()).as_ref())
    };
    assert!(stays(Some(&one), &[&other, &one]) && stays(Some(&one), &[]) && stays(None, &[]));
    assert!(stays(Some(&one), &[&one]), "the other key signed nothing");
    assert!(!stays(Some(&one), &[&other]), "of a key that is not listed any more");
    assert!(!stays(None, &[&one]), "it was not verified");
    assert!(rules(&[&other]).trusts(&spec(), None), "a file needs no signature");
}
