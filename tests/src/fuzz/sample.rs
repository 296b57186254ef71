//! A small Pod with one of each feature that the host treats specially, as an API server writes it.

/// Returns a Pod. `own` determines the values that differ between Pods of one workload.
pub(super) fn pod(name: &str, own: u32, revision: u64) -> String {
    let digest = format!("{own:08x}").repeat(8);
    let uid = uid(own);
    let time = format!("2026-03-01T00:{:02}:{:02}Z", own % 60, own / 60 % 60);
    let owner = "00000000-1111-4222-8333-444444444444";
    format!(
        concat!(
            "{{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"{name}\",\"generateName\":\"cart-\",\
            \"namespace\":\"shop\",",
            r#""uid":"{uid}","resourceVersion":"{revision}","generation":1,"creationTimestamp":"{time}","#,
            "\"labels\":{{\"app\":\"cart\",\"run\":\"{name}\"}},\"annotations\":{{\"note\":\"a \\\"b\\\" \
            {{c}}\",\"ip\":\"10.0.0.{ip}/32\"}},",
            r#""ownerReferences":[{{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"cart","uid":"{owner}","#,
            r#""controller":true}}],"finalizers":["shop.example/f"],"#,
            r#""managedFields":[{{"manager":"kubelet","fieldsV1":{{"f:a":{{"k:{{\"type\":\"Ready\"}}":{{}}}}}}}}]}},"#,
            r#""spec":{{"volumes":[{{"name":"kube-api-access-{suffix}","projected":{{"sources":[]}}}}],"#,
            "\"containers\":[{{\"name\":\"app\",\"image\":\"r.example/a:1\",\"ports\":[{{\"containerPort\":80,\
            \"protocol\":\"TCP\"}}],",
            "\"resources\":{{\"limits\":{{\"cpu\":\"1\"}}}},\
            \"volumeMounts\":[{{\"name\":\"kube-api-access-{suffix}\",\"mountPath\":\"/v\"}}]}}],",
            r#""restartPolicy":"Always","nodeName":"node-1","hostname":"{name}","affinity":{{"values":["node-1"]}},"#,
            r#""tolerations":[{{"key":"k","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}}]}},"#,
            "\"status\":{{\"phase\":\"Running\",\"conditions\":[{{\"type\":\"Ready\",\"status\":\"True\",\
            \"lastTransitionTime\":\"{time}\"}}],",
            r#""hostIP":"192.168.0.1","podIP":"10.0.0.{ip}","podIPs":[{{"ip":"10.0.0.{ip}"}}],"startTime":"{time}","#,
            r#""containerStatuses":[{{"name":"app","state":{{"waiting":{{"reason":"CrashLoopBackOff","#,
            "\"message\":\"back-off restarting \
            {name}_shop({uid})\"}}}},\"lastState\":{{}},\"ready\":true,\"restartCount\":{count},",
            "\"image\":\"r.example/a:1\",\"imageID\":\"r.example/a@sha256:{digest}\",\
            \"containerID\":\"containerd://{digest}\"}}],",
            r#""qosClass":"Burstable"}}}}"#,
        ),
        name = name,
        uid = uid,
        revision = revision,
        time = time,
        owner = owner,
        ip = own % 250 + 1,
        suffix = suffix(own),
        count = own % 7,
        digest = digest,
    )
}

pub(super) fn uid(own: u32) -> String {
    format!("{own:08x}-aaaa-4bbb-8ccc-{own:012x}")
}

fn suffix(own: u32) -> String {
    (0..5).map(|at| char::from(b'a' + (own >> at) as u8 % 26)).collect()
}

pub(super) fn event(kind: &str, object: &str) -> String {
    format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")
}

/// Returns the bookmark at the end of the initial events, or another one.
pub(super) fn bookmark(revision: u64, ends_list: bool) -> String {
    let annotations = if ends_list { r#","annotations":{"k8s.io/initial-events-end":"true"}"# } else { "" };
    let object =
        format!(r#"{{"kind":"Pod","apiVersion":"v1","metadata":{{"resourceVersion":"{revision}"{annotations}}}}}"#);
    event("BOOKMARK", &object)
}
