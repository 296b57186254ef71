//! A thread for the watch and the ingest loop alone.
//!
//! Beside the workers they would share threads with guests, and every step of an event, from the socket to the queue,
//! could have to wait for one or to wake another thread. Here an event goes the whole way on one thread, which the
//! kernel gives its turn however many guests compute.

use std::{convert::Infallible, io, thread};

use tokio::{
    runtime::{Builder, Handle},
    sync::oneshot,
};

pub(super) struct Thread {
    runtime: Handle,
    /// Ends the thread, and what still runs on it, when it is dropped.
    _wanted: oneshot::Sender<Infallible>,
}

impl Thread {
    /// # Errors
    /// When the process may have no more threads or files.
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (wanted, unwanted) = oneshot::channel::<Infallible>();
        thread::Builder::new().name("podium-ingest".to_owned()).spawn(move || {
            // Nothing is ever sent: it ends when the other side is dropped.
            let _ = runtime.block_on(unwanted);
            // A name that is being resolved is not waited for.
            runtime.shutdown_background();
        })?;
        Ok(Self { runtime: handle, _wanted: wanted })
    }

    pub(super) fn runtime(&self) -> &Handle {
        &self.runtime
    }
}
