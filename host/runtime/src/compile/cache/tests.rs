//! The cache returns only code that this host has written, for this component and this engine.

use std::{
    fs::{OpenOptions, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
};

use podium_vocabulary::LimitClass;

use super::*;

/// Epoch milliseconds, long after the files of a test are written.
const NOW: u64 = 4_000_000_000_000;
const COMPONENT: Key = component(1);
const ENGINE: Sha256 = Sha256([2; 32]);

const fn component(number: u8) -> Key {
    Key { digest: Sha256([number; 32]), class: "native" }
}

fn of_tenant(name: &str) -> Owner {
    Owner::new(&Tenant::Namespace(name.into()), u64::MAX)
}

fn owner() -> Owner {
    of_tenant("shop")
}

fn artifact(length: usize) -> Artifact {
    Artifact::compiled((0..length).map(|at| (at % 251) as u8).collect())
}

fn keyed(byte: u8) -> impl FnOnce(&mut [u8]) -> io::Result<()> {
    move |key| {
        key.fill(byte);
        Ok(())
    }
}

fn open_cache(state: &Path) -> Cache {
    Cache::open(state, keyed(7), 0).unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn stored_code_is_read_after_a_restart() {
    let state = tempfile::tempdir().unwrap();
    let cache = open_cache(state.path());
    assert!(cache.load(COMPONENT, &ENGINE).is_none());
    cache.store(COMPONENT, &ENGINE, owner(), &artifact(5_000));
    let again = Cache::open(state.path(), |_| panic!("the key is there"), 0).unwrap();
    assert_eq!(again.load(COMPONENT, &ENGINE).unwrap().code(), artifact(5_000).code());
    assert!(again.load(component(3), &ENGINE).is_none());

    let path = again.path(COMPONENT);
    fs::rename(&path, again.path(component(3))).unwrap();
    assert!(again.load(component(3), &ENGINE).is_none(), "another component's code, under this one's name");
    again.store(COMPONENT, &ENGINE, owner(), &artifact(5_000));
    assert!(again.load(COMPONENT, &Sha256([3; 32])).is_none(), "another engine");
    assert!(!path.exists(), "it is of no use any more");
}

#[test]
fn a_process_that_is_stopped_with_the_lock_delays_no_other_one_for_long() {
    let state = tempfile::tempdir().unwrap();
    open_cache(state.path());
    let holder = private_file::open(&state.path().join(DIRECTORY)).unwrap();
    holder.lock().unwrap();
    let cache = open_cache(state.path());
    cache.store(COMPONENT, &ENGINE, owner(), &artifact(10));
    assert_eq!(cache.load(COMPONENT, &ENGINE).unwrap().code(), artifact(10).code());
    drop(holder);
}

#[test]
fn code_of_one_class_is_not_used_by_another() {
    let engine = wasmtime::Engine::default();
    let [native, interpreter] =
        [LimitClass::Native, LimitClass::Interpreter].map(|class| Sha256::of_engine(&engine, class));
    assert_ne!(native, interpreter);
    let state = tempfile::tempdir().unwrap();
    let cache = open_cache(state.path());
    let [native, interpreter] = [(component(1), native), (Key { class: "interpreter", ..component(1) }, interpreter)];
    cache.store(interpreter.0, &interpreter.1, owner(), &artifact(10));
    assert!(cache.load(native.0, &native.1).is_none());
    cache.store(native.0, &native.1, owner(), &artifact(20));
    let loaded = [native, interpreter].map(|(key, engine)| cache.load(key, &engine).unwrap().code().len());
    assert_eq!(loaded, [20, 10]);
    fs::rename(cache.path(interpreter.0), cache.path(native.0)).unwrap();
    assert!(cache.load(native.0, &native.1).is_none(), "under the name of the other class");
}

#[test]
fn the_directory_the_key_and_the_files_are_closed_to_others() {
    let state = tempfile::tempdir().unwrap();
    let cache = open_cache(state.path());
    cache.store(COMPONENT, &ENGINE, owner(), &artifact(10));
    assert_eq!(mode(&cache.directory), 0o700);
    assert_eq!(mode(&state.path().join(KEY_FILE)), 0o600);
    assert_eq!(mode(&cache.path(COMPONENT)), 0o600);
    assert_eq!(fs::read(state.path().join(KEY_FILE)).unwrap(), [7; 32]);

    set_mode(&cache.directory, 0o777);
    drop(open_cache(state.path()));
    assert_eq!(mode(&cache.directory), 0o700);
}

#[test]
fn no_bit_of_a_file_can_change_and_no_byte_be_missing_or_more() {
    let state = tempfile::tempdir().unwrap();
    let cache = open_cache(state.path());
    cache.store(COMPONENT, &ENGINE, owner(), &artifact(300));
    let path = cache.path(COMPONENT);
    let good = fs::read(&path).unwrap();
    assert_eq!(good.len(), HEADER_BYTES + 300 + MAC_BYTES);
    let put = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        set_mode(&path, 0o600);
    };
    // Magic, version, component, engine, length, code and MAC: all of it.
    for bit in 0..good.len() * 8 {
        let mut changed = good.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        put(&changed);
        assert!(cache.load(COMPONENT, &ENGINE).is_none(), "bit {bit}");
        assert!(!path.exists(), "bit {bit}: it is still there");
    }
    for length in 0..good.len() {
        put(&good[..length]);
        assert!(cache.load(COMPONENT, &ENGINE).is_none(), "{length} bytes");
    }
    for more in [&b"x"[..], &good] {
        put(&[&good, more].concat());
        assert!(cache.load(COMPONENT, &ENGINE).is_none(), "{} bytes more", more.len());
    }
    put(&good);
    assert!(cache.load(COMPONENT, &ENGINE).is_some());
}

/// The parts of a file with their lengths, for `code_bytes` bytes of code.
fn parts(code_bytes: usize) -> [(&'static str, usize); 8] {
    let names = ["magic", "version", "component", "engine", "length", "owner", "code", "MAC"];
    let lengths = [MAGIC.len(), VERSION.to_le_bytes().len(), 32, 32, 8, TAG_BYTES, code_bytes, MAC_BYTES];
    std::array::from_fn(|at| (names[at], lengths[at]))
}

/// PODIUM_CACHE_FLIPS makes it more; `just test-cache-flips`.
#[test]
fn no_byte_of_any_part_of_a_file_can_change() {
    const CODE_BYTES: usize = 20_000;
    let flips: u64 = std::env::var("PODIUM_CACHE_FLIPS").map_or(2_000, |flips| flips.parse().unwrap());
    let memory = Path::new("/dev/shm");
    let state = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
    let cache = open_cache(state.path());
    cache.store(COMPONENT, &ENGINE, owner(), &artifact(CODE_BYTES));
    let path = cache.path(COMPONENT);
    let good = fs::read(&path).unwrap();
    assert_eq!(parts(CODE_BYTES).iter().map(|(_, length)| length).sum::<usize>(), good.len());
    let mut random = 1_u64;
    let mut below = |end: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(random >> 33).unwrap() % end
    };
    let mut changed = good.clone();
    for flip in 0..flips {
        let mut start = 0;
        let part = below(parts(CODE_BYTES).len());
        parts(CODE_BYTES)[..part].iter().for_each(|(_, length)| start += length);
        let (name, length) = parts(CODE_BYTES)[part];
        let at = start + below(length);
        let by = 1 + below(255) as u8;
        changed[at] ^= by;
        fs::write(&path, &changed).unwrap();
        set_mode(&path, 0o600);
        assert!(cache.load(COMPONENT, &ENGINE).is_none(), "flip {flip}: byte {at}, of the {name}, by {by}");
        changed[at] ^= by;
    }
    fs::write(&path, &good).unwrap();
    set_mode(&path, 0o600);
    assert_eq!(cache.load(COMPONENT, &ENGINE).unwrap().code(), artifact(CODE_BYTES).code());
}

#[test]
fn files_of_another_key_are_unused_and_a_readable_key_replaced() {
    let state = tempfile::tempdir().unwrap();
    let cache = open_cache(state.path());
    let key = state.path().join(KEY_FILE);
    let spoil: [(&str, &dyn Fn()); 5] = [
        ("removed", &|| fs::remove_file(&key).unwrap()),
        ("open to others", &|| set_mode(&key, 0o640)),
        ("too short", &|| fs::write(&key, [7; 31]).unwrap()),
        ("too long", &|| fs::write(&key, [7; 33]).unwrap()),
        ("a symbolic link", &|| {
            fs::rename(&key, state.path().join("elsewhere")).unwrap();
            symlink(state.path().join("elsewhere"), &key).unwrap();
        }),
    ];
    for (what, spoil) in spoil {
        cache.store(COMPONENT, &ENGINE, owner(), &artifact(10));
        spoil();
        let other = Cache::open(state.path(), keyed(9), 0).unwrap();
        assert!(other.load(COMPONENT, &ENGINE).is_none(), "{what}");
        assert_eq!((fs::read(&key).unwrap(), mode(&key)), (vec![9; 32], 0o600), "{what}");
        fs::write(&key, [7; 32]).unwrap();
    }
}

#[test]
fn files_that_others_can_access_are_removed_without_reading() {
    let state = tempfile::tempdir().unwrap();
    let cache = open_cache(state.path());
    let path = cache.path(COMPONENT);
    let elsewhere = state.path().join("elsewhere");
    cache.store(COMPONENT, &ENGINE, owner(), &artifact(10));
    fs::copy(&path, &elsewhere).unwrap();
    let spoil: [(&str, &dyn Fn()); 5] = [
        ("readable to its group", &|| set_mode(&path, 0o640)),
        ("writable for all", &|| set_mode(&path, 0o602)),
        ("a symbolic link", &|| {
            fs::remove_file(&path).unwrap();
            symlink(&elsewhere, &path).unwrap();
        }),
        ("a pipe", &|| {
            fs::remove_file(&path).unwrap();
            assert!(std::process::Command::new("mkfifo").args(["-m", "600"]).arg(&path).status().unwrap().success());
        }),
        // Sparse: it would not go unnoticed if it were read.
        ("too long", &|| OpenOptions::new().write(true).open(&path).unwrap().set_len(8 << 40).unwrap()),
    ];
    for (what, spoil) in spoil {
        cache.store(COMPONENT, &ENGINE, owner(), &artifact(10));
        assert!(cache.load(COMPONENT, &ENGINE).is_some());
        spoil();
        assert!(cache.load(COMPONENT, &ENGINE).is_none(), "{what}");
        assert!(fs::symlink_metadata(&path).is_err(), "{what}: it is still there");
    }
    assert_eq!(fs::read(&elsewhere).unwrap().len(), HEADER_BYTES + 10 + MAC_BYTES, "what links led to stays");
}

#[test]
fn a_directory_that_is_a_symbolic_link_or_a_file_is_not_used() {
    let state = tempfile::tempdir().unwrap();
    let directory = state.path().join(DIRECTORY);
    fs::create_dir(state.path().join("elsewhere")).unwrap();
    symlink("elsewhere", &directory).unwrap();
    assert!(Cache::open(state.path(), keyed(7), 0).is_err());
    fs::remove_file(&directory).unwrap();
    fs::write(&directory, "x").unwrap();
    assert!(Cache::open(state.path(), keyed(7), 0).is_err());
    assert!(!state.path().join(KEY_FILE).exists());
}

#[test]
fn a_disk_that_takes_nothing_costs_no_plugin() {
    let state = tempfile::tempdir().unwrap();
    let cache = open_cache(state.path());
    // A folder instead of the file, which cannot be removed as a file.
    fs::create_dir(cache.path(COMPONENT)).unwrap();
    cache.store(COMPONENT, &ENGINE, owner(), &artifact(10));
    assert!(cache.load(COMPONENT, &ENGINE).is_none());
    fs::remove_dir_all(&cache.directory).unwrap();
    cache.store(COMPONENT, &ENGINE, owner(), &artifact(10));
    assert!(cache.load(COMPONENT, &ENGINE).is_none());
}

#[test]
fn a_disk_that_hangs_is_waited_for_once_until_it_answers() {
    let state = tempfile::tempdir().unwrap();
    let cache = Arc::new(Cache { give_up: Duration::from_millis(50), ..open_cache(state.path()) });
    cache.store(component(0), &ENGINE, owner(), &artifact(10));
    let store = |number| cache.call(move |cache| cache.store(component(number), &ENGINE, owner(), &artifact(10)));
    let loads = |number| cache.call(move |cache| cache.load(component(number), &ENGINE)).flatten().is_some();
    let hanging = cache.storing.lock();
    assert!(store(1).is_none());
    assert!((0..10).all(|_| store(2).is_none() && !loads(0)), "no call before the one that hangs has ended");
    // Other files of the host do not wait for it.
    cache.keep("policy.last", b"kept").unwrap();
    drop(hanging);
    while !loads(0) {
        thread::yield_now();
    }
    assert!(cache.path(component(1)).exists() && !cache.path(component(2)).exists());
}

#[test]
fn the_least_recently_used_code_is_evicted() {
    let state = tempfile::tempdir().unwrap();
    let file = (HEADER_BYTES + 1_000 + MAC_BYTES) as u64;
    let cache = open_cache(state.path()).with_max_bytes(3 * file);
    let used = |number: u8, seconds| {
        let file = OpenOptions::new().write(true).open(cache.path(component(number))).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    };
    for number in 0..3 {
        cache.store(component(number), &ENGINE, owner(), &artifact(1_000));
        used(number, 1_000 + u64::from(number));
    }
    // Its use makes it the newest.
    assert!(cache.load(component(0), &ENGINE).is_some());
    cache.store(component(3), &ENGINE, owner(), &artifact(1_000));
    let there: Vec<_> = (0..4).filter(|number| cache.path(component(*number)).exists()).collect();
    assert_eq!(there, [0, 2, 3]);
    cache.store(component(4), &ENGINE, owner(), &artifact(4_000));
    assert!(!cache.path(component(4)).exists(), "more than the whole cache");
}

#[test]
fn a_tenant_evicts_its_own_files_first() {
    let state = tempfile::tempdir().unwrap();
    let file = (HEADER_BYTES + 1_000 + MAC_BYTES) as u64;
    let cache = open_cache(state.path()).with_max_bytes(6 * file);
    let store = |number: u8, owner: Owner| {
        cache.store(component(number), &ENGINE, owner, &artifact(1_000));
        if let Ok(file) = OpenOptions::new().write(true).open(cache.path(component(number))) {
            file.set_modified(UNIX_EPOCH + Duration::from_secs(1_000 + u64::from(number))).unwrap();
        }
    };
    let there = || (0..200).filter(|number| cache.path(component(*number)).exists()).collect::<Vec<_>>();
    (0..2).for_each(|number| store(number, of_tenant("bank")));
    (10..30).for_each(|number| store(number, of_tenant("loud")));
    assert_eq!(there(), [0, 1, 26, 27, 28, 29]);
    // The files of the tenant with the most are removed, until all have the same.
    (40..44).for_each(|number| store(number, of_tenant("late")));
    assert_eq!(there(), [0, 1, 28, 29, 42, 43]);
    let bounded = Owner { max_bytes: file, ..of_tenant("bank") };
    store(50, bounded);
    assert_eq!(there(), [28, 29, 42, 43, 50], "within what the tenant may have");
    cache.store(component(51), &ENGINE, bounded, &artifact(1_001));
    assert!(!cache.path(component(51)).exists());
}

#[test]
fn no_tenant_evicts_a_file_of_the_platform() {
    let state = tempfile::tempdir().unwrap();
    let file = (HEADER_BYTES + 1_000 + MAC_BYTES) as u64;
    let cache = open_cache(state.path()).with_max_bytes(3 * file);
    let store = |number: u8, owner| cache.store(component(number), &ENGINE, owner, &artifact(1_000));
    let there = || (0..9).filter(|number| cache.path(component(*number)).exists()).collect::<Vec<_>>();
    (0..2).for_each(|number| store(number, Owner::PLATFORM));
    (2..5).for_each(|number| store(number, of_tenant("loud")));
    assert_eq!(there(), [0, 1, 4]);
    // A file without a header has no owner.
    fs::write(cache.path(component(5)), "").unwrap();
    store(6, of_tenant("loud"));
    store(7, of_tenant("bank"));
    assert_eq!(there(), [0, 1, 5, 7], "the empty file takes no space");
}

#[test]
fn old_and_unfinished_files_are_removed_at_a_start() {
    let state = tempfile::tempdir().unwrap();
    let cache = open_cache(state.path());
    for number in 0..2 {
        cache.store(component(number), &ENGINE, owner(), &artifact(10));
        let file = OpenOptions::new().write(true).open(cache.path(component(number))).unwrap();
        let age = MAX_AGE + Duration::from_secs(1) - Duration::from_secs(2) * number.into();
        file.set_modified(UNIX_EPOCH + Duration::from_millis(NOW) - age).unwrap();
    }
    let unfinished = cache.path(COMPONENT).with_extension("next");
    fs::write(&unfinished, "x").unwrap();
    let cache = Cache::open(state.path(), keyed(7), NOW).unwrap();
    let there = [0, 1].map(|number| cache.path(component(number)).exists());
    assert_eq!((there, unfinished.exists()), ([false, true], false));
}

#[test]
fn the_files_of_one_owner_go_by_their_last_use() {
    let state = tempfile::tempdir().unwrap();
    let file = (HEADER_BYTES + 1_000 + MAC_BYTES) as u64;
    let cache = open_cache(state.path()).with_one_owner(3 * file);
    for (number, owner) in [(0, Owner::PLATFORM), (1, of_tenant("shop")), (2, of_tenant("bank"))] {
        cache.store(component(number), &ENGINE, owner, &artifact(1_000));
        let path = cache.path(component(number));
        let used = UNIX_EPOCH + Duration::from_millis(NOW) + Duration::from_secs(number.into());
        OpenOptions::new().write(true).open(path).unwrap().set_modified(used).unwrap();
    }
    cache.store(component(3), &ENGINE, of_tenant("shop"), &artifact(1_000));
    let there: Vec<_> = (0..4).filter(|number| cache.path(component(*number)).exists()).collect();
    assert_eq!(there, [1, 2, 3], "the runner was used first");
}

#[test]
fn processes_that_store_at_the_same_time_spoil_no_file() {
    let state = tempfile::tempdir().unwrap();
    open_cache(state.path()).store(COMPONENT, &ENGINE, owner(), &artifact(200_000));
    thread::scope(|scope| {
        for _ in 0..3 {
            // Another process has a cache, and with it a lock, of its own.
            scope.spawn(|| {
                for _ in 0..50 {
                    let cache = Cache::open(state.path(), |_| panic!("the key is there"), 0).unwrap();
                    assert!(cache.read(&cache.path(COMPONENT), COMPONENT, &ENGINE).unwrap().is_some());
                    cache.write(&cache.path(COMPONENT), COMPONENT, &ENGINE, owner(), artifact(200_000).code()).unwrap();
                }
            });
        }
    });
}
