//! `tokio::sync::Notify` as documented, with one permit and with waiters in their order. Each call is one step.

use std::{
    collections::{BTreeSet, VecDeque},
    pin::Pin,
    task::{Context, Poll, Waker},
};

use super::shuttle_types::Mutex;

#[derive(Debug, Default)]
struct State {
    permit: bool,
    numbers: u64,
    waiting: VecDeque<(u64, Waker)>,
    /// Removed from `waiting` by a notification that they have not seen yet.
    notified: BTreeSet<u64>,
}

impl State {
    fn notify_one(&mut self) -> Option<Waker> {
        match self.waiting.pop_front() {
            Some((number, waker)) => {
                self.notified.insert(number);
                Some(waker)
            }
            None => {
                self.permit = true;
                None
            }
        }
    }
}

#[derive(Debug)]
pub struct Notify(Mutex<State>);

impl Notify {
    pub fn new() -> Self {
        Self(Mutex::new(State::default()))
    }

    pub fn notify_one(&self) {
        let waker = self.0.lock().notify_one();
        waker.into_iter().for_each(Waker::wake);
    }

    pub fn notified(&self) -> Notified<'_> {
        Notified { notify: self, number: None }
    }
}

pub struct Notified<'a> {
    notify: &'a Notify,
    /// Its number among the waiters, from the first poll to the end.
    number: Option<u64>,
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.notify.0.lock();
        match self.number {
            Some(number) if state.notified.remove(&number) => {
                drop(state);
                self.number = None;
                return Poll::Ready(());
            }
            Some(number) => {
                state.waiting.retain(|(other, _)| *other != number);
                state.waiting.push_back((number, context.waker().clone()));
            }
            None if std::mem::take(&mut state.permit) => return Poll::Ready(()),
            None => {
                state.numbers += 1;
                let number = state.numbers;
                state.waiting.push_back((number, context.waker().clone()));
                drop(state);
                self.number = Some(number);
            }
        }
        Poll::Pending
    }
}

impl Drop for Notified<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number.filter(|_| !std::thread::panicking()) else { return };
        let mut state = self.notify.0.lock();
        state.waiting.retain(|(other, _)| *other != number);
        // An unused notification is passed on to the next waiter.
        let waker = if state.notified.remove(&number) { state.notify_one() } else { None };
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}
