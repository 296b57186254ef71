//! Kinds of Kubernetes whose objects have no namespace. Kinds of custom resources are not known here.

/// By group; each kind with its resource.
const KINDS: &[(&str, &[(&str, &str)])] = &[
    (
        "",
        &[
            ("ComponentStatus", "componentstatuses"),
            ("Namespace", "namespaces"),
            ("Node", "nodes"),
            ("PersistentVolume", "persistentvolumes"),
        ],
    ),
    (
        "admissionregistration.k8s.io",
        &[
            ("MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
            ("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings"),
            ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
            ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
            ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
            ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
        ],
    ),
    ("apiextensions.k8s.io", &[("CustomResourceDefinition", "customresourcedefinitions")]),
    ("apiregistration.k8s.io", &[("APIService", "apiservices")]),
    ("authentication.k8s.io", &[("SelfSubjectReview", "selfsubjectreviews"), ("TokenReview", "tokenreviews")]),
    (
        "authorization.k8s.io",
        &[
            ("SelfSubjectAccessReview", "selfsubjectaccessreviews"),
            ("SelfSubjectRulesReview", "selfsubjectrulesreviews"),
            ("SubjectAccessReview", "subjectaccessreviews"),
        ],
    ),
    (
        "certificates.k8s.io",
        &[("CertificateSigningRequest", "certificatesigningrequests"), ("ClusterTrustBundle", "clustertrustbundles")],
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        &[("FlowSchema", "flowschemas"), ("PriorityLevelConfiguration", "prioritylevelconfigurations")],
    ),
    ("internal.apiserver.k8s.io", &[("StorageVersion", "storageversions")]),
    (
        "networking.k8s.io",
        &[("IPAddress", "ipaddresses"), ("IngressClass", "ingressclasses"), ("ServiceCIDR", "servicecidrs")],
    ),
    ("node.k8s.io", &[("RuntimeClass", "runtimeclasses")]),
    ("rbac.authorization.k8s.io", &[("ClusterRole", "clusterroles"), ("ClusterRoleBinding", "clusterrolebindings")]),
    (
        "resource.k8s.io",
        &[
            ("DeviceClass", "deviceclasses"),
            ("DeviceTaintRule", "devicetaintrules"),
            ("ResourceSlice", "resourceslices"),
        ],
    ),
    ("scheduling.k8s.io", &[("PriorityClass", "priorityclasses")]),
    (
        "storage.k8s.io",
        &[
            ("CSIDriver", "csidrivers"),
            ("CSINode", "csinodes"),
            ("StorageClass", "storageclasses"),
            ("VolumeAttachment", "volumeattachments"),
            ("VolumeAttributesClass", "volumeattributesclasses"),
        ],
    ),
    ("storagemigration.k8s.io", &[("StorageVersionMigration", "storageversionmigrations")]),
];

/// Returns each kind with its group.
pub(crate) fn all() -> impl Iterator<Item = (&'static str, &'static str)> {
    KINDS.iter().flat_map(|(group, kinds)| kinds.iter().map(move |(kind, _)| (*group, *kind)))
}

/// Returns the kind without a namespace that is named by its kind or by its resource, in any version of its group.
pub(crate) fn find(api_version: &str, name: &str) -> Option<&'static str> {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let (_, kinds) = KINDS.iter().find(|(own, _)| *own == group)?;
    kinds.iter().find(|(kind, resource)| [*kind, *resource].contains(&name)).map(|(kind, _)| *kind)
}
