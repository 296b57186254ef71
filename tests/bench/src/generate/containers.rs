//! Pods of very many containers.

use super::{
    draft::Draft,
    json::{list, number, object, text},
};

/// All containers of a Pod.
pub(super) const CONTAINERS: usize = 100;

/// Adds containers like the first one, with their own names and ports.
pub(super) fn multiply(draft: &mut Draft) {
    let Some(first) = draft.containers.first().cloned() else { return };
    for at in draft.containers.len()..CONTAINERS {
        let mut container = first.clone();
        container.set("name", text(format!("shard-{at}")));
        if container.get("ports").is_some() {
            let port = number(8_080 + at as i64);
            let port = object([("name", text("http")), ("containerPort", port), ("protocol", text("TCP"))]);
            container.set("ports", list([port]));
        }
        draft.containers.push(container);
    }
}
