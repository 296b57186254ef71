//! One run: a fresh sandbox, one call, and the classification of its end.

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use futures::FutureExt;
use podium_engine::ports::{Failure, FailureKind, Outcome, Request, RunReport, Staged, Subject, Usage, World};
use podium_pods::model::Refused;
use tokio::time::Instant;
use wasmtime::{AsContextMut, Store, Trap, UpdateDeadline};

use super::{
    bindings::{
        json::exports::podium::reconcile::reconciler_json, native::exports::podium::reconcile::reconciler, types,
    },
    failure::{failure, is_argument_too_large, of_error, of_panic},
    hostcalls,
    limits::{self, Cut},
    linking::{Json, Records},
    meter::Size,
    plugin::{Linked, Plugin},
    reads::Format,
    run::{Run, Terms},
};

/// Handles that a guest can hold at once; none but WASI guests hold any.
const COMPONENT_HANDLES: usize = 256;
/// A longer wait than a month is a month: timers further away overflow.
const LONGEST_REQUEUE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// What the guest answered, or why there is no answer.
type Answer = Result<Result<types::Outcome, types::Failure>, wasmtime::Error>;

impl Plugin {
    /// Dropping the future ends the guest where it waits, and frees its sandbox.
    pub(super) async fn run(&self, request: Request, world: Box<dyn World>) -> RunReport<Staged> {
        // Waiting for a sandbox is the host's affair, so the plugin's deadline begins behind it.
        let Ok(_slot) = self.core.slots.acquire().await else {
            return failed(failure(FailureKind::Host, "the engine is shut down"));
        };
        let _ticking = self.core.ticking().await;
        let limits = self.terms.limits;
        let started = Instant::now();
        let mut store = match self.store(&request, world) {
            Ok(store) => store,
            Err(error) => return failed(failure(FailureKind::Host, &format!("no sandbox: {error:#}"))),
        };
        let (wall, spent) = (Arc::clone(&store.data().wall), Arc::clone(&store.data().spent));
        let call = AssertUnwindSafe(self.call(&mut store, request)).catch_unwind();
        let ended = wall.within(spent.within(call)).await;
        let fuel = limits::fuel(limits.cpu).saturating_sub(store.get_fuel().unwrap_or_default());
        let cpu = spent.cpu().unwrap_or_else(|| limits::time(fuel));
        let mut run = store.into_data();
        // The world may be what panicked.
        let logged = std::panic::catch_unwind(AssertUnwindSafe(|| run.close_log()));
        let result = match ended {
            None => Err(failure(FailureKind::Deadline, &format!("ran longer than {:?}", limits.wall))),
            Some(Err(panic)) => Err(of_panic(&*panic)),
            Some(Ok(Err(refused))) => Err(failure(FailureKind::Host, &refused.to_string())),
            Some(Ok(Ok(answer))) => settle(answer, &run),
        };
        let result = logged.map_err(|panic| of_panic(&*panic)).and(result);
        let usage = Usage { fuel, cpu, host_calls: run.ledger.host_calls, wall: started.elapsed() };
        let staged = if result.is_ok() { run.staged } else { Staged::default() };
        RunReport { result, staged, usage }
    }

    fn store(&self, request: &Request, world: Box<dyn World>) -> wasmtime::Result<Store<Run>> {
        let limits = self.terms.limits;
        let meter = self.core.meter.clone();
        let run = Run::new(Arc::clone(&self.terms), world, meter, request.now_millis, request.seed);
        let mut store = Store::try_new(&self.core.engine, run)?;
        store.limiter(|run| &mut run.limiter);
        store.set_fuel(limits::fuel(limits.cpu))?;
        hostcalls::pay(store.as_context_mut(), 0)?;
        store.call_hook(hostcalls::hook);
        store.set_max_component_handles(COMPONENT_HANDLES);
        // Without a ticker the epoch never moves, and this never fires.
        store.set_epoch_deadline(1);
        store.epoch_deadline_callback(|store| {
            store.data().spent.check()?;
            Ok(UpdateDeadline::YieldCustom(1, Box::pin(tokio::task::yield_now())))
        });
        Ok(store)
    }

