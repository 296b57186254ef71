//! The publish path in the orders of a writer's and two readers' steps: those in which threads are interrupted at
//! most three times, or all of them if `PODIUM_SCHEDULES` is set.

#![cfg(podium_model = "loom")]

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake},
};

use loom::thread;
use podium_pods::{
    cache::{self, Reader, Writer},
    pod::PodView,
};
use podium_vocabulary::Revision;

struct Parked(thread::Thread);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls a future. loom's own counts its wakers while exploring orders, and takes hours instead of seconds.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Arc::new(Parked(thread::current())).into();
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

fn check(test: impl Fn() + Send + Sync + 'static) {
    let mut plan = loom::model::Builder::new();
    if std::env::var_os("PODIUM_SCHEDULES").is_none() {
        plan.preemption_bound = Some(3);
    }
    plan.check(test);
}

/// Returns a live cache at revision 0.
fn live() -> (Writer, Reader) {
    let (mut writer, reader) = cache::new(7);
    writer.set_live();
    (writer, reader)
}

#[test]
fn a_reader_never_goes_back() {
    check(|| {
        let (mut writer, reader) = live();
        let readers = [(); 2].map(|()| {
            let reader = reader.clone();
            thread::spawn(move || {
                let seen = [(); 3].map(|()| reader.snapshot().revision());
                assert!(seen.is_sorted(), "{seen:?}");
            })
        });
        writer.bookmark(Revision(1));
        writer.bookmark(Revision(2));
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}

#[test]
fn a_waiter_for_the_second_publication_is_woken_by_it() {
    check(|| {
        let (mut writer, mut waiting) = live();
        let looking = waiting.clone();
        let looker = thread::spawn(move || looking.snapshot().revision());
        let waiter = thread::spawn(move || {
            let reached =
                block_on(waiting.wait_for(|snapshot| snapshot.revision() >= Revision(2))).expect("the writer is there");
            assert_eq!(reached.revision(), Revision(2));
        });
        writer.bookmark(Revision(1));
        writer.bookmark(Revision(2));
        waiter.join().unwrap();
        assert!(looker.join().unwrap() <= Revision(2));
    });
}

#[test]
fn two_waiters_are_woken_by_one_publication() {
    check(|| {
        let (mut writer, reader) = live();
        let waiters = [(); 2].map(|()| {
            let mut reader = reader.clone();
            thread::spawn(move || {
                let reached = block_on(reader.wait_for(|snapshot| snapshot.revision() >= Revision(1)))
                    .expect("the writer is there");
                assert_eq!(reached.revision(), Revision(1));
            })
        });
        writer.bookmark(Revision(1));
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
}

#[test]
fn a_waiter_is_woken_when_the_writer_is_dropped() {
    check(|| {
        let (mut writer, reader) = live();
        let waiters = [1, 2].map(|revision| {
            let mut reader = reader.clone();
            thread::spawn(move || {
                block_on(reader.wait_for(|snapshot| snapshot.revision() >= Revision(revision)))
                    .map(|seen| seen.revision())
            })
        });
        writer.bookmark(Revision(1));
        drop(writer);
        // A publication is seen even if the writer is gone.
        assert_eq!(waiters.map(|waiter| waiter.join().unwrap()), [Some(Revision(1)), None]);
    });
}
