//! The valid combinations of options of lists and watches: `ListOptions` as checked by the API server.

use crate::{
    failure::{Cause, Failure},
    request::Query,
};

const MATCH: &str = "resourceVersionMatch";
const INITIAL: &str = "sendInitialEvents";

pub(crate) fn check_list(query: &Query) -> Result<(), Failure> {
    let revision = query.get("resourceVersion");
    let wanted = query.get(MATCH);
    let token = query.get("continue");
    let mut causes = Vec::new();
    if !wanted.is_empty() {
        if revision.is_empty() {
            let detail = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            causes.push(Cause::forbidden(MATCH, detail));
        }
        if !token.is_empty() {
            causes.push(Cause::forbidden(MATCH, "resourceVersionMatch is forbidden when continue is provided"));
        }
        if !matches!(wanted, "Exact" | "NotOlderThan") {
            causes.push(Cause::unsupported(MATCH, &wanted.into(), &["Exact", "NotOlderThan", ""]));
        }
        if wanted == "Exact" && revision == "0" {
            let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            causes.push(Cause::forbidden(MATCH, detail));
        }
    }
    if !query.get(INITIAL).is_empty() {
        causes.push(Cause::forbidden(INITIAL, "sendInitialEvents is forbidden for list"));
    }
    finish(&causes)?;
    if !token.is_empty() && !revision.is_empty() && revision != "0" {
        return Err(Failure::bad_request("specifying resource version is not allowed when using continue"));
    }
    Ok(())
}

pub(crate) fn check_watch(query: &Query, streaming_lists: bool) -> Result<(), Failure> {
    let wanted = query.get(MATCH);
    let mut causes = Vec::new();
    if query.get(INITIAL).is_empty() {
        if !wanted.is_empty() {
            let detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            causes.push(Cause::forbidden(MATCH, detail));
        }
    } else if !streaming_lists {
        let detail = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
        causes.push(Cause::forbidden(INITIAL, detail));
    } else if wanted != "NotOlderThan" {
        let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        causes.push(Cause::forbidden(MATCH, detail));
    }
    finish(&causes)
}

fn finish(causes: &[Cause]) -> Result<(), Failure> {
    if causes.is_empty() { Ok(()) } else { Err(Failure::invalid_of("meta.k8s.io", "ListOptions", "", causes)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(query: &str) -> u16 {
        check_list(&Query::parse(query)).map_or_else(|failure| failure.code, |()| 200)
    }

    #[test]
    fn lists_take_only_options_that_go_together() {
        assert_eq!(list("resourceVersion=5&resourceVersionMatch=Exact"), 200);
        assert_eq!(list("resourceVersion=0&resourceVersionMatch=Exact"), 422);
        assert_eq!(list("resourceVersionMatch=Exact"), 422);
        assert_eq!(list("resourceVersion=5&resourceVersionMatch=Older"), 422);
        assert_eq!(list("continue=x&resourceVersion=5"), 400);
        assert_eq!(list("continue=x&resourceVersion=0"), 200);
        assert_eq!(list("sendInitialEvents=true"), 422);
    }

    #[test]
    fn streaming_lists_need_a_version_match_and_server_support() {
        let code = |query: &str, offered| check_watch(&Query::parse(query), offered).map_or_else(|f| f.code, |()| 200);
        let stream = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
        assert_eq!(code(stream, true), 200);
        assert_eq!(code(stream, false), 422);
        assert_eq!(code("sendInitialEvents=true", true), 422);
        assert_eq!(code("resourceVersionMatch=NotOlderThan", true), 422);
        assert_eq!(code("", false), 200);
    }
}
