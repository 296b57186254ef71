//! One run: a fresh sandbox or one that is kept for the plugin, one call, and the classification of its end.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use podium_engine::ports::{Failure, FailureKind, Outcome, Request, RunReport, Staged, Subject, Usage, World};
use podium_vocabulary::{Refused, text::MESSAGE_BYTES, with_inputs};
use podium_wire::refusal;
use tokio::{sync::OwnedSemaphorePermit, time::Instant};
use wasmtime::{
    AsContextMut, Store, Trap, UpdateDeadline,
    component::{ComponentType, Lower},
};

use super::{
    bindings::types,
    failure::{failure, is_argument_too_large, of_error, of_panic},
    hostcalls,
    limits::{self, CutReason},
    linking::{Json, Records},
    meter::Size,
    offer::WorldKind,
    plugin::Plugin,
    reads::Format,
    run::{PluginContext, Run},
    sandboxes::Sandbox,
    script::{Prepared, Runner},
    sending,
    text::cut,
    ticker::Ticking,
};

/// Handles that a guest can hold at once; none but WASI guests hold any.
const COMPONENT_HANDLES: usize = 256;
/// A longer wait than a month is a month: timers further away overflow.
const LONGEST_REQUEUE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The guest's answer, or the reason that there is none.
type Answer = Result<Result<types::Outcome, types::Failure>, wasmtime::Error>;

/// `request` of `reconciler` and `reconciler-json`, which differ in the form of a Pod.
#[derive(ComponentType, Lower)]
#[component(record)]
struct GuestRequest<P> {
    key: types::PodKey,
    subject: GuestSubject<P>,
    #[component(name = "now-millis")]
    now_millis: u64,
    attempt: u32,
    config: String,
    #[component(name = "unsettled-writes")]
    unsettled_writes: Vec<types::WriteReport>,
}

#[derive(ComponentType, Lower)]
#[component(variant)]
enum GuestSubject<P> {
    #[component(name = "present")]
    Present(P),
    #[component(name = "deleted")]
    Deleted(Option<P>),
}

/// Where a run finds its sandbox.
enum SandboxSource {
    Kept(Sandbox),
    New(OwnedSemaphorePermit),
}

impl Plugin {
    /// Dropping the future ends the guest where it waits, and frees its sandbox.
    pub(super) async fn run(&self, request: Request, world: Box<dyn World>) -> RunReport<Staged> {
        let limits = self.context.limits;
        let sandboxes = &self.core.sandboxes;
        let kept = if limits.reuse > 1 { sandboxes.take(self.load) } else { None };
        // Waiting for a sandbox is the host's affair, so the plugin's deadline begins behind it.
        let place = match kept {
            Some(kept) => SandboxSource::Kept(kept),
            None => match sandboxes.place().await {
                Some(place) => SandboxSource::New(place),
                None => return failed(failure(FailureKind::Host, "the engine is shut down")),
            },
        };
        let ticking = self.core.ticking().await;
        let lost = || ticking.as_ref().map_or(Some(Duration::ZERO), Ticking::lost);
        let started = Instant::now();
        let mut sandbox = match self.sandbox(place, (request.now_millis, request.seed), world) {
            Ok(sandbox) => sandbox,
            Err(error) => return failed(failure(FailureKind::Host, &format!("no sandbox: {error:#}"))),
        };
        let run = sandbox.store.data();
        let wall = Arc::clone(&run.wall);
        let spent = Arc::clone(&run.spent);
        let call = AssertUnwindSafe(self.call(&mut sandbox, request)).catch_unwind();
        let ended = wall.within(spent.within(call), lost).await;
        let fuel = limits::fuel(limits.cpu).saturating_sub(sandbox.store.get_fuel().unwrap_or_default());
        let run = sandbox.store.data_mut();
        let mut logged = Ok(());
        if run.has_open_log() {
            // The panic may have been in the world, which the log uses.
            logged = spent.within(async { std::panic::catch_unwind(AssertUnwindSafe(|| run.close_log())) }).await;
        }
        // Sending after the run is not measured.
        let cpu = spent.cpu().map_or_else(|| limits::time(fuel), |cpu| cpu + limits::time(run.sending));
        let result = match ended {
            None => Err(failure(FailureKind::Deadline, &format!("ran longer than {:?}", limits.wall))),
            Some(Err(panic)) => Err(of_panic(&*panic)),
            Some(Ok(Err(refused))) => Err(failure(FailureKind::Host, &refused.to_string())),
            Some(Ok(Ok(answer))) => settle(answer, run),
        };
        let result = result.map_err(|failure| explained(failure, run));
        let result = logged.map_err(|panic| of_panic(&*panic)).and(result);
        let usage = Usage {
            fuel,
            cpu,
            // Unknown directly after a stop of the process.
            wall: lost().map_or(Duration::ZERO, |lost| started.elapsed().saturating_sub(lost)),
            host_calls: run.budget.host_calls,
            memory_bytes: run.limiter.memory_bytes(),
            writes: run.budget.writes,
            log_bytes: limits.log_bytes - run.budget.log_bytes_left(),
        };
        let staged = if result.is_ok() { std::mem::take(&mut run.staged) } else { Staged::default() };
        if result.is_ok() && sandbox.runs < limits.reuse {
            sandboxes.keep(self.load, sandbox);
        }
        RunReport { result, staged, usage }
    }

