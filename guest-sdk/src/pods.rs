//! Cached reads. All reads of one run see one consistent snapshot; only [`crate::writes::commit`] moves it forward.
//!
//! Needs the grant `read.pods`. A read of what the plugin may not see answers like a read of nothing.

use std::{collections::VecDeque, iter::FusedIterator};

use podium_wire::split_page;

use crate::{CallError, Error, Pod, Result, host};

/// How many Pods a page is asked to hold. The host may send fewer; a larger page costs the guest memory, a smaller one
/// host calls, of which a run has 1,000 unless configured otherwise.
const PAGE: u32 = 100;

/// The Pod of that name in the snapshot.
///
/// # Errors
/// Where the run's budget is used up.
pub fn get(namespace: &str, name: &str) -> Result<Option<Pod>> {
    host::get(namespace, name).map_err(refused("pods::get"))?.map(Pod::open).transpose()
}

/// Asks the API server itself, and waits. Needs the grant `read.pods.live`; has a budget of its own.
///
/// # Errors
/// Where it is not granted, the budget is used up, or the API server does not answer.
pub fn get_live(namespace: &str, name: &str) -> Result<Option<Pod>> {
    let live = |refused| Error::from_refused("pods::get_live", "read.pods.live", refused);
    host::get_live(namespace, name).map_err(live)?.map(Pod::open).transpose()
}

/// Begins a query over all Pods that the plugin may see; narrow it with the methods of [`Query`], then loop over it. A
/// condition needs the section that its field is in, such as `owners` in the example; otherwise the query is not
/// granted.
///
/// ```
/// # use podium_sdk::{pods, Pod, Result};
/// # fn example(pod: &Pod) -> Result<()> {
/// if let Some(owner) = pod.controller()? {
///     for sibling in pods::find().in_namespace(pod.namespace()).owned_by(&owner.uid) {
///         let sibling = sibling?;
///         println!("{} on {:?}", sibling.name(), sibling.node()?);
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

/// As in a Kubernetes label selector.
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
    /// Of this namespace. A namespaced plugin sees its own alone in any case.
    pub fn in_namespace(self, namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..self }
    }

    /// Bound to this node.
    pub fn on_node(self, node: impl Into<String>) -> Self {
        Self { node: Some(node.into()), ..self }
    }

    /// With an owner of this uid, such as the uid of [`Pod::controller`].
    pub fn owned_by(self, uid: impl Into<String>) -> Self {
        Self { owner_uid: Some(uid.into()), ..self }
    }

    /// In this phase: "Pending", "Running", "Succeeded", "Failed" or "Unknown".
    pub fn in_phase(self, phase: impl Into<String>) -> Self {
        Self { phase: Some(phase.into()), ..self }
    }

    /// Whose label has this value.
    pub fn label(self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.require(key, LabelOperator::In, [value])
    }

    /// Whose label has one of these values.
    pub fn label_in(self, key: impl Into<String>, values: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.require(key, LabelOperator::In, values)
    }

    /// Whose label has none of these values, or that lack it.
    pub fn label_not_in(self, key: impl Into<String>, values: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.require(key, LabelOperator::NotIn, values)
    }

    /// That have the label, whatever its value.
    pub fn label_exists(self, key: impl Into<String>) -> Self {
        self.require(key, LabelOperator::Exists, [""; 0])
    }

    /// That lack the label.
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

    /// How many there are, without reading them.
    ///
    /// # Errors
    /// Where the run's budget is used up.
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

/// The Pods of a [`Query`]. Asks for a page when the one before is used up; ends after the first error.
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
        // A page may be empty and yet have a next one.
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
    move |refused| Error::from_refused(call, "read.pods.sections, with the section of each condition", refused)
}
