//! The writes of the replicas as the API server recorded them: in which term each was sent, and when the next term
//! began.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use jiff::Timestamp;
use podium_tests::controlplane::{Audit, AuditedWrite, Mark};

use crate::{objects::HOST, replicas::term};

/// The requests of a round.
pub(super) struct Ledger {
    /// The plugin's writes of Pods, in the order in which they were received, with their terms.
    writes: Vec<(u32, AuditedWrite)>,
}

impl Ledger {
    /// Reads the log since a mark. Adds to `terms` when the update of the Lease was answered that began each of them.
    pub(super) fn read(audit: &Audit, mark: Mark, lease: &str, terms: &mut BTreeMap<u32, Timestamp>) -> Result<Self> {
        let mut writes = Vec::new();
        for write in audit.writes_of(HOST, mark)? {
            let is_lease = write.resource == "leases" && write.name == lease;
            if is_lease
                && write.verb == "update"
                && write.code == 200
                && write.body["spec"]["holderIdentity"].is_string()
            {
                let number = write.body["spec"]["leaseTransitions"].as_u64().context("a Lease without a term")?;
                let began = terms.entry(u32::try_from(number)?).or_insert(write.answered);
                *began = write.answered.min(*began);
            } else if write.resource == "pods" && write.impersonated.is_some() {
                writes.push((term(&write)?, write));
            }
        }
        writes.sort_by_key(|(_, write)| write.received);
        Ok(Self { writes })
    }

    /// Returns the number of writes.
    pub(super) fn len(&self) -> usize {
        self.writes.len()
    }

    /// Returns the writes that were received after the update that began a later term was answered.
    pub(super) fn late(&self, terms: &BTreeMap<u32, Timestamp>) -> Vec<&AuditedWrite> {
        let is_late =
            |(term, write): &&(u32, AuditedWrite)| terms.range(term + 1..).any(|(_, began)| *began < write.received);
        self.writes.iter().filter(is_late).map(|(_, write)| write).collect()
    }

    /// Returns the successful writes whose body an earlier successful write to the same Pod had. Each label and each
    /// annotation of a round is of one Pod, so they had no effect.
    pub(super) fn repeated(&self) -> Vec<&AuditedWrite> {
        let mut before = BTreeSet::new();
        let succeeded = self.succeeded().map(|(_, write)| write);
        succeeded.filter(|write| !before.insert((write.name.clone(), write.body.to_string()))).collect()
    }

    /// Returns the Pods whose last write is of an earlier term than another write of it.
    pub(super) fn older_last(&self) -> Vec<&str> {
        let mut terms: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
        for (term, write) in self.succeeded() {
            let (highest, last) = terms.entry(&write.name).or_default();
            *highest = (*highest).max(*term);
            *last = *term;
        }
        terms.into_iter().filter(|(_, (highest, last))| last < highest).map(|(name, _)| name).collect()
    }

    /// Returns when the first write was answered of a term after this one, of a Pod that was created after a time.
    pub(super) fn acted(
        &self,
        before: u32,
        fresh: &BTreeMap<String, Timestamp>,
        after: Timestamp,
    ) -> Option<Timestamp> {
        let is_fresh = |name: &str| fresh.get(name).is_some_and(|created| *created > after);
        let acted = self.succeeded().filter(|(term, write)| *term > before && is_fresh(&write.name));
        acted.map(|(_, write)| write.answered).min()
    }

    fn succeeded(&self) -> impl Iterator<Item = &(u32, AuditedWrite)> {
        self.writes.iter().filter(|(_, write)| write.code == 200)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn write(term: u32, name: &str, second: i64, body: Value) -> (u32, AuditedWrite) {
        let at = Timestamp::from_second(second).unwrap();
        let write = AuditedWrite {
            user: HOST.to_owned(),
            impersonated: None,
            verb: "patch".to_owned(),
            resource: "pods".to_owned(),
            namespace: "objects".to_owned(),
            name: name.to_owned(),
            code: 200,
            user_agent: format!("podium-host term/{term}"),
            body,
            received: at,
            answered: at,
        };
        (term, write)
    }

    #[test]
    fn late_repeated_and_overwriting_writes_are_found() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let terms = [(1, at(1)), (3, at(10))].into();
        let names = |writes: Vec<&AuditedWrite>| writes.iter().map(|write| write.name.clone()).collect::<Vec<_>>();
        let writes = vec![
            write(1, "in-time", 9, json!(1)),
            write(1, "late", 11, json!(1)),
            write(3, "in-time", 12, json!(2)),
            write(3, "twice", 13, json!(3)),
            write(3, "twice", 14, json!(3)),
            write(1, "in-time", 15, json!(4)),
        ];
        let ledger = Ledger { writes };
        assert_eq!(names(ledger.late(&terms)), ["late", "in-time"]);
        assert_eq!(names(ledger.repeated()), ["twice"]);
        assert_eq!(ledger.older_last(), ["in-time"]);
        let fresh = [("in-time".to_owned(), at(5)), ("twice".to_owned(), at(6))].into();
        assert_eq!(ledger.acted(1, &fresh, at(5)), Some(at(13)));
    }
}
