//! Reads of Pods, for both worlds, and of other objects: scope and grants limit them, bytes and numbers limit a page.

use std::sync::Arc;

use podium_pods::pod::{CachedPod, Effort};
use podium_vocabulary::{
    Cursor, Function, LabelOperator, LabelSelector, ObjectRef, PodQuery, Refused, Scope,
    authz::{ObjectRead, lacking_sections},
};
use podium_wire::{Record, Section, SectionSet, refusal};
use serde_json::Value;
use wasmtime::component::{ComponentType, Lower};

use super::{
    bindings::types,
    hostcalls::Admission,
    linking::{Json, Records},
    meter::{Size, price},
    run::Run,
    staging::with_resource,
    text::check_argument_length,
};

/// Pods of one page.
const PAGE_PODS: u32 = 500;
/// Bytes of one page. A first Pod that is larger is the only one of its page.
const PAGE_BYTES: usize = 1 << 20;
const NAME_BYTES: usize = 253;
/// A prefix and a name, or a kind and a name.
const KEY_BYTES: usize = 317;
/// Fuel that one slice of a search may cost, and one Pod more; other tasks of the thread run between two slices. About
/// a millisecond, and one to two thousand Pods for a short selector.
const SLICE_FUEL: u64 = 5_000_000;

/// A page of Pods, and the text that continues behind it.
#[derive(Debug, ComponentType, Lower)]
#[component(record)]
pub(super) struct Page<P> {
    pods: P,
    next: Option<String>,
}

/// How a world wants to see Pods.
pub(super) trait Format: 'static {
    /// A Pod, and the Pods of a page.
    type Pod: ComponentType + Lower + Send + Sync + 'static;
    /// Returns the Pod in this form, and the price of rendering it.
    ///
    /// # Errors
    /// [`Refused::Unavailable`] when the Pod does not fit the form; a real API server's does.
    fn pod(pod: &CachedPod, sections: SectionSet) -> Result<(Self::Pod, u64), Refused>;
    /// Returns a price that rendering the Pod costs at least, without rendering it.
    fn least_price(_: &CachedPod, _: SectionSet) -> u64 {
        0
    }
    fn size(pod: &Self::Pod) -> usize;
    fn page(pods: Vec<Self::Pod>) -> Self::Pod;
}

impl Format for Records {
    type Pod = Vec<u8>;

    fn pod(pod: &CachedPod, sections: SectionSet) -> Result<(Vec<u8>, u64), Refused> {
        let record = pod.record(sections).map_err(|error| Refused::Unavailable(format!("{}: {error}", pod.key)))?;
        let price = Size { bytes: Self::size(&record), values: 1 }.rendered();
        Ok((record, price))
    }
    fn size(pod: &Vec<u8>) -> usize {
        4 + pod.len()
    }
    fn page(pods: Vec<Vec<u8>>) -> Vec<u8> {
        let mut page = Vec::with_capacity(pods.iter().map(Self::size).sum());
        for pod in pods {
            // A record's sections are below 4 MiB each, so its length fits.
            page.extend(u32::try_from(pod.len()).unwrap_or(u32::MAX).to_le_bytes());
            page.extend(pod);
        }
        page
    }
}

impl Format for Json {
    type Pod = String;

