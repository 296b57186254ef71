//! A sidecar as a service mesh's admission webhook injects it: an init container that always restarts, with volumes
//! whose names differ from Pod to Pod, and an annotation that lists them as JSON text.

use super::{
    draft::Draft,
    json::{Json, list, number, object, text},
    own::Own,
    template::Hole,
};

const VOLUMES: [&str; 3] = ["workload-socket", "istio-envoy", "istio-data"];

pub(super) fn inject(draft: &mut Draft) {
    let name = |volume: &str| format!("{volume}-{}", Hole::Own(Own::Sidecar).character());
    for volume in VOLUMES {
        draft.volumes.push(object([("name", text(name(volume))), ("emptyDir", object::<String>([]))]));
    }
    draft.init_containers.insert(0, proxy(&VOLUMES.map(name)));
    let volumes = VOLUMES.map(|volume| format!(r#""{}""#, name(volume))).join(",");
    let status = format!(
        "{{\"initContainers\":[\"istio-proxy\"],\"containers\":null,\"volumes\":[{volumes}],\
        \"imagePullSecrets\":null,\"revision\":\"default\"}}"
    );
    draft.annotations.set_sorted("sidecar.istio.io/status", text(status));
    draft.labels.set_sorted("security.istio.io/tlsMode", text("istio"));
}

fn proxy(volumes: &[String]) -> Json {
    let field = |name: &str, path: &str| {
        let field = object([("apiVersion", text("v1")), ("fieldPath", text(path))]);
        object([("name", text(name)), ("valueFrom", object([("fieldRef", field)]))])
    };
    let plain = |name: &str, value: &str| object([("name", text(name)), ("value", text(value))]);
    let amounts = |cpu: &str, memory: &str| object([("cpu", text(cpu)), ("memory", text(memory))]);
    let mounts =
        volumes.iter().zip(["/var/run/secrets/workload-spiffe-uds", "/etc/istio/proxy", "/var/lib/istio/data"]);
    let mounts = mounts.map(|(name, path)| object([("name", text(name.as_str())), ("mountPath", text(path))]));
    let probe = object([
        ("httpGet", object([("path", text("/healthz/ready")), ("port", number(15_021)), ("scheme", text("HTTP"))])),
        ("timeoutSeconds", number(3)),
        ("periodSeconds", number(1)),
        ("successThreshold", number(1)),
        ("failureThreshold", number(600)),
    ]);
    object([
        ("name", text("istio-proxy")),
        ("image", text("registry.example.com/mesh/proxyv2:1.27.3")),
        ("args", list(["proxy", "sidecar", "--domain", "$(POD_NAMESPACE).svc.cluster.local"].map(text))),
        (
            "env",
            list([
                field("POD_NAME", "metadata.name"),
                field("POD_NAMESPACE", "metadata.namespace"),
                field("INSTANCE_IP", "status.podIP"),
                plain("PILOT_CERT_PROVIDER", "istiod"),
                plain("CA_ADDR", "istiod.istio-system.svc:15012"),
            ]),
        ),
        ("resources", object([("limits", amounts("2", "1Gi")), ("requests", amounts("10m", "40Mi"))])),
        ("restartPolicy", text("Always")),
        ("volumeMounts", list(mounts)),
        ("startupProbe", probe),
        ("terminationMessagePath", text("/dev/termination-log")),
        ("terminationMessagePolicy", text("File")),
        ("imagePullPolicy", text("IfNotPresent")),
    ])
}
