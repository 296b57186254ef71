//! A run whose future is dropped at any of its await points releases everything: its sandbox, its world, its handles,
//! the memory that its key has taken. The next run of the key is as if the dropped one had not been.
//!
//! `sandbox` drops runs of the engine, `dispatch` those of the whole way of a key. PODIUM_CANCELLATIONS is how many are
//! dropped in all; `just test-cancel`.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a panic is how a test fails; a long run shows progress")]

mod dispatch;
mod sandbox;

use std::{
    env,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use podium_runtime::{Engine, Plugin};
use podium_tests::{guests, programs::Program, sandbox as rig};
use podium_vocabulary::{LimitClass, PluginSpec};

/// Counts the runs that a test dropped, and prints the count after each twentieth.
struct Dropped {
    test: &'static str,
    runs: u64,
    of: u64,
}

impl Dropped {
    /// Counts to `usual`, or to one part of `parts` of PODIUM_CANCELLATIONS.
    fn new(test: &'static str, usual: u64, parts: u64) -> Self {
        let asked = env::var("PODIUM_CANCELLATIONS").map(|asked| asked.parse::<u64>().unwrap() / parts);
        Self { test, runs: 0, of: asked.unwrap_or(usual) }
    }

    fn is_enough(&self) -> bool {
        self.runs >= self.of
    }

    fn add(&mut self) {
        self.runs += 1;
        if self.runs.is_multiple_of((self.of / 20).max(1)) {
            println!("{}: {} of {} dropped", self.test, self.runs, self.of);
        }
    }
}

/// The guest `caller` with grants of everything within its namespace.
fn caller() -> PluginSpec {
    let mut spec = rig::spec("caller");
    spec.grants = rig::everything();
    spec.limits.class = LimitClass::Interpreter;
    spec.limits.cpu = Duration::from_secs(1);
    spec
}

fn load(engine: &Engine, spec: &PluginSpec) -> Plugin {
    engine.compile(spec, &guests::component("caller").unwrap()).unwrap()
}

/// Calls every kind of function that waits, between others that have something in hand.
fn program() -> Program {
    let mut program = Program::default();
    program.get("shop", "cart-0");
    program.get_live("shop", "cart-0");
    program.set_label(None, "guests.example/a", "1");
    program.emit(None, "Called", "a note");
    program.commit();
    program.log("between");
    program.put_state("key", "value");
    program.set_label(None, "guests.example/b", "2");
    program.apply_object(r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"shop","name":"a"}}"#, None);
    program.commit();
    program.get_live("shop", "no-such");
    program.get_state("key");
    program.set_label(None, "guests.example/c", "3");
    program
}

/// Polls a future `polls` times, and drops it then. Returns its output if it was ready before.
fn drop_after<F: Future>(polls: u32, future: F) -> Option<F::Output> {
    // No poll returns to tokio, whose resources are pending after some polls of a task that does not.
    let mut future = pin!(tokio::task::unconstrained(future));
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..polls {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
    }
    None
}

/// A future that is pending a number of times.
async fn pending(times: u32) {
    for _ in 0..times {
        let mut polled = false;
        std::future::poll_fn(|context| {
            if polled {
                return Poll::Ready(());
            }
            polled = true;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}
