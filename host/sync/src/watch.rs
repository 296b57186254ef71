//! `tokio::sync::watch` as documented, without its value: each call is one step on a counter of the checker.

use std::{
    future::poll_fn,
    marker::PhantomData,
    sync::{Arc, Mutex, atomic::Ordering},
    task::{Poll, Waker},
};

#[cfg(podium_model = "loom")]
use ::loom::sync::atomic::AtomicUsize;
#[cfg(podium_model = "shuttle")]
use ::shuttle::sync::atomic::AtomicUsize;

/// The lowest bit of the version: the sender was dropped.
const CLOSED: usize = 1;

#[derive(Debug)]
struct Shared {
    version: AtomicUsize,
    /// The same version, which the checkers do not see.
    newest: std::sync::atomic::AtomicUsize,
    /// The checkers do not see this lock, and no thread ever blocks on it: no step happens under it.
    waiting: Mutex<Vec<Waker>>,
}

impl Shared {
    fn advance(&self, by: usize) {
        self.version.fetch_add(by, Ordering::Release);
        self.newest.fetch_add(by, Ordering::SeqCst);
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap());
        waiting.into_iter().for_each(Waker::wake);
    }
}

#[derive(Debug)]
pub struct Sender<T>(Arc<Shared>, PhantomData<T>);

#[derive(Debug, Clone)]
pub struct Receiver<T> {
    shared: Arc<Shared>,
    seen: usize,
    value: PhantomData<T>,
}

#[derive(Debug)]
pub struct Closed;

pub fn channel<T>(_: T) -> (Sender<T>, Receiver<T>) {
    let shared =
        Arc::new(Shared { version: AtomicUsize::new(0), newest: Default::default(), waiting: Mutex::default() });
    (Sender(Arc::clone(&shared), PhantomData), Receiver { shared, seen: 0, value: PhantomData })
}

impl<T> Sender<T> {
    pub fn send_replace(&self, _: T) {
        self.0.advance(CLOSED << 1);
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.0.advance(CLOSED);
        }
    }
}

impl<T> Receiver<T> {
    pub fn mark_unchanged(&mut self) {
        self.seen = self.shared.version.load(Ordering::Acquire) & !CLOSED;
    }

    pub async fn changed(&mut self) -> Result<(), Closed> {
        poll_fn(|context| {
            let mut version = self.shared.version.load(Ordering::Acquire);
            if version != self.shared.newest.load(Ordering::SeqCst) {
                // A load may return an old version, and an addition returns the newest: none is missed before this task
                // waits.
                version = self.shared.version.fetch_add(0, Ordering::AcqRel);
            }
            if version & !CLOSED != self.seen {
                self.seen = version & !CLOSED;
                return Poll::Ready(Ok(()));
            }
            if version & CLOSED != 0 {
                return Poll::Ready(Err(Closed));
            }
            self.shared.waiting.lock().unwrap().push(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}
