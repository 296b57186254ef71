//! The annotation's text: `container=class`, by container, separated by commas. Names of containers are DNS labels,
//! so they contain neither sign.

use std::collections::BTreeMap;

use crate::cause::Cause;

/// The longest note of an Event, in bytes.
pub(crate) const LONGEST_NOTE: usize = 1024;

pub(crate) fn format(found: &BTreeMap<&str, Cause>) -> String {
    let parts: Vec<_> = found.iter().map(|(container, cause)| format!("{container}={}", cause.name())).collect();
    parts.join(",")
}

/// Parses an annotation. Text of other writers that is not a diagnosis is skipped.
pub(crate) fn parse(text: &str) -> BTreeMap<&str, Cause> {
    let parts = text.split(',').filter_map(|part| part.split_once('='));
    parts.filter_map(|(container, class)| Some((container, Cause::named(class)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diagnosis_is_read_back_and_anything_else_is_not() {
        let found = BTreeMap::from([("web", Cause::OomKilled), ("mesh", Cause::Error)]);
        assert_eq!(format(&found), "mesh=Error,web=OOMKilled");
        assert_eq!(parse(&format(&found)), found);
        for other in ["", "web", "web=", "web=Tired,=,,"] {
            assert!(parse(other).is_empty(), "{other}");
        }
    }
}
