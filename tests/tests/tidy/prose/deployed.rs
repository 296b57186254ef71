//! Commands and manifests of the documentation against `deploy/kustomize/base`: an operator copies them.

use std::{fs, net::IpAddr, sync::LazyLock};

use serde_json::Value;

use crate::{architecture::sources, prose::workspace};

fn base(file: &str) -> Vec<Value> {
    let text = fs::read_to_string(workspace().join("deploy/kustomize/base").join(file)).unwrap();
    serde_saphyr::from_multiple(&text).unwrap()
}

/// Returns the pages with the README.
fn pages() -> Vec<(String, String)> {
    let docs = fs::read_dir(workspace().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = docs.filter(|path| path.extension().is_some_and(|end| end == "md"));
    let all = pages.chain([workspace().join("README.md")]);
    all.map(|path| (path.display().to_string(), fs::read_to_string(path).unwrap())).collect()
}

/// Returns the words of a page that begin with a text, with what follows it up to a blank or a quotation mark.
fn words<'a>(page: &'a str, start: &'a str) -> impl Iterator<Item = &'a str> {
    page.split(|letter: char| letter.is_whitespace() || "`\"'()[]|,".contains(letter))
        .filter_map(move |word| word.strip_prefix(start))
}

/// Returns true if the pattern is a field of a log in JSON, or part of a text of the host.
fn is_logged(pattern: &str) -> bool {
    static TEXTS: LazyLock<String> = LazyLock::new(|| {
        sources(&workspace().join("host")).into_iter().map(|file| fs::read_to_string(file).unwrap()).collect()
    });
    pattern.contains('"') || TEXTS.contains(pattern)
}

/// Returns the mistakes of a page about the Deployment, its ports, the Service and the form of the log.
fn mistakes(page: &str) -> Vec<String> {
    let deployment = base("deployment.yaml").remove(0);
    let pod = &deployment["spec"]["template"];
    let container = &pod["spec"]["containers"][0];
    let ports: Vec<String> =
        container["ports"].as_array().unwrap().iter().map(|port| port["containerPort"].to_string()).collect();
    let service = base("metrics.yaml").remove(0);
    let metadata = &service["metadata"];
    let (name, namespace) = (metadata["name"].as_str().unwrap(), metadata["namespace"].as_str().unwrap());
    let address = format!("{name}.{namespace}.svc:{}", service["spec"]["ports"][0]["port"]);
    let own = deployment["metadata"]["name"].as_str().unwrap();

    let mut found = Vec::new();
    let mut wrong = |what: &str, word: &str| found.push(format!("{what} {word}"));
    for word in words(page, "deployment/").filter(|word| word.starts_with("podium") && *word != own) {
        wrong("no Deployment", word);
    }
    for word in words(page, own).filter(|rest| rest.starts_with("-0")) {
        wrong("the Pod of a StatefulSet:", word);
    }
    for word in
        words(page, "podium-host").filter(|rest| rest.contains(".svc") && format!("podium-host{rest}") != address)
    {
        wrong(&format!("no Service, {address} is:"), word);
    }
    for line in page.lines() {
        let port =
            line.split_once(&format!("port-forward deployment/{own} ")).and_then(|(_, rest)| rest.split(' ').next());
        if port.is_some_and(|port| !ports.iter().any(|own| own == port)) {
            wrong("no port of the Pod:", line);
        }
        // The chart logs JSON, in which a field is not text=text.
        let pattern = line.split_once("grep '").and_then(|(_, rest)| rest.split('\'').next());
        if pattern.is_some_and(|pattern| line.contains(" logs ") && pattern.contains('=')) {
            wrong("no text of a log in JSON:", line);
        }
        if pattern.is_some_and(|pattern| line.contains(" logs ") && !is_logged(pattern)) {
            wrong("no message of the host:", line);
        }
    }
    let fence = "`".repeat(3);
    for block in page.split(&format!("{fence}yaml\n")).skip(1).filter_map(|rest| rest.split(&fence).next()) {
        let Ok(object) = serde_saphyr::from_str::<Value>(block) else { continue };
        if object["kind"] != "NetworkPolicy" {
            continue;
        }
        for (label, value) in object["spec"]["podSelector"]["matchLabels"].as_object().unwrap() {
            if pod["metadata"]["labels"][label] != *value {
                wrong("no label of the Pod:", label);
            }
        }
        let rules = object["spec"]["ingress"].as_array().unwrap().iter();
        for port in rules.flat_map(|rule| rule["ports"].as_array().unwrap()).map(|port| port["port"].to_string()) {
            if !ports.contains(&port) {
                wrong("no port of the Pod:", &port);
            }
        }
    }
    found
}

#[test]
fn commands_in_the_documentation_name_objects_that_the_manifests_have() {
    let wrong: Vec<_> = pages().iter().map(|(file, page)| (file.clone(), mistakes(page))).collect();
    assert!(wrong.iter().all(|(_, mistakes)| mistakes.is_empty()), "{wrong:#?}");
}

#[test]
fn names_that_the_manifests_do_not_have_are_found() {
    let fence = "`".repeat(3);
    let spec = "podSelector: { matchLabels: { app.kubernetes.io/name: x } }, ingress: [{ ports: [{ port: 8443 }] }]";
    let network = format!("{fence}yaml\nkind: NetworkPolicy\nspec: {{ {spec} }}\n{fence}\n");
    for (page, count) in [
        ("kubectl port-forward podium-host-0 8081", 1),
        ("kubectl logs deployment/podium", 1),
        ("kubectl port-forward deployment/podium-host 8443 &", 1),
        ("kubectl port-forward deployment/podium-host 8081 &", 0),
        ("targets: [\"podium-host.podium.svc:8443\"]", 1),
        ("targets: [\"podium-host-metrics.podium.svc:8443\"]", 1),
        ("kubectl logs deployment/podium-host | grep 'plugin=a/b' | tail", 2),
        ("kubectl logs deployment/podium-host | grep 'policy rejected' | tail", 1),
        ("kubectl logs deployment/podium-host | grep '\"plugin\":\"a/b\"' | tail", 0),
        (&network, 2),
    ] {
        assert_eq!(mistakes(page).len(), count, "{page}: {:?}", mistakes(page));
    }
}

/// The README is read first: each object that its commands wait for is made by them.
#[test]
fn the_commands_of_the_readme_wait_only_for_objects_that_they_make() {
    let readme = fs::read_to_string(workspace().join("README.md")).unwrap();
    let (_, section) = readme.split_once("\n## In a cluster\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let commands: Vec<&str> = section.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    assert!(commands.iter().any(|command| command.starts_with("helm install podium deploy/chart ")), "{commands:?}");
    for kind in ["reconcileplugin/", "reconcileplugins/", "plugin.yaml"] {
        assert!(!commands.iter().any(|command| command.contains(kind)), "{kind} is not made by {commands:?}");
    }
    // The rest is what a person reads next, and the suite `cluster` runs its commands.
    let install = fs::read_to_string(workspace().join("docs/install.md")).unwrap();
    assert!(section.contains("(docs/install.md#a-first-plugin)") && install.contains("\n## A first plugin\n"));
}

/// Returns true if a block of addresses, such as `10.0.0.0/8`, has this address.
fn has(block: &Value, address: IpAddr) -> bool {
    let (network, length) = block.as_str().unwrap().split_once('/').unwrap();
    let bits = |address: IpAddr| match address {
        IpAddr::V4(address) => u128::from(u32::from(address)) << 96,
        IpAddr::V6(address) => u128::from(address),
    };
    let network: IpAddr = network.parse().unwrap();
    let differing = bits(network) ^ bits(address);
    network.is_ipv4() == address.is_ipv4() && differing.leading_zeros() >= length.parse().unwrap()
}

/// Returns true if a rule permits a connection to this address.
fn leads_to(rule: &Value, address: &str) -> bool {
    let address: IpAddr = address.parse().unwrap();
    rule["to"].as_array().unwrap().iter().map(|peer| &peer["ipBlock"]).filter(|block| block.is_object()).any(|block| {
        let mut except = block["except"].as_array().into_iter().flatten();
        has(&block["cidr"], address) && !except.any(|block| has(block, address))
    })
}

#[test]
fn the_network_policy_permits_dns_and_no_service_of_metadata() {
    let policy = base("network.yaml").remove(0);
    let rules = policy["spec"]["egress"].as_array().unwrap();
    let [dns, api_server] = &rules[..] else { panic!("{rules:?}") };
    let ports = |rule: &Value| rule["ports"].as_array().unwrap().clone();
    // Of OpenShift's DNS too, and of NodeLocal DNSCache.
    for port in [53, 5353] {
        for protocol in ["TCP", "UDP"] {
            let port = serde_json::json!({ "port": port, "protocol": protocol });
            assert!(ports(dns).contains(&port), "{port}");
        }
    }
    let namespaces = &dns["to"][0]["namespaceSelector"]["matchExpressions"][0]["values"];
    assert!(["kube-system", "openshift-dns"].iter().all(|name| namespaces.to_string().contains(name)), "{namespaces}");
    assert!(leads_to(dns, "169.254.20.10") && !leads_to(dns, "169.254.169.254"), "{dns}");
    for address in ["10.96.0.1", "192.0.2.7", "fd00:1::1", "2001:db8::1"] {
        assert!(leads_to(api_server, address), "{address}");
    }
    for metadata in [
        "169.254.169.254",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "fe80::a9fe:a9fe",
        "fd00:ec2::254",
        "fd00:ec2::23",
        "fd00:c1::a9fe:a9fe",
        "fd00:42::42",
        "fd20:ce::254",
    ] {
        assert!(rules.iter().all(|rule| !leads_to(rule, metadata)), "{metadata}");
    }
}

/// A host that reads a large state directory is not restarted by its liveness probe.
#[test]
fn the_host_has_minutes_for_its_start_and_for_an_outage() {
    let container = &base("deployment.yaml")[0]["spec"]["template"]["spec"]["containers"][0];
    let seconds = |probe: &str| {
        let number = |field: &str, default| container[probe][field].as_i64().unwrap_or(default);
        number("periodSeconds", 10) * number("failureThreshold", 3)
    };
    assert!(seconds("startupProbe") >= 120, "{}", container["startupProbe"]);
    assert!(seconds("livenessProbe") >= 60, "{}", container["livenessProbe"]);
    for probe in ["startupProbe", "livenessProbe"] {
        assert_eq!(container[probe]["httpGet"]["path"], "/healthz");
    }
    assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
}
