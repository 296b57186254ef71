//! The protocol between a subject and the driver: words on standard input and output, one line each.
//!
//! | in | out |
//! |---|---|
//! | | `ready` |
//! | `go` | `synced BEGUN NOW PODS`, once all are listed for the first time |
//! | `until REVISION` | `ok`, and `reached REVISION NOW`, once that is visible and queued |
//! | `record` | `ok`; from now on the time of every revision is kept |
//! | `times FILE` | `ok`; they are written there |
//! | `reads` | `reads SNAPSHOT GET`, nanoseconds each |
//! | `quit` | |
//!
//! Times are nanoseconds of the clock that all processes share. go/main.go uses the same protocol.

use std::{
    fmt::Write as _,
    fs,
    io::{self, BufRead, Write},
    process,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use anyhow::Context;
use tokio::sync::oneshot;

use crate::monotonic;

/// The duration of reads in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reads {
    pub(super) snapshot: u64,
    pub(super) get: u64,
}

pub(super) struct Control {
    target: AtomicU64,
    recording: AtomicBool,
    times: Mutex<Vec<(u64, u64)>>,
    begun: AtomicU64,
    is_synced: AtomicBool,
}

impl Control {
    /// Reads standard input on its own thread; the receiver is notified of `go`.
    pub(super) fn start(reads: impl Fn() -> Reads + Send + 'static) -> (Arc<Self>, oneshot::Receiver<()>) {
        let control = Arc::new(Self {
            target: AtomicU64::new(u64::MAX),
            recording: AtomicBool::new(false),
            times: Mutex::new(Vec::new()),
            begun: AtomicU64::new(0),
            is_synced: AtomicBool::new(false),
        });
        let (go, gone) = oneshot::channel();
        let listening = Arc::clone(&control);
        thread::spawn(move || {
            let ended = listening.listen(go, &reads);
            let code = i32::from(ended.is_err());
            if let Err(error) = ended {
                eprintln!("the subject's orders: {error:#}");
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "nothing is to be drained, and the one who measures is gone"
            )]
            process::exit(code);
        });
        (control, gone)
    }

    fn listen(&self, go: oneshot::Sender<()>, reads: &dyn Fn() -> Reads) -> anyhow::Result<()> {
        let mut go = Some(go);
        say("ready")?;
        for line in io::stdin().lock().lines() {
            let line = line?;
            let (word, argument) = line.split_once(' ').unwrap_or((&line, ""));
            match word {
                "go" => {
                    self.begun.store(monotonic::now(), Relaxed);
                    // An error means that it has begun before.
                    let _ = go.take().map(|go| go.send(()));
                }
                "until" => {
                    self.target.store(argument.parse()?, Relaxed);
                    say("ok")?;
                }
                "record" => {
                    self.recording.store(true, Relaxed);
                    say("ok")?;
                }
                "times" => {
                    self.recording.store(false, Relaxed);
                    let mut lines = String::new();
                    for (revision, time) in self.times.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
                        writeln!(lines, "{revision} {time}")?;
                    }
                    fs::write(argument, lines).with_context(|| format!("cannot write {argument}"))?;
                    say("ok")?;
                }
                "reads" => {
                    let Reads { snapshot, get } = reads();
                    say(&format!("reads {snapshot} {get}"))?;
                }
                "quit" => return Ok(()),
                word => anyhow::bail!("{word} is no order; see control.rs"),
            }
        }
        Ok(())
    }

    /// Reports that all Pods of a list are present. Only for the first list: a later report could come between two
    /// other lines.
    pub(super) fn synced(&self, pods: usize) -> io::Result<()> {
        if self.is_synced.swap(true, Relaxed) {
            return Ok(());
        }
        say(&format!("synced {} {} {pods}", self.begun.load(Relaxed), monotonic::now()))
    }

    /// Returns true while the time of every revision is recorded, not only the newest.
    pub(super) fn is_recording(&self) -> bool {
        self.recording.load(Relaxed)
    }

    /// Records that this revision is visible to readers, and that its keys are queued.
    pub(super) fn seen(&self, revision: u64) -> io::Result<()> {
        let now = monotonic::now();
        if self.is_recording() {
            self.times.lock().unwrap_or_else(PoisonError::into_inner).push((revision, now));
        }
        if revision >= self.target.load(Relaxed) {
            self.target.store(u64::MAX, Relaxed);
            say(&format!("reached {revision} {now}"))?;
        }
        Ok(())
    }
}

fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}

/// Returns the median time of one call; each call gets another number. Short calls are measured in batches, because
/// reading the clock takes longer.
pub(super) fn median(mut call: impl FnMut(usize)) -> u64 {
    const BATCHES: usize = 31;
    const LONG_ENOUGH: u64 = 100_000;
    let mut number = 0;
    let mut batch = |calls: usize| {
        let begun = monotonic::now();
        for _ in 0..calls {
            // A prime, so that consecutive numbers are not adjacent in memory.
            number += 7_919;
            call(number);
        }
        monotonic::now() - begun
    };
    let mut calls = 1;
    while batch(calls) < LONG_ENOUGH {
        calls *= 2;
    }
    let mut took: Vec<u64> = (0..BATCHES).map(|_| batch(calls) / calls as u64).collect();
    took.sort_unstable();
    took[BATCHES / 2]
}
