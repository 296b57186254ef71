//! Reviews: the client's identity and permissions. Nothing is stored.

use serde_json::{Value, json};

use crate::{
    meta,
    rbac::{self, Action, User},
    request::Request,
    state::State,
};

pub(crate) fn answer(state: &State, request: &Request, mut review: Value) -> Value {
    let kind = &request.target.kind;
    let user = User::from_request(request);
    meta::set(&mut review, &["kind"], kind.kind.clone());
    meta::set(&mut review, &["apiVersion"], kind.api_version());
    let status = match kind.kind.as_str() {
        "SelfSubjectReview" => match &user {
            Some(user) => json!({"userInfo": {"username": user.name, "groups": user.groups}}),
            None => json!({"userInfo": {
                "username": "admin", "groups": ["system:masters", "system:authenticated"],
            }}),
        },
        "SelfSubjectAccessReview" => {
            let asked = |field: &str| meta::text(&review, &["spec", "resourceAttributes", field]);
            let action = Action {
                verb: asked("verb"),
                group: asked("group"),
                resource: asked("resource"),
                subresource: asked("subresource"),
                namespace: asked("namespace"),
                name: asked("name"),
            };
            let allowed = user.as_ref().is_none_or(|user| rbac::allows(state, user, action));
            json!({"allowed": allowed})
        }
        _ => {
            let everything = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]);
            let rules = if user.is_none() { everything } else { json!([]) };
            json!({"resourceRules": rules, "nonResourceRules": [], "incomplete": user.is_some()})
        }
    };
    meta::set(&mut review, &["status"], status);
    review
}
