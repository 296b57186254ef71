//! RBAC: a request that impersonates a user is checked against the Roles and ClusterRoles that are bound to the user.
//! Any other request comes from the administrator. Whether the administrator may impersonate is not checked.

use serde_json::Value;

use crate::{
    failure::Failure,
    meta,
    read::Selection,
    request::{Request, Target, Verb},
    state::State,
    store::Key,
};

const GROUP: &str = "rbac.authorization.k8s.io";

/// The user of a request.
#[derive(Clone, Debug)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) groups: Vec<String>,
}

impl User {
    /// Returns the user; `None` for the administrator.
    pub(crate) fn from_request(request: &Request) -> Option<Self> {
        let name = request.header("impersonate-user");
        if name.is_empty() {
            return None;
        }
        let mut groups: Vec<String> = request
            .headers
            .get_all("impersonate-group")
            .iter()
            .filter_map(|value| value.to_str().ok())
            .map(str::to_owned)
            .collect();
        if let Some((namespace, _)) = name.strip_prefix("system:serviceaccount:").and_then(|rest| rest.split_once(':'))
        {
            groups.push("system:serviceaccounts".into());
            groups.push(format!("system:serviceaccounts:{namespace}"));
        }
        groups.push("system:authenticated".into());
        Some(Self { name: name.to_owned(), groups })
    }

    fn is(&self, subject: &Value) -> bool {
        let name = meta::text(subject, &["name"]);
        match meta::text(subject, &["kind"]) {
            "User" => name == self.name,
            "Group" => self.groups.iter().any(|group| group == name),
            "ServiceAccount" => {
                self.name == format!("system:serviceaccount:{}:{name}", meta::text(subject, &["namespace"]))
            }
            _ => false,
        }
    }
}

/// The action to authorize.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Action<'a> {
    pub(crate) verb: &'a str,
    pub(crate) group: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
}

/// Refuses requests that the impersonated user is not permitted to make.
pub(crate) fn authorize(state: &State, request: &Request, verb: Verb) -> Result<(), Failure> {
    let Some(user) = User::from_request(request) else { return Ok(()) };
    let Target { kind, namespace, name, subresource, .. } = &request.target;
    // Every user may create access reviews.
    if kind.review {
        return Ok(());
    }
    let selected;
    let name = if name.is_empty() && matches!(verb, Verb::List | Verb::Watch) {
        selected = Selection::from_request(request)?.fields.single_name().unwrap_or_default().to_owned();
        &selected
    } else {
        name
    };
    let action = Action {
        verb: verb.as_str(),
        group: &kind.group,
        resource: &kind.plural,
        subresource,
        namespace: namespace.as_deref().unwrap_or_default(),
        name,
    };
    if allows(state, &user, action) {
        return Ok(());
    }
    let resource = if subresource.is_empty() { kind.plural.clone() } else { format!("{}/{subresource}", kind.plural) };
    let place = match namespace {
        Some(namespace) => format!("in the namespace \"{namespace}\""),
        None => "at the cluster scope".to_owned(),
    };
    let why = format!(
        "User \"{}\" cannot {} resource \"{resource}\" in API group \"{}\" {place}",
        user.name,
        verb.as_str(),
        kind.group
    );
    Err(Failure::forbidden(kind, &request.target.name, &why))
}

/// Returns true if a binding grants the user a role with a rule for the action.
pub(crate) fn allows(state: &State, user: &User, action: Action<'_>) -> bool {
    if user.groups.iter().any(|group| group == "system:masters") {
        return true;
    }
    let bound = |binding: &Value| meta::list(binding, &["subjects"]).iter().any(|subject| user.is(subject));
    let grants = |role: Option<&Value>| {
        role.is_some_and(|role| meta::list(role, &["rules"]).iter().any(|rule| covers(rule, action)))
    };
    let role_of = |binding: &Value, namespace: &str| {
        let name = meta::text(binding, &["roleRef", "name"]);
        let (plural, namespace) = match meta::text(binding, &["roleRef", "kind"]) {
            "ClusterRole" => ("clusterroles", ""),
            _ => ("roles", namespace),
        };
        state.store.get(&format!("{plural}.{GROUP}"), &Key::new(namespace, name)).cloned()
    };
    let everywhere = state
        .store
        .iter(&format!("clusterrolebindings.{GROUP}"), None)
        .any(|(_, binding)| bound(binding) && grants(role_of(binding, "").as_deref()));
    everywhere
        || (!action.namespace.is_empty()
            && state
                .store
                .iter(&format!("rolebindings.{GROUP}"), Some(action.namespace))
                .any(|(_, binding)| bound(binding) && grants(role_of(binding, action.namespace).as_deref())))
}

fn covers(rule: &Value, action: Action<'_>) -> bool {
    let has = |field: &str, wanted: &str| meta::list(rule, &[field]).iter().any(|v| v == "*" || v == wanted);
    let resource = if action.subresource.is_empty() {
        has("resources", action.resource)
    } else {
        let full = format!("{}/{}", action.resource, action.subresource);
        let any = format!("*/{}", action.subresource);
        has("resources", &full) || has("resources", &any)
    };
    let names = meta::list(rule, &["resourceNames"]);
    resource
        && has("verbs", action.verb)
        && has("apiGroups", action.group)
        && (names.is_empty() || names.iter().any(|name| name == action.name))
}
