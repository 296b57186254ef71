//! Reads of Pods, for both worlds: scope and grants limit the Pods, bytes and numbers limit a page.

use std::sync::Arc;

use podium_engine::authz::authorize_query;
use podium_pods::{
    model::{Cursor, LabelOperator, LabelSelector, PodQuery, Refused, Scope},
    pod::CachedPod,
};
use podium_wire::{Record, Section, SectionSet};

use super::{
    bindings::types,
    function::Function,
    hostcalls::Admission,
    linking::{Json, Records},
    run::Run,
    text::at_most,
};

/// Pods of one page.
const PAGE_PODS: u32 = 500;
/// Bytes of one page; a first Pod that alone is larger is a page by itself.
const PAGE_BYTES: usize = 1 << 20;
const NAME_BYTES: usize = 253;
const KEY_BYTES: usize = 317;

/// How a world wants to see Pods.
pub(super) trait Format {
    type Pod;
    type Page: Default;
    /// # Errors
    /// [`Refused::Unavailable`] when the Pod does not fit the form; a real API server's does.
    fn pod(pod: &CachedPod, sections: SectionSet) -> Result<Self::Pod, Refused>;
    fn size(pod: &Self::Pod) -> usize;
    fn page(pods: Vec<Self::Pod>) -> Self::Page;
}

impl Format for Records {
    type Pod = Vec<u8>;
    type Page = Vec<u8>;

    fn pod(pod: &CachedPod, sections: SectionSet) -> Result<Vec<u8>, Refused> {
        pod.record(sections).map_err(|error| Refused::Unavailable(format!("{}: {error}", pod.key)))
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
    type Page = String;

    /// The full object is what it is, where it is granted: the other sections would only say a part of it again.
    fn pod(pod: &CachedPod, sections: SectionSet) -> Result<String, Refused> {
        let full = sections.contains(Section::Full);
        let wanted = if full { SectionSet::EMPTY.with(Section::Full) } else { sections };
        let record = Record::open(Records::pod(pod, wanted)?);
        let json = record.and_then(|record| match full {
            true => record.full().map(str::to_owned),
            false => podium_wire::json::render(&record).map(|json| json.to_string()),
        });
        json.map_err(|error| Refused::Unavailable(format!("{}: {error}", pod.key)))
    }
    fn size(pod: &String) -> usize {
        1 + pod.len()
    }
    fn page(pods: Vec<String>) -> String {
        format!("[{}]", pods.join(","))
    }
}

impl Run {
    pub(super) fn get_pod<F: Format>(&mut self, namespace: &str, name: &str) -> Result<Option<F::Pod>, Refused> {
        self.call(Function::Get, |run| {
            if !run.terms.scope.contains(namespace) {
                return Ok(None);
            }
            let pod = run.world.view().get(namespace, name);
            pod.map(|pod| F::pod(&pod, run.terms.sections)).transpose()
        })
    }

    pub(super) async fn get_live_pod<F: Format>(
        &mut self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<F::Pod>, Refused> {
        let admission = self.admit(Function::GetLive).and_then(|admission| self.account_live(admission));
        let answer = match admission {
            Ok(Admission::Admitted) if self.terms.scope.contains(namespace) => self.world.live(namespace, name).await,
            Ok(_) => Ok(None),
            Err(refused) => Err(refused),
        };
        self.record(Function::GetLive, answer.as_ref().err());
        answer?.map(|pod| F::pod(&pod, self.terms.sections)).transpose()
    }

    fn account_live(&mut self, admission: Admission) -> Result<Admission, Refused> {
        self.ledger.live_reads_left = self.ledger.live_reads_left.checked_sub(1).ok_or(Refused::OverBudget)?;
        Ok(admission)
    }

    /// A page, and the text that continues behind it.
    pub(super) fn find_pods<F: Format>(
        &mut self,
        query: types::PodQuery,
        limit: u32,
        after: Option<String>,
    ) -> Result<(F::Page, Option<String>), Refused> {
        self.call(Function::Find, |run| {
            if limit == 0 {
                return Err(Refused::Invalid("limit: must be at least 1".to_owned()));
            }
            let not_one = || Refused::Invalid("after: not the `next` of a page".to_owned());
            let after = after.as_deref().map(|text| Cursor::parse(text).ok_or_else(not_one)).transpose()?;
            let Some(query) = run.query(query)? else { return Ok((F::page(Vec::new()), None)) };
            run.ledger.may_search()?;
            let page = run.world.view().find(&query, limit.min(PAGE_PODS) as usize, after.as_ref());
            run.ledger.searched(page.examined);
            let (mut pods, mut bytes, mut last) = (Vec::with_capacity(page.pods.len()), 0, None);
            for pod in &page.pods {
                let rendered = F::pod(pod, run.terms.sections)?;
                bytes += F::size(&rendered);
                if bytes > PAGE_BYTES && last.is_some() {
                    return Ok((F::page(pods), last));
                }
                pods.push(rendered);
                last = Some(pod.cursor().to_string());
            }
            Ok((F::page(pods), page.next.map(|next| next.to_string())))
        })
    }

    pub(super) fn count_pods(&mut self, query: types::PodQuery) -> Result<u64, Refused> {
        self.call(Function::Count, |run| {
            let Some(query) = run.query(query)? else { return Ok(0) };
            run.ledger.may_search()?;
            run.ledger.searched(run.world.view().candidates(&query));
            Ok(run.world.view().count(&query))
        })
    }

    /// The query within the plugin's scope; none when nothing can match.
    fn query(&self, query: types::PodQuery) -> Result<Option<PodQuery>, Refused> {
        let mut query = PodQuery::from(query);
        check_query(&query)?;
        authorize_query(&self.terms.grants, &query)?;
        if let Scope::Namespace(own) = &self.terms.scope {
            if query.namespace.as_ref().is_some_and(|asked| asked != own) {
                return Ok(None);
            }
            query.namespace = Some(Arc::clone(own));
        }
        Ok(Some(query))
    }
}

fn check_query(query: &PodQuery) -> Result<(), Refused> {
    let PodQuery { namespace, node, owner_uid, phase, labels: _ } = query;
    for (name, value) in [("namespace", namespace), ("node", node), ("owner-uid", owner_uid), ("phase", phase)] {
        at_most(name, value.as_deref().unwrap_or_default(), NAME_BYTES)?;
    }
    let requirements = &query.labels.0;
    let (count, most) = (requirements.len(), LabelSelector::MOST_REQUIREMENTS);
    if count > most {
        return Err(Refused::Invalid(format!("labels: {count} requirements, at most {most}")));
    }
    for requirement in requirements {
        at_most("labels: key", &requirement.key, KEY_BYTES)?;
        let takes_values = matches!(requirement.operator, LabelOperator::In | LabelOperator::NotIn);
        let values = requirement.values.len();
        if takes_values == requirement.values.is_empty() || values > LabelSelector::MOST_VALUES {
            let wants = if takes_values { "1 to 64 values" } else { "no values" };
            return Err(Refused::Invalid(format!("labels: {:?} takes {wants}, not {values}", requirement.operator)));
        }
        for value in &requirement.values {
            at_most("labels: value", value, NAME_BYTES)?;
        }
    }
    Ok(())
}