    /// Creates an instance within the limits of a run, and drops it.
    pub(super) async fn instantiate_once(&self, world: Box<dyn World>) -> Result<(), Failure> {
        self.at_load(world, None).await.map(drop)
    }

    /// Creates an instance within the limits of a run, has it prepare a script if there is one, and drops it.
    pub(super) async fn at_load(
        &self,
        world: Box<dyn World>,
        script: Option<(&Runner, &str)>,
    ) -> Result<Option<Prepared>, Failure> {
        let Some(place) = self.core.sandboxes.place().await else {
            return Err(failure(FailureKind::Host, "the engine is shut down"));
        };
        let ticking = self.core.ticking().await;
        let lost = || ticking.as_ref().map_or(Some(Duration::ZERO), Ticking::lost);
        let mut sandbox = self
            .sandbox(SandboxSource::New(place), (0, 0), world)
            .map_err(|error| failure(FailureKind::Host, &format!("no sandbox: {error:#}")))?;
        let run = sandbox.store.data();
        let wall = Arc::clone(&run.wall);
        let spent = Arc::clone(&run.spent);
        let store = &mut sandbox.store;
        let call = async {
            match script {
                Some((runner, source)) => runner.call_prepare(store, source).await.map(Some),
                None => self.linked.instance.instantiate_async(store).await.map(|_| None),
            }
        };
        match wall.within(spent.within(AssertUnwindSafe(call).catch_unwind()), lost).await {
            None => Err(failure(FailureKind::Deadline, &format!("ran longer than {:?}", self.context.limits.wall))),
            Some(Err(panic)) => Err(of_panic(&*panic)),
            Some(Ok(made)) => made.map_err(|error| of_error(&error, sandbox.store.data().budget.last_words())),
        }
    }

    /// Prepares a sandbox for a run at a time and with a seed: a new one, or one that is kept for this plugin.
    fn sandbox(
        &self,
        place: SandboxSource,
        (now_millis, seed): (u64, u64),
        world: Box<dyn World>,
    ) -> wasmtime::Result<Sandbox> {
        let meter = self.core.meter.clone();
        let mut sandbox = match place {
            SandboxSource::Kept(mut kept) => {
                kept.store.data_mut().restart(world, meter, now_millis, seed);
                kept
            }
            SandboxSource::New(place) => {
                let run = Run::new(Arc::clone(&self.context), world, meter, now_millis, seed);
                Sandbox { store: self.store(run)?, instance: None, runs: 0, _place: place }
            }
        };
        sandbox.runs = sandbox.runs.saturating_add(1);
        let store = &mut sandbox.store;
        store.set_fuel(limits::fuel(self.context.limits.cpu))?;
        hostcalls::pay(store.as_context_mut(), 0)?;
        store.set_epoch_deadline(1);
        Ok(sandbox)
    }

    fn store(&self, run: Run) -> wasmtime::Result<Store<Run>> {
        let mut store = Store::try_new(&self.core.engine, run)?;
        store.limiter(|run| &mut run.limiter);
        store.call_hook(hostcalls::hook);
        store.set_max_component_handles(COMPONENT_HANDLES);
        // Without a ticker the epoch never moves, and this never fires.
        store.epoch_deadline_callback(|store| {
            store.data().context.profiler.sample(&store);
            store.data().spent.check()?;
            Ok(UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now())))
        });
        Ok(store)
    }

    /// The error is the host's: the Pod cannot be rendered.
    async fn call(&self, sandbox: &mut Sandbox, request: Request) -> Result<Answer, Refused> {
        match self.compiled.inspected.world {
            WorldKind::Native => self.call_with::<Records>(sandbox, request).await,
            WorldKind::Json | WorldKind::Script => self.call_with::<Json>(sandbox, request).await,
        }
    }

    async fn call_with<F: Format>(&self, sandbox: &mut Sandbox, request: Request) -> Result<Answer, Refused> {
        let Sandbox { store, instance, .. } = sandbox;
        let least = match &request.subject {
            Subject::Present(pod) | Subject::Deleted(Some(pod)) => F::least_price(pod, self.context.sections),
            Subject::Deleted(None) => 0,
        };
        if let Err(error) = hostcalls::pay(store.as_context_mut(), least) {
            return Ok(Err(error));
        }
        let (request, price) = rendered::<F>(&self.context, request)?;
        let answer = async {
            charge(store, request.config.len(), price.saturating_sub(least))?;
            let instance = match instance {
                Some(instance) => instance,
                none => none.insert(self.linked.instance.instantiate_async(&mut *store).await?),
            };
            let reconcile = instance.get_typed_func::<_, (Result<_, _>,)>(&mut *store, &self.linked.reconcile)?;
            let (answer,) = reconcile.call_async(&mut *store, (&request,)).await?;
            if answer.is_ok() {
                charge_sending(store)?;
            }
            Ok(answer)
        };
        Ok(answer.await)
    }
}

