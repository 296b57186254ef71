//! Cached reads. All reads of one run see one consistent snapshot; only [`crate::writes::commit`] advances it.
//!
//! Needs the grant `read.pods`. Pods that the plugin may not see look as if they did not exist.

use std::{collections::VecDeque, iter::FusedIterator};

use podium_wire::{Workload, split_page};

use crate::{CallError, Error, Pod, Result, host};

/// The requested page size. The host may send fewer Pods; a larger page costs the guest memory, and a smaller one
/// host calls, of which a run has 1,000 by default.
const PAGE: u32 = 100;

/// Returns the Pod of that name in the snapshot.
///
/// # Errors
/// Returns an error if the run's budget is used up.
pub fn get(namespace: &str, name: &str) -> Result<Option<Pod>> {
    host::get(namespace, name).map_err(refused("pods::get"))?.map(Pod::open).transpose()
}

/// Reads a Pod from the API server and waits for the response. Needs the grant `read.pods.live`; has its own budget.
///
/// # Errors
/// Returns an error if the grant is missing, the budget is used up, or the API server does not answer.
pub fn get_live(namespace: &str, name: &str) -> Result<Option<Pod>> {
    let live = |refused| Error::from_refused("pods::get_live", refused);
    host::get_live(namespace, name).map_err(live)?.map(Pod::open).transpose()
}

/// Begins a query over all Pods that the plugin may see; narrow it with the methods of [`Query`], then loop over it. A
/// condition needs the section that its field is in, such as `owners` in the example; otherwise the query is not
/// granted.
///
/// ```
/// # use podium_sdk::{log, pods, Pod, Result};
/// # fn example(pod: &Pod) -> Result<()> {
/// if let Some(owner) = pod.controller()? {
///     for sibling in pods::find().in_namespace(pod.namespace()).owned_by(&owner.uid) {
///         let sibling = sibling?;
///         log::info(&format!("{} on {:?}", sibling.name(), sibling.node()?), &[]);
///     }
/// }
/// # Ok(()) }
/// ```
pub fn find() -> Query {
    Query::default()
}

/// Selects Pods: all conditions that are set must hold. Iterating returns the Pods ordered by namespace, then name,
/// page by page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use = "a query asks nothing until it is looped over or counted"]
pub struct Query {
    pub(crate) namespace: Option<String>,
    pub(crate) node: Option<String>,
    pub(crate) owner_uid: Option<String>,
    pub(crate) phase: Option<String>,
    pub(crate) labels: Vec<LabelRequirement>,
}

/// A requirement of a Kubernetes label selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LabelRequirement {
    pub(crate) key: String,
    pub(crate) operator: LabelOperator,
    pub(crate) values: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LabelOperator {
    Exists,
    DoesNotExist,
    In,
    NotIn,
}

impl Query {
    /// Selects Pods of this namespace. A namespaced plugin sees only its own namespace.
    pub fn in_namespace(self, namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..self }
    }

    /// Selects Pods that are bound to this node.
    pub fn on_node(self, node: impl Into<String>) -> Self {
        Self { node: Some(node.into()), ..self }
    }

    /// Selects Pods with an owner of this uid, such as the uid of [`Pod::controller`].
    pub fn owned_by(self, uid: impl Into<String>) -> Self {
        Self { owner_uid: Some(uid.into()), ..self }
    }

    /// Selects Pods of this workload, as [`Pod::workload`] returns it: the uid does not count. Kind and name identify a
    /// workload within a namespace, so [`in_namespace`](Self::in_namespace) belongs to it. Needs the sections `owners`
    /// and `labels`. One query has one owner: the later one of this and [`owned_by`](Self::owned_by) counts.
    pub fn of_workload(self, workload: &Workload) -> Self {
        Self { owner_uid: Some(workload.owner_text()), ..self }
    }

    /// Selects Pods in this phase: "Pending", "Running", "Succeeded", "Failed" or "Unknown".
    pub fn in_phase(self, phase: impl Into<String>) -> Self {
        Self { phase: Some(phase.into()), ..self }
    }

    /// Selects Pods whose label has this value.
    pub fn label(self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.require(key, LabelOperator::In, [value])
    }

    /// Selects Pods whose label has one of these values.
    pub fn label_in(self, key: impl Into<String>, values: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.require(key, LabelOperator::In, values)
    }

    /// Selects Pods whose label has none of these values, or that lack the label.
    pub fn label_not_in(self, key: impl Into<String>, values: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.require(key, LabelOperator::NotIn, values)
    }

    /// Selects Pods that have the label, with any value.
    pub fn label_exists(self, key: impl Into<String>) -> Self {
        self.require(key, LabelOperator::Exists, [""; 0])
    }

    /// Selects Pods that lack the label.
    pub fn label_absent(self, key: impl Into<String>) -> Self {
        self.require(key, LabelOperator::DoesNotExist, [""; 0])
    }

    fn require(
        mut self,
        key: impl Into<String>,
        operator: LabelOperator,
        values: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let values = values.into_iter().map(Into::into).collect();
        self.labels.push(LabelRequirement { key: key.into(), operator, values });
        self
    }

    /// Returns the number of matching Pods without reading them.
    ///
    /// # Errors
    /// Returns an error if the run's budget is used up.
    pub fn count(&self) -> Result<u64> {
        host::count(self).map_err(refused("pods::count"))
    }
}

impl IntoIterator for Query {
    type Item = Result<Pod>;
    type IntoIter = Pods;

    fn into_iter(self) -> Pods {
        Pods { query: self, page: VecDeque::new(), next: Next::First }
    }
}

/// The Pods of a [`Query`]. Requests a page when the previous one is used up, and ends after the first error.
#[derive(Debug)]
pub struct Pods {
    query: Query,
    page: VecDeque<Vec<u8>>,
    next: Next,
}

#[derive(Debug)]
enum Next {
    First,
    After(String),
    Nothing,
}

impl Pods {
    fn turn(&mut self) -> Result<()> {
        let after = match std::mem::replace(&mut self.next, Next::Nothing) {
            Next::First => None,
            Next::After(cursor) => Some(cursor),
            Next::Nothing => return Ok(()),
        };
        let page = host::find(&self.query, PAGE, after.as_deref()).map_err(refused("pods::find"))?;
        self.page = split_page(&page.pods).map_err(Error::from_record)?.into_iter().map(<[u8]>::to_vec).collect();
        self.next = page.next.map_or(Next::Nothing, Next::After);
        Ok(())
    }
}

impl Iterator for Pods {
    type Item = Result<Pod>;

    fn next(&mut self) -> Option<Result<Pod>> {
        // A page may be empty and still have a next one.
        while self.page.is_empty() && !matches!(self.next, Next::Nothing) {
            if let Err(error) = self.turn() {
                return Some(Err(error));
            }
        }
        let pod = Pod::open(self.page.pop_front()?);
        if pod.is_err() {
            self.page.clear();
            self.next = Next::Nothing;
        }
        Some(pod)
    }
}

impl FusedIterator for Pods {}

fn refused(call: &str) -> impl FnOnce(CallError) -> Error {
    move |refused| Error::from_refused(call, refused)
}
