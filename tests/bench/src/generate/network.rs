//! The annotations that network plugins write to Pods.

use super::{
    json::{Json, sorted_texts},
    own::Own,
    template::Hole,
};

/// Calico's annotations.
pub(super) fn calico() -> (&'static str, Json) {
    let annotations = sorted_texts([
        ("cni.projectcalico.org/containerID", Hole::SandboxId.character().to_string()),
        ("cni.projectcalico.org/podIP", format!("{}/32", Hole::PodIp.character())),
        ("cni.projectcalico.org/podIPs", format!("{}/32", Hole::PodIp.character())),
    ]);
    ("calico", annotations)
}

/// The annotation of OVN-Kubernetes: compact JSON.
pub(super) fn ovn() -> (&'static str, Json) {
    let [ip, mac, gateway] = places();
    let value = format!(
        concat!(
            r#"{{"default":{{"ip_addresses":["{ip}/24"],"mac_address":"{mac}","gateway_ips":["{gateway}"],"#,
            r#""routes":[{{"dest":"100.64.0.0/10","nextHop":"{gateway}"}},"#,
            r#"{{"dest":"172.30.0.0/16","nextHop":"{gateway}"}}],"#,
            r#""ip_address":"{ip}/24","gateway_ip":"{gateway}","role":"primary"}}}}"#
        ),
        ip = ip,
        mac = mac,
        gateway = gateway
    );
    ("ovnkube", sorted_texts([("k8s.ovn.org/pod-networks", value)]))
}

/// The annotation of multus: JSON on several lines.
pub(super) fn multus() -> (&'static str, Json) {
    let [ip, mac, gateway] = places();
    let lines = [
        "[{",
        r#"    "name": "ovn-kubernetes","#,
        r#"    "interface": "eth0","#,
        r#"    "ips": ["#,
        &format!(r#"        "{ip}""#),
        "    ],",
        &format!(r#"    "mac": "{mac}","#),
        r#"    "default": true,"#,
        r#"    "dns": {},"#,
        r#"    "gateway": ["#,
        &format!(r#"        "{gateway}""#),
        "    ]",
        "}]",
    ];
    ("multus", sorted_texts([("k8s.v1.cni.cncf.io/network-status", lines.join("\n"))]))
}

fn places() -> [char; 3] {
    [Own::CniIp, Own::CniMac, Own::CniGateway].map(|value| Hole::Own(value).character())
}
