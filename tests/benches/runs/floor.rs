//! The cost of wasmtime without Podium: a new store and instance from the pool, a call, host calls, and a computation,
//! with and without metering. Podium always meters both ways.

use podium_tests::{guests, modules::Module};
use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Store, StoreContextMut,
    component::{Component, HasSelf, Linker},
};

use self::bindings::{
    PluginPre,
    exports::podium::reconcile::reconciler::{Request, Subject},
    podium::reconcile::{pods, types},
};
use super::{
    Case,
    cases::{EMPTY, reader},
};

mod bindings {
    wasmtime::component::bindgen!({ path: "../wit", world: "plugin", exports: { default: async } });
}

/// Answers every read with the same bytes.
struct Host {
    pod: Vec<u8>,
}

impl types::Host for Host {}

impl pods::Host for Host {
    fn get(&mut self, _: String, _: String) -> Result<Option<Vec<u8>>, types::CallError> {
        Ok(Some(self.pod.clone()))
    }
    fn find(&mut self, _: types::PodQuery, _: u32, _: Option<String>) -> Result<pods::Page, types::CallError> {
        Err(types::CallError::NotGranted)
    }
    fn count(&mut self, _: types::PodQuery) -> Result<u64, types::CallError> {
        Err(types::CallError::NotGranted)
    }
    fn get_live(&mut self, _: String, _: String) -> Result<Option<Vec<u8>>, types::CallError> {
        Err(types::CallError::NotGranted)
    }
}

#[derive(Clone, Copy)]
struct Metering {
    name: &'static str,
    fuel: bool,
    epoch: bool,
}

const METERING: [Metering; 4] = [
    Metering { name: "no metering", fuel: false, epoch: false },
    Metering { name: "epoch", fuel: false, epoch: true },
    Metering { name: "fuel", fuel: true, epoch: false },
    Metering { name: "fuel and epoch", fuel: true, epoch: true },
];

/// Sums 64 KiB of memory ten times: loads, additions and a branch.
const SUM: &str = "
    (global.set $heap (i32.const 4096))
    (local.set $end (i32.const 10))
    (loop $times
        (local.set $at (i32.const 65536))
        (loop $words
            (global.set $sum (i32.add (global.get $sum) (i32.load (local.get $at))))
            (local.set $at (i32.add (local.get $at) (i32.const 4)))
            (br_if $words (i32.lt_u (local.get $at) (i32.const 131072))))
        (local.set $end (i32.sub (local.get $end) (i32.const 1)))
        (br_if $times (local.get $end)))";

pub(super) fn all() -> Vec<Case> {
    let empty = Module { reconcile: EMPTY, ..Module::default() }.component().unwrap();
    let sum = Module { fields: "(global $sum (mut i32) (i32.const 0))", reconcile: SUM, ..Module::default() };
    let sum = sum.component().unwrap();
    let (hundred, good) = (reader(100), guests::component("good").unwrap());
    let mut cases = Vec::new();
    for metering in METERING {
        let name = |what: &str| format!("floor, {}: {what}", metering.name);
        cases.push(fresh(name("new instance, nothing"), 1, metering, &empty));
        cases.push(fresh(name("new instance, one read, one label, in Rust"), 1, metering, &good));
        cases.push(warm(name("same instance, nothing"), 1, metering, &empty));
        cases.push(warm(name("same instance, a hundred reads"), 100, metering, &hundred));
        cases.push(warm(name("same instance, 163,840 additions"), 163_840, metering, &sum));
    }
    cases
}

fn compile(metering: Metering, component: &[u8]) -> (Engine, PluginPre<Host>) {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(8).total_memories(8).total_tables(16).total_core_instances(64).total_stacks(8);
    pool.max_memory_size(256 << 20).linear_memory_keep_resident(256 << 10).table_keep_resident(16 << 10);
    pool.async_stack_keep_resident(48 << 10).pagemap_scan(Enabled::Auto);
    let mut config = Config::new();
    config.wasm_component_model(true).concurrency_support(false);
    config.consume_fuel(metering.fuel).epoch_interruption(metering.epoch);
    config.cranelift_nan_canonicalization(true).max_wasm_stack(512 << 10).async_stack_size(2 << 20);
    config.async_stack_zeroing(true).allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    let engine = Engine::new(&config).unwrap();
    let mut linker = Linker::new(&engine);
    types::add_to_linker::<Host, HasSelf<Host>>(&mut linker, |host| host).unwrap();
    pods::add_to_linker::<Host, HasSelf<Host>>(&mut linker, |host| host).unwrap();
    let mut writes = linker.instance("podium:reconcile/writes@0.1.0").unwrap();
    let set_label =
        |_: StoreContextMut<'_, Host>, _: (types::PodKey, String, String)| Ok((Ok::<_, types::CallError>(0_u32),));
    writes.func_wrap("set-label", set_label).unwrap();
    let component = Component::new(&engine, component).unwrap();
    let plugin = PluginPre::new(linker.instantiate_pre(&component).unwrap()).unwrap();
    (engine, plugin)
}

fn store(engine: &Engine, metering: Metering) -> Store<Host> {
    let mut store = Store::new(engine, Host { pod: vec![0; 200] });
    prepare(&mut store, metering);
    store
}

fn prepare(store: &mut Store<Host>, metering: Metering) {
    if metering.fuel {
        store.set_fuel(1 << 40).unwrap();
    }
    if metering.epoch {
        store.set_epoch_deadline(1);
    }
}

fn request() -> Request {
    Request {
        key: types::PodKey { namespace: "shop".into(), name: "cart-0".into(), uid: "uid-of-cart-0".into() },
        subject: Subject::Present(vec![0; 200]),
        now_millis: 0,
        attempt: 1,
        config: "{}".into(),
        unsettled_writes: Vec::new(),
    }
}

fn fresh(name: String, parts: u32, metering: Metering, component: &[u8]) -> Case {
    let (engine, plugin) = compile(metering, component);
    let request = request();
    let run = move |runtime: &tokio::runtime::Runtime| {
        runtime.block_on(async {
            let mut store = store(&engine, metering);
            let instance = plugin.instantiate_async(&mut store).await.unwrap();
            let answer = instance.podium_reconcile_reconciler().call_reconcile(&mut store, &request).await;
            answer.unwrap().unwrap();
        });
    };
    Case { name, parts, run: Box::new(run) }
}

fn warm(name: String, parts: u32, metering: Metering, component: &[u8]) -> Case {
    let (engine, plugin) = compile(metering, component);
    let request = request();
    let instances = std::sync::Mutex::new(Vec::new());
    let run = move |runtime: &tokio::runtime::Runtime| {
        let kept = instances.lock().unwrap().pop();
        let (mut store, instance) = match kept {
            Some(kept) => kept,
            None => {
                let mut store = store(&engine, metering);
                let instance = runtime.block_on(plugin.instantiate_async(&mut store)).unwrap();
                (store, instance)
            }
        };
        prepare(&mut store, metering);
        let answer = runtime.block_on(instance.podium_reconcile_reconciler().call_reconcile(&mut store, &request));
        answer.unwrap().unwrap();
        instances.lock().unwrap().push((store, instance));
    };
    Case { name, parts, run: Box::new(run) }
}