    /// With the grant of `full` the JSON is the full object, which contains all other sections.
    fn pod(pod: &CachedPod, sections: SectionSet) -> Result<(String, u64), Refused> {
        let full = sections.contains(Section::Full);
        let wanted = if full { SectionSet::EMPTY.with(Section::Full) } else { sections };
        let record = Record::open(Records::pod(pod, wanted)?.0);
        let json = record.and_then(|record| match full {
            true => record.full().map(|json| (json.to_owned(), 0)),
            false => podium_wire::json::render(&record).map(|json| (json.to_string(), values_of(&json))),
        });
        let (json, values) = json.map_err(|error| Refused::Unavailable(format!("{}: {error}", pod.key)))?;
        let price = Size { bytes: Self::size(&json), values: 1 }.rendered();
        Ok((json, price.saturating_add((values as u64).saturating_mul(price::JSON_VALUE))))
    }
    /// That of the labels and annotations, of which a Pod may have a hundred thousand.
    fn least_price(pod: &CachedPod, sections: SectionSet) -> u64 {
        if sections.contains(Section::Full) {
            return 0;
        }
        let many = [Section::Labels, Section::Annotations].into_iter().filter(|section| sections.contains(*section));
        let bytes = pod.sections(many.clone().collect());
        let entries: usize = many.map(|section| podium_wire::entries(bytes.get(section))).sum();
        (entries as u64).saturating_mul(price::JSON_VALUE)
    }
    fn size(pod: &String) -> usize {
        1 + pod.len()
    }
    fn page(pods: Vec<String>) -> String {
        format!("[{}]", pods.join(","))
    }
}

/// Returns the number of values in a rendered Pod or an object, which has at most as many levels as JSON of the API
/// server.
fn values_of(json: &Value) -> usize {
    match json {
        Value::Array(values) => 1 + values.iter().map(values_of).sum::<usize>(),
        Value::Object(members) => 1 + members.values().map(values_of).sum::<usize>(),
        _ => 1,
    }
}

impl Run {
    pub(super) fn get_pod<F: Format>(&mut self, namespace: &str, name: &str) -> Result<Option<F::Pod>, Refused> {
        self.call(Function::Get, Size::of_texts(&[namespace, name]), |run| {
            if !run.context.scope.contains(namespace) {
                return Ok(None);
            }
            let pod = run.world.view().get(namespace, name);
            pod.map(|pod| run.rendered::<F>(&pod)).transpose()
        })
    }

    /// A Pod whose rendering the run cannot pay is not rendered.
    fn rendered<F: Format>(&mut self, pod: &CachedPod) -> Result<F::Pod, Refused> {
        if F::least_price(pod, self.context.sections) >= self.bill.rest() {
            return Err(Refused::OverBudget);
        }
        let (rendered, price) = F::pod(pod, self.context.sections)?;
        self.bill.add(price);
        Ok(rendered)
    }

