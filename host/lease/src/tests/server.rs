//! A model of the API server's Leases: one object, with compare-and-swap by its resource version, that can be restored
//! to an earlier state. Resource versions go back with it.

use crate::{Answer, Call, Lease, Place, Record, Unusable};

pub(super) fn place() -> Place {
    Place { namespace: "podium".to_owned(), name: "podium".to_owned(), installation: "podium/podium".to_owned() }
}

/// The answer to a read: a resource version, and a content that went through the form of the object.
type Found = Option<(String, Result<Record, Unusable>)>;

/// The server. Times are microseconds of true time.
#[derive(Default)]
pub(super) struct Server {
    revision: u64,
    found: Found,
    /// The states by the time at which they began.
    history: Vec<(u64, u64, Found)>,
}

impl Server {
    /// Executes a request.
    pub(super) fn execute(&mut self, call: &Call, at: u64) -> Answer {
        let (record, replaces) = match call {
            Call::Read => return Answer::Read(self.found.clone()),
            Call::Create(record) => (record, None),
            Call::Update { revision, record } => (record, Some(revision)),
        };
        if replaces != self.found.as_ref().map(|(revision, _)| revision) {
            return Answer::Conflict;
        }
        self.write(record, &place(), at);
        Answer::Written(self.revision.to_string())
    }

    fn write(&mut self, record: &Record, place: &Place, at: u64) {
        let revision = (self.revision + 1).to_string();
        let lease = Lease::new(record, place, Some(&revision), String::new());
        self.set(Some((revision, lease.record("podium/podium"))), at);
    }

    fn set(&mut self, found: Found, at: u64) {
        self.revision += 1;
        self.found = found;
        self.history.push((at, self.revision, self.found.clone()));
    }

    /// The content of the Lease.
    pub(super) fn record(&self) -> Option<&Result<Record, Unusable>> {
        self.found.as_ref().map(|(_, record)| record)
    }

    pub(super) fn delete(&mut self, at: u64) {
        self.set(None, at);
    }

    /// The Lease becomes that of another installation.
    pub(super) fn spoil(&mut self, at: u64) {
        if let Some(Ok(record)) = self.record().cloned() {
            self.write(&record, &Place { installation: "other/podium".to_owned(), ..place() }, at);
        }
    }

    /// Returns when the Lease was released for the last time before some time.
    pub(super) fn released_before(&self, at: u64) -> Option<u64> {
        let is_release =
            |found: &Found| matches!(found, Some((_, Ok(record))) if record.holder.is_empty() && record.term > 0);
        self.history.iter().rev().find(|(began, _, found)| *began < at && is_release(found)).map(|(began, ..)| *began)
    }

    /// Returns to the state of an earlier time, with its resource versions.
    pub(super) fn restore(&mut self, of: u64, at: u64) {
        let before = self.history.iter().rev().find(|(began, ..)| *began <= of);
        (self.revision, self.found) = before.map_or((0, None), |(_, revision, found)| (*revision, found.clone()));
        self.history.push((at, self.revision, self.found.clone()));
    }
}
