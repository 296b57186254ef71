//! Searches of Pods: a condition on a field reveals the field, so it needs the section that the field is in.

use podium_wire::{Section, Workload};

use crate::{Grants, PodQuery};

/// Returns the names of the sections that the conditions of a search need and that are not granted; a plugin may search
/// if there are none. The namespace needs no section. The check does not look at Pods, so a refusal reveals nothing
/// about them. It does not narrow the query to the plugin's scope.
#[must_use]
pub fn lacking_sections(grants: &Grants, query: &PodQuery) -> Vec<&'static str> {
    let PodQuery { namespace: _, node, owner_uid, phase, labels } = query;
    let sections = grants.sections();
    let asked = [
        (node.is_some(), Section::Spec),
        (owner_uid.is_some(), Section::Owners),
        (phase.is_some(), Section::Status),
        // The Deployment of a Pod follows from its ReplicaSet and a label.
        (!labels.0.is_empty() || owner_uid.as_deref().is_some_and(Workload::is_text), Section::Labels),
    ];
    // The full object contains all fields of the other sections.
    let is_covered = |section| sections.contains(section) || sections.contains(Section::Full);
    let lacking = asked.into_iter().filter(|(asked, section)| *asked && !is_covered(*section));
    lacking.map(|(_, section)| section.name()).collect()
}

#[cfg(test)]
mod tests {
    use crate::{LabelOperator, LabelRequirement, LabelSelector, ReadGrants};

    use super::*;

    fn authorize_query(grants: &Grants, query: &PodQuery) -> Result<(), Vec<&'static str>> {
        let lacking = lacking_sections(grants, query);
        if lacking.is_empty() { Ok(()) } else { Err(lacking) }
    }

    fn reads(sections: &[Section]) -> Grants {
        let read = ReadGrants { sections: sections.iter().copied().collect(), live: false };
        Grants { read: Some(read), ..Grants::default() }
    }

    fn by(section: Section) -> PodQuery {
        let any = || Some("a".into());
        let label = LabelRequirement { key: "a".into(), operator: LabelOperator::Absent, values: Vec::new() };
        match section {
            Section::Spec => PodQuery { node: any(), ..PodQuery::default() },
            Section::Owners => PodQuery { owner_uid: any(), ..PodQuery::default() },
            Section::Status => PodQuery { phase: any(), ..PodQuery::default() },
            Section::Labels => PodQuery { labels: LabelSelector(vec![label]), ..PodQuery::default() },
            _ => PodQuery { namespace: any(), ..PodQuery::default() },
        }
    }

    #[test]
    fn each_condition_needs_its_own_section_or_the_full_object() {
        let needing = [Section::Spec, Section::Owners, Section::Status, Section::Labels];
        for asked in needing {
            for granted in Section::ALL {
                let verdict = authorize_query(&reads(&[granted]), &by(asked));
                let covered = granted == asked || granted == Section::Full;
                assert_eq!(verdict.is_ok(), covered, "{asked:?} with {granted:?}");
            }
            let others: Vec<_> = needing.into_iter().filter(|section| *section != asked).collect();
            assert_eq!(authorize_query(&reads(&others), &by(asked)), Err(vec![asked.name()]), "{asked:?}");
        }
        let all = PodQuery { node: Some("n".into()), phase: Some("Running".into()), ..by(Section::Labels) };
        assert!(authorize_query(&reads(&needing), &all).is_ok());
        assert!(authorize_query(&reads(&[Section::Labels, Section::Spec]), &all).is_err());
    }

    #[test]
    fn a_search_by_workload_needs_the_owners_and_the_labels() {
        let query = PodQuery { owner_uid: Some("Deployment/web".into()), ..PodQuery::default() };
        assert!(authorize_query(&reads(&[Section::Owners, Section::Labels]), &query).is_ok());
        for (granted, lacking) in [(Section::Owners, "labels"), (Section::Labels, "owners")] {
            assert_eq!(authorize_query(&reads(&[granted]), &query), Err(vec![lacking]));
        }
    }

    #[test]
    fn a_search_by_namespace_only_needs_no_section() {
        for grants in [reads(&[]), Grants::default()] {
            assert!(authorize_query(&grants, &by(Section::Lifecycle)).is_ok());
            assert!(authorize_query(&grants, &PodQuery::default()).is_ok());
            assert!(authorize_query(&grants, &by(Section::Labels)).is_err());
        }
        assert_eq!(Section::COUNT, 7, "a new section may hold a field that is searched by");
    }
}