    pub(super) async fn get_live_pod<F: Format>(
        &mut self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<F::Pod>, Refused> {
        let admission = self.admit(Function::GetLive, Size::of_texts(&[namespace, name]));
        let admission = admission.and_then(|admission| self.account_live(admission));
        let answer = match admission {
            Ok(Admission::Admitted) if self.context.scope.contains(namespace) => self.world.live(namespace, name).await,
            Ok(_) => Ok(None),
            Err(refused) => Err(refused),
        };
        self.record(Function::GetLive, answer.as_ref().err());
        answer?.map(|pod| self.rendered::<F>(&pod)).transpose()
    }

    fn account_live(&mut self, admission: Admission) -> Result<Admission, Refused> {
        self.budget.live_reads_left = self.budget.live_reads_left.checked_sub(1).ok_or(Refused::OverBudget)?;
        Ok(admission)
    }

    /// Reads an object. It is authorized before it counts, and rendered only if the run can pay for that.
    pub(super) async fn get_object(&mut self, object: ObjectRef) -> Result<Option<String>, Refused> {
        let ObjectRef { api_version, kind, resource: _, namespace, name } = &object;
        let size = Size::of_texts(&[api_version, kind, namespace.as_deref().unwrap_or_default(), name]);
        let answer = match self.admit(Function::GetObject, size) {
            Ok(admission) => self.read_object(admission, object).await,
            Err(refused) => Err(refused),
        };
        self.record(Function::GetObject, answer.as_ref().err());
        answer
    }

    async fn read_object(&mut self, admission: Admission, object: ObjectRef) -> Result<Option<String>, Refused> {
        let read = self.authorized(ObjectRead(with_resource(&self.context.grants.read_objects, object)))?;
        self.account_live(admission)?;
        let Some(object) = self.world.object(&read).await? else { return Ok(None) };
        let values = (values_of(&object) as u64).saturating_mul(price::JSON_VALUE);
        if values >= self.bill.rest() {
            return Err(Refused::OverBudget);
        }
        let json = object.to_string();
        self.bill.add(Size { bytes: json.len(), values: 1 }.rendered().saturating_add(values));
        Ok(Some(json))
    }

    pub(super) async fn find_pods<F: Format>(
        &mut self,
        query: types::PodQuery,
        limit: u32,
        after: Option<String>,
    ) -> Result<Page<F::Pod>, Refused> {
        let query = PodQuery::from(query);
        let arguments = size_of(&query).and(Size::of_texts(&[after.as_deref().unwrap_or_default()]));
        let answer = match self.admit(Function::Find, arguments) {
            Ok(Admission::Admitted) => self.page::<F>(query, limit, after).await,
            Ok(Admission::Withheld) => Ok(Page { pods: F::page(Vec::new()), next: None }),
            Err(refused) => Err(refused),
        };
        self.record(Function::Find, answer.as_ref().err());
        answer
    }

    async fn page<F: Format>(
        &mut self,
        query: PodQuery,
        limit: u32,
        after: Option<String>,
    ) -> Result<Page<F::Pod>, Refused> {
        if limit == 0 {
            return Err(Refused::Invalid("limit: must be at least 1".to_owned()));
        }
        let not_one = || Refused::Invalid("after: not the `next` of a page".to_owned());
        let after = after.as_deref().map(|text| Cursor::parse(text).ok_or_else(not_one)).transpose()?;
        let Some(query) = self.within_scope(query)? else { return Ok(Page { pods: F::page(Vec::new()), next: None }) };
        let limit = limit.min(PAGE_PODS) as usize;
        // One more, to see whether more follow.
        let mut found = Vec::new();
        self.search(&query, limit + 1, after, |pods| found.extend(pods)).await?;
        let mut pods = Vec::with_capacity(limit);
        let mut bytes = 0;
        let mut last = None;
        for pod in found.iter().take(limit) {
            let rendered = self.rendered::<F>(pod)?;
            bytes += F::size(&rendered);
            if bytes > PAGE_BYTES && last.is_some() {
                return Ok(Page { pods: F::page(pods), next: last });
            }
            pods.push(rendered);
            last = Some(pod.cursor().to_string());
        }
        Ok(Page { pods: F::page(pods), next: last.filter(|_| found.len() > limit) })
    }

    pub(super) async fn count_pods(&mut self, query: types::PodQuery) -> Result<u64, Refused> {
        let query = PodQuery::from(query);
        let answer = match self.admit(Function::Count, size_of(&query)) {
            Ok(Admission::Admitted) => self.count(query).await,
            Ok(Admission::Withheld) => Ok(0),
            Err(refused) => Err(refused),
        };
        self.record(Function::Count, answer.as_ref().err());
        answer
    }

    async fn count(&mut self, query: PodQuery) -> Result<u64, Refused> {
        let Some(query) = self.within_scope(query)? else { return Ok(0) };
        if let Some(count) = self.world.view().known_count(&query) {
            return Ok(count);
        }
        Ok(self.search(&query, usize::MAX, None, drop).await? as u64)
    }

    /// Passes up to `limit` matching Pods to `take`, in slices, and returns how many there were. A slice ends when it
    /// has cost what it may, and is paid even when the search is refused after it.
    async fn search(
        &mut self,
        query: &PodQuery,
        limit: usize,
        mut after: Option<Cursor>,
        mut take: impl FnMut(Vec<Arc<CachedPod>>),
    ) -> Result<usize, Refused> {
        self.budget.may_search()?;
        let lookups = cost_of_lookups(query);
        let mut found = 0;
        let mut early = false;
        loop {
            // Whether a slice ended early depends on the sizes of stored Pods too, so the run does not pay for it.
            if !early {
                self.bill.add(lookups);
            }
            let most = self.bill.rest().min(SLICE_FUEL) / price::EFFORT;
            if most < Effort::CANDIDATE {
                return Err(Refused::OverBudget);
            }
            let slice = self.world.view().search(query, limit - found, most, after.as_ref());
            self.bill.add(price::EFFORT.saturating_mul(slice.effort));
            self.budget.searched(slice.examined);
            found += slice.pods.len();
            take(slice.pods);
            after = slice.next;
            early = slice.early;
            if found >= limit || after.is_none() {
                return Ok(found);
            }
            if self.spent.check().is_err() {
                return Err(Refused::OverBudget);
            }
            tokio::task::yield_now().await;
        }
    }

    /// Returns the query within the plugin's scope, or `None` if nothing can match.
    fn within_scope(&mut self, mut query: PodQuery) -> Result<Option<PodQuery>, Refused> {
        check_query(&query)?;
        let lacking = lacking_sections(&self.context.grants, &query);
        if !lacking.is_empty() {
            let why = refusal::search(&lacking);
            self.world.not_granted(&why);
            self.refusal = Some(why);
            return Err(Refused::NotGranted);
        }
        if let Scope::Namespace(own) = &self.context.scope {
            if query.namespace.as_ref().is_some_and(|asked| asked != own) {
                return Ok(None);
            }
            query.namespace = Some(Arc::clone(own));
        }
        Ok(Some(query))
    }
}

fn size_of(query: &PodQuery) -> Size {
    let PodQuery { namespace, node, owner_uid, phase, labels } = query;
    let texts = [namespace, node, owner_uid, phase].map(|text| text.as_deref().unwrap_or_default());
    labels.0.iter().fold(Size::of_texts(&texts), |size, requirement| {
        let bytes = requirement.key.len() + requirement.values.iter().map(String::len).sum::<usize>();
        // The requirement, its key and its values, of which each is converted once.
        size.and(Size { bytes, values: 2 + requirement.values.len() })
    })
}

/// Returns the cost of finding the index with the fewest candidates, which each slice does again.
fn cost_of_lookups(query: &PodQuery) -> u64 {
    let PodQuery { namespace: _, node, owner_uid, phase, labels } = query;
    let fields = [node, owner_uid, phase].into_iter().flatten().count();
    let by_value = labels.0.iter().filter(|requirement| requirement.operator == LabelOperator::In);
    let values: usize = by_value.map(|requirement| requirement.values.len()).sum();
    (1 + fields + values) as u64 * price::LOOKUP
}

fn check_query(query: &PodQuery) -> Result<(), Refused> {
    let PodQuery { namespace, node, owner_uid, phase, labels: _ } = query;
    let texts = [
        ("namespace", namespace, NAME_BYTES),
        ("node", node, NAME_BYTES),
        ("owner-uid", owner_uid, KEY_BYTES),
        ("phase", phase, NAME_BYTES),
    ];
    for (name, value, most) in texts {
        check_argument_length(name, value.as_deref().unwrap_or_default(), most)?;
    }
    let requirements = &query.labels.0;
    let count = requirements.len();
    let most = LabelSelector::MOST_REQUIREMENTS;
    if count > most {
        return Err(Refused::Invalid(format!("labels: {count} requirements, at most {most}")));
    }
    for requirement in requirements {
        check_argument_length("labels: key", &requirement.key, KEY_BYTES)?;
        let takes_values = matches!(requirement.operator, LabelOperator::In | LabelOperator::NotIn);
        let values = requirement.values.len();
        if takes_values == requirement.values.is_empty() || values > LabelSelector::MOST_VALUES {
            let wants = if takes_values { "1 to 64 values" } else { "no values" };
            return Err(Refused::Invalid(format!("labels: {:?} takes {wants}, not {values}", requirement.operator)));
        }
        for value in &requirement.values {
            check_argument_length("labels: value", value, NAME_BYTES)?;
        }
    }
    Ok(())
}
