//! The reason of the latest refused call in the message of a failed run; the host adds the same texts.

use podium_sdk::{
    Outcome, Request, Result, pods,
    testing::{Host, pod},
    writes,
};

const PLUGIN: &str = "
apiVersion: podium.dev/v1alpha1
kind: ReconcilePlugin
metadata: { name: p, namespace: shop }
spec:
  source: { file: p.wasm }
  grants: { read: { pods: { sections: [labels] } }, write: { labels: [team, 'shop.example/*'] } }
  limits: { writes: 1, hostCalls: 3 }
";

fn label(request: &Request) -> Result<Outcome> {
    writes::set_label(request.key(), "owner", "x").map(|_| Outcome::settled())
}

fn annotation(request: &Request) -> Result<Outcome> {
    writes::set_annotation(request.key(), "owner", "x").map(|_| Outcome::settled())
}

fn delete(request: &Request) -> Result<Outcome> {
    writes::delete(request.key(), None).map(|_| Outcome::settled())
}

fn twice(request: &Request) -> Result<Outcome> {
    writes::set_label(request.key(), "team", "x")?;
    writes::set_label(request.key(), "team", "y").map(|_| Outcome::settled())
}

/// The pages of one search are one call, and a refused call counts.
fn many(request: &Request) -> Result<Outcome> {
    assert_eq!(pods::find().in_namespace("shop").into_iter().filter(Result::is_ok).count(), 8);
    pods::get("shop", "a")?;
    assert!(pods::find().owned_by("u").count().is_err(), "not granted");
    pods::get("shop", "a").map(|_| Outcome::settled())
}

type Reconciler = fn(&Request) -> Result<Outcome>;

#[test]
fn a_failed_run_says_why_its_call_was_refused() {
    let table: [(Reconciler, &str); 5] = [
        (
            label,
            "set label owner on shop/a: not granted; add owner to spec.grants.write.labels, which has \
             [team, shop.example/*]",
        ),
        (
            annotation,
            "set annotation owner on shop/a: not granted; add owner to spec.grants.write.annotations, which is empty",
        ),
        (delete, "delete pod on shop/a: not granted; the call needs spec.grants.write.delete: true"),
        (
            twice,
            "set label team on shop/a: the run's budget is used up; spec.limits.writes (1) is used up; raise it, or do \
             less in a run",
        ),
        (
            many,
            "pods::get: the run's budget is used up; spec.limits.hostCalls (3) is used up; raise it, or do less in a \
             run",
        ),
    ];
    for (function, expected) in table {
        let pods = ["a", "b", "c", "d", "e", "f", "g", "h"].map(|name| pod("shop", name));
        let mut host = Host::with_pods(pods).configured_by(PLUGIN);
        let run = host.reconcile(function, "shop", "a");
        assert_eq!(run.result().as_ref().unwrap_err().message(), expected);
    }
}
