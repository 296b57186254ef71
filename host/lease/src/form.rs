//! The form of the Lease: a `coordination.k8s.io/v1` object with Podium's annotations.

use std::{ops::RangeInclusive, time::Duration};

use podium_vocabulary::Shards;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use thiserror::Error;

use crate::Mark;

/// The format of a Lease whose holder runs all plugins by itself.
const FORMAT: &str = "1";
/// The format of the Leases of replicas that divide the shards among them. A version that reads only the first one
/// must not act beside them.
const SHARED: &str = "2";
/// The longest duration that a replica waits for, in seconds. A Lease with a longer one has a mistake.
const LONGEST: u64 = 600;
/// The term of a Lease is the API's `int32`. The last one stays free, so that the term after it exists.
const LAST_TERM: u64 = i32::MAX as u64 - 1;

/// Where a Lease is, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease.
    pub name: String,
    /// The installation whose replicas share the Lease.
    pub installation: String,
}

/// The content of a Lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The process that acts; empty if none does.
    pub holder: String,
    /// How often the Lease has changed hands.
    pub term: u32,
    /// Differs in every write of a holder. A write that changes nothing would leave the resource version as it was, and
    /// after a restore one resource version may belong to two states.
    pub renewal: u64,
    /// How long the Lease lasts after a renewal, in whole seconds: every replica waits at least as long.
    pub duration: Duration,
    /// The mark of the holder, or of an earlier one until the holder has its own.
    pub mark: Option<Mark>,
    /// Written by a replica that divides the shards with others.
    pub shared: bool,
    /// The process that asks the holder to hand the shard over to it; empty if none does.
    pub wanted: String,
}

impl Record {
    /// Returns true if the holder of an earlier record wrote this one in the same term, and has not released it.
    pub(crate) fn renews(&self, before: &Self) -> bool {
        let is_same = self.holder == before.holder && self.term == before.term && self.shared == before.shared;
        is_same && !self.holder.is_empty() && self != before
    }
}

/// Why a Lease can be neither held nor taken. A replica waits until the Lease can be read or is deleted.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Unusable {
    /// Written by a version of Podium with another form of the Lease, or not by Podium.
    #[error(
        "the Lease has format {0:?} in annotation podium.dev/format and this version reads \"1\" and \"2\"; stop the \
         replicas of the other version, then delete the Lease"
    )]
    Format(String),
    /// Written by a version with another number of shards.
    #[error(
        "the Lease has {0:?} shards in annotation podium.dev/shards and this version has 16; stop the replicas of the \
         other version, then delete the Lease"
    )]
    Shards(String),
    /// Another installation acts on this cluster.
    #[error(
        "installation {0:?} acts on this cluster; uninstall one of the two, and delete the Lease if {0:?} does not \
         exist any more"
    )]
    Installation(String),
    /// A field has no possible value.
    #[error("the Lease has {1:?} in {0}, which no replica writes; delete the Lease")]
    Field(&'static str, String),
}

/// A Lease as the API server stores it; fields that Podium does not use are ignored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Lease(Value);

impl Lease {
    /// Returns the object to create, or with the resource version that it replaces to update. `renew_time` is RFC 3339
    /// with microseconds. It is for people: no replica reads it, because clocks of two machines differ.
    pub fn new(record: &Record, place: &Place, revision: Option<&str>, renew_time: String) -> Self {
        let mut lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": place.name,
                "namespace": place.namespace,
                "labels": {"app.kubernetes.io/managed-by": "podium-host"},
                "annotations": {
                    "podium.dev/format": if record.shared { SHARED } else { FORMAT },
                    "podium.dev/shards": Shards::COUNT.to_string(),
                    "podium.dev/installation": place.installation,
                    "podium.dev/renewal": record.renewal.to_string(),
                },
            },
            "spec": {
                "leaseDurationSeconds": record.duration.as_secs(),
                "leaseTransitions": record.term,
                "renewTime": renew_time,
            },
        });
        if let Some(revision) = revision {
            lease["metadata"]["resourceVersion"] = revision.into();
        }
        if !record.holder.is_empty() {
            lease["spec"]["holderIdentity"] = record.holder.clone().into();
        }
        if let Some(mark) = record.mark.as_ref().and_then(Mark::text) {
            lease["metadata"]["annotations"]["podium.dev/mark"] = mark.into();
        }
        if !record.wanted.is_empty() {
            lease["metadata"]["annotations"]["podium.dev/wanted-by"] = record.wanted.clone().into();
        }
        Self(lease)
    }

    /// Returns the resource version of an object that was read.
    pub fn revision(&self) -> &str {
        self.0["metadata"]["resourceVersion"].as_str().unwrap_or_default()
    }

    /// Returns the name of an object that was read.
    pub fn name(&self) -> &str {
        self.0["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// Returns the content, for a replica of this installation. A mark that cannot be read is none.
    ///
    /// # Errors
    /// Returns an error if the Lease is of another installation or format, or has values that no replica writes.
    pub fn record(&self, installation: &str) -> Result<Record, Unusable> {
        let annotation = |key: &str| self.0["metadata"]["annotations"][key].as_str().unwrap_or_default();
        let spec = &self.0["spec"];
        let number = |field: &'static str, key: &str, possible: RangeInclusive<u64>| {
            let number = spec[key].as_u64().filter(|number| possible.contains(number));
            number.ok_or_else(|| Unusable::Field(field, spec[key].to_string()))
        };
        let (format, shards, of) =
            (annotation("podium.dev/format"), annotation("podium.dev/shards"), annotation("podium.dev/installation"));
        if ![FORMAT, SHARED].contains(&format) {
            return Err(Unusable::Format(format.to_owned()));
        }
        if shards != Shards::COUNT.to_string() {
            return Err(Unusable::Shards(shards.to_owned()));
        }
        if of != installation {
            return Err(Unusable::Installation(of.to_owned()));
        }
        let renewal = annotation("podium.dev/renewal");
        let seconds = number("spec.leaseDurationSeconds", "leaseDurationSeconds", 1..=LONGEST)?;
        Ok(Record {
            holder: spec["holderIdentity"].as_str().unwrap_or_default().to_owned(),
            term: number("spec.leaseTransitions", "leaseTransitions", 0..=LAST_TERM)? as u32,
            renewal: renewal.parse().map_err(|_| Unusable::Field("podium.dev/renewal", renewal.to_owned()))?,
            duration: Duration::from_secs(seconds),
            mark: Mark::parse(annotation("podium.dev/mark")),
            shared: format == SHARED,
            wanted: annotation("podium.dev/wanted-by").to_owned(),
        })
    }
}