    /// The error is the host's: the Pod cannot be rendered.
    async fn call(&self, store: &mut Store<Run>, request: Request) -> Result<Answer, Refused> {
        Ok(match &self.linked {
            Linked::Native(linked) => {
                let request = native_request(&self.terms, request)?;
                let bytes = match &request.subject {
                    reconciler::Subject::Present(pod) => pod.len(),
                    reconciler::Subject::Deleted(pod) => pod.as_ref().map_or(0, Vec::len),
                };
                if let Err(error) = self.charge(store, bytes) {
                    return Ok(Err(error));
                }
                match linked.instantiate_async(&mut *store).await {
                    Ok(plugin) => plugin.podium_reconcile_reconciler().call_reconcile(store, &request).await,
                    Err(error) => Err(error),
                }
            }
            Linked::Json(linked) => {
                let request = json_request(&self.terms, request)?;
                let bytes = match &request.subject {
                    reconciler_json::Subject::Present(pod) => pod.len(),
                    reconciler_json::Subject::Deleted(pod) => pod.as_ref().map_or(0, String::len),
                };
                if let Err(error) = self.charge(store, bytes) {
                    return Ok(Err(error));
                }
                match linked.instantiate_async(&mut *store).await {
                    Ok(plugin) => plugin.podium_reconcile_reconciler_json().call_reconcile(store, &request).await,
                    Err(error) => Err(error),
                }
            }
        })
    }

    /// The run pays for its request, with a Pod of so many bytes.
    fn charge(&self, store: &mut Store<Run>, bytes: usize) -> wasmtime::Result<()> {
        let size = Size { bytes: bytes.saturating_add(self.terms.config.len()), values: 1 };
        hostcalls::pay(store.as_context_mut(), size.rendered())
    }
}

fn native_request(terms: &Terms, request: Request) -> Result<reconciler::Request, Refused> {
    let render = |pod: &_| Records::pod(pod, terms.sections);
    Ok(reconciler::Request {
        key: (&request.key).into(),
        subject: match &request.subject {
            Subject::Present(pod) => reconciler::Subject::Present(render(pod)?),
            Subject::Deleted(pod) => reconciler::Subject::Deleted(pod.as_deref().map(render).transpose()?),
        },
        now_millis: request.now_millis,
        attempt: request.attempt,
        config: terms.config.clone(),
        unsettled_writes: request.unsettled.into_iter().map(Into::into).collect(),
    })
}

fn json_request(terms: &Terms, request: Request) -> Result<reconciler_json::Request, Refused> {
    let render = |pod: &_| Json::pod(pod, terms.sections);
    Ok(reconciler_json::Request {
        key: (&request.key).into(),
        subject: match &request.subject {
            Subject::Present(pod) => reconciler_json::Subject::Present(render(pod)?),
            Subject::Deleted(pod) => reconciler_json::Subject::Deleted(pod.as_deref().map(render).transpose()?),
        },
        now_millis: request.now_millis,
        attempt: request.attempt,
        config: terms.config.clone(),
        unsettled_writes: request.unsettled.into_iter().map(Into::into).collect(),
    })
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
        Err(error) if run.shut.is_some() => {
            let cut = Cut::Calls { limit: run.terms.limits.host_calls };
            Err(of_error(&error.context(cut), run.ledger.last_words()))
        }
        Err(error) if is_argument_too_large(&error) => {
            let limit = run.call_bytes();
            let error = match run.allowance < limit {
                true => error.context(Trap::OutOfFuel),
                false => error.context(Cut::Arguments { limit }),
            };
            Err(of_error(&error, run.ledger.last_words()))
        }
        Err(error) => Err(of_error(&error, run.ledger.last_words())),
    }
}

fn failed(failure: Failure) -> RunReport<Staged> {
    RunReport { result: Err(failure), staged: Staged::default(), usage: Usage::default() }
}