/// The run pays for its request, with a configuration of this size and a Pod of this price.
fn charge(store: &mut Store<Run>, config: usize, pod: u64) -> wasmtime::Result<()> {
    let config = Size { bytes: config, values: 1 };
    hostcalls::pay(store.as_context_mut(), config.rendered().saturating_add(pod))
}

/// Charges the run for the writes and Events that are sent after it.
fn charge_sending(store: &mut Store<Run>) -> wasmtime::Result<()> {
    let left = store.get_fuel()?;
    let run = store.data_mut();
    if run.staged.writes.is_empty() && run.staged.events.is_empty() {
        return Ok(());
    }
    let price = sending::price_of(&run.staged, run.objects, run.world.view(), left);
    hostcalls::pay(store.as_context_mut(), price)?;
    store.data_mut().sending = price;
    Ok(())
}

/// Returns the request with its Pod in this form, and the price of the Pod.
fn rendered<F: Format>(context: &PluginContext, request: Request) -> Result<(GuestRequest<F::Pod>, u64), Refused> {
    let mut price = 0;
    let mut render = |pod: &_| {
        let (rendered, its_price) = F::pod(pod, context.sections)?;
        price = its_price;
        Ok(rendered)
    };
    let config = match &request.inputs {
        Some(inputs) => with_inputs(&context.config, inputs),
        None => context.config.to_string(),
    };
    let request = GuestRequest {
        key: (&request.key).into(),
        subject: match &request.subject {
            Subject::Present(pod) => GuestSubject::Present(render(pod)?),
            Subject::Deleted(pod) => GuestSubject::Deleted(pod.as_deref().map(&mut render).transpose()?),
        },
        now_millis: request.now_millis,
        attempt: request.attempt,
        config,
        unsettled_writes: request.unsettled.into_iter().map(Into::into).collect(),
    };
    Ok((request, price))
}

fn settle(answer: Answer, run: &Run) -> Result<Outcome, Failure> {
    match answer {
        Ok(Ok(types::Outcome::Settled)) => Ok(Outcome::Settled),
        Ok(Ok(types::Outcome::Stop)) => Ok(Outcome::Stop),
        Ok(Ok(types::Outcome::RequeueAfterMillis(millis))) => {
            Ok(Outcome::RequeueAfter(Duration::from_millis(millis).min(LONGEST_REQUEUE)))
        }
        Ok(Err(types::Failure::Retry(text))) => Err(failure(FailureKind::Retry, &text)),
        Ok(Err(types::Failure::Terminal(text))) => Err(failure(FailureKind::Terminal, &text)),
        Err(error) if run.empty_table.is_some() => {
            let cut = CutReason::Calls { limit: run.context.limits.host_calls };
            Err(of_error(&error.context(cut), run.budget.last_words()))
        }
        Err(error) if is_argument_too_large(&error) => {
            let limit = run.call_bytes();
            let error = match run.allowance < limit {
                true => error.context(Trap::OutOfFuel),
                false => error.context(CutReason::Arguments { limit }),
            };
            Err(of_error(&error, run.budget.last_words()))
        }
        Err(error) => Err(of_error(&error, run.budget.last_words())),
    }
}

/// Adds to a failure the limit that it exceeded, or else why the latest refused call was refused.
fn explained(failed: Failure, run: &Run) -> Failure {
    let limits = run.context.limits;
    let reason = match failed.kind {
        FailureKind::Cpu => {
            let millis = limits.cpu.as_millis();
            let fuel = limits::fuel(limits.cpu);
            Some(format!("{}; {millis} ms are {fuel} units of fuel", refusal::used_up("cpuMillis", millis)))
        }
        FailureKind::Memory => Some(format!("spec.limits.memoryMiB is {}", limits.memory_bytes >> 20)),
        FailureKind::Deadline => Some(refusal::used_up("wallMillis", limits.wall.as_millis())),
        FailureKind::Retry | FailureKind::Terminal | FailureKind::Trap => run.refusal.clone(),
        FailureKind::Revoked | FailureKind::Host => None,
    };
    let Some(reason) = reason else { return failed };
    let own = cut(&failed.message, MESSAGE_BYTES.saturating_sub(reason.len() + 2));
    failure(failed.kind, &format!("{own}; {reason}"))
}

fn failed(failure: Failure) -> RunReport<Staged> {
    RunReport { result: Err(failure), staged: Staged::default(), usage: Usage::default() }
}
