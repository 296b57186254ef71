//! The configuration of a client from a kubeconfig.
//!
//! kube's own function reads the variables of proxies too: it compares `NO_PROXY` with the proxy instead of the API
//! server, and refuses forms of it that other programs read. The caller decides about proxies here.

use http::Uri;
use kube::config::{ExecAuthCluster, Kubeconfig, KubeconfigError};
use rustls::pki_types::{CertificateDer, pem::PemObject};

/// Returns the configuration of the current context. Its own `proxy-url` is used for all requests, as kubectl does;
/// without one, `proxy` is asked for the proxy of the API server's URL.
///
/// # Errors
/// Returns a text if the kubeconfig is not complete, or if a file that it names cannot be used.
pub fn config(kubeconfig: Kubeconfig, proxy: impl FnOnce(&Uri) -> Option<Uri>) -> Result<kube::Config, String> {
    let text = |error: KubeconfigError| error.to_string();
    let name = kubeconfig.current_context.ok_or_else(|| text(KubeconfigError::CurrentContextNotSet))?;
    let context = kubeconfig.contexts.into_iter().find(|context| context.name == name);
    let context = context.and_then(|context| context.context);
    let context = context.ok_or_else(|| text(KubeconfigError::LoadContext(name)))?;
    let cluster = kubeconfig.clusters.into_iter().find(|cluster| cluster.name == context.cluster);
    let cluster = cluster.and_then(|cluster| cluster.cluster);
    let cluster = cluster.ok_or_else(|| text(KubeconfigError::LoadClusterOfContext(context.cluster)))?;
    // A user that is missing is no mistake to kubectl either.
    let user = kubeconfig.auth_infos.into_iter().find(|user| Some(&user.name) == context.user.as_ref());

    let server = cluster.server.as_deref().ok_or_else(|| text(KubeconfigError::MissingClusterUrl))?;
    let mut config = kube::Config::new(server.parse().map_err(|error| format!("server {server:?}: {error}"))?);
    // It reads the authorities from the file or from the text.
    let read = ExecAuthCluster::try_from(&cluster).map_err(text)?;
    if let Some(pem) = &read.certificate_authority_data {
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let all = all.map_err(|error| format!("certificate-authority: {error}"))?;
        config.root_cert = Some(all.iter().map(|certificate| certificate.to_vec()).collect());
    }
    config.auth_info = user.and_then(|user| user.auth_info).unwrap_or_default();
    if let Some(exec) = config.auth_info.exec.as_mut().filter(|exec| exec.provide_cluster_info) {
        exec.cluster = Some(read);
    }
    config.default_namespace = context.namespace.unwrap_or(config.default_namespace);
    config.accept_invalid_certs = cluster.insecure_skip_tls_verify.unwrap_or(false);
    config.disable_compression = cluster.disable_compression.unwrap_or(false);
    config.tls_server_name = cluster.tls_server_name;
    config.proxy_url = match cluster.proxy_url.filter(|url| !url.is_empty()) {
        Some(url) => Some(url.parse().map_err(|error| format!("proxy-url: {error}"))?),
        None => proxy(&config.cluster_url),
    };
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kubeconfig(cluster: &str, user: &str) -> Kubeconfig {
        let text = format!(
            "clusters: [{{name: c, cluster: {{{cluster}}}}}]\n\
             contexts: [{{name: x, context: {{cluster: c, user: u, namespace: shop}}}}]\n\
             current-context: x\nusers: [{{name: u, user: {{{user}}}}}]\n"
        );
        Kubeconfig::from_yaml(&text).unwrap()
    }

    #[test]
    fn a_kubeconfig_is_read_as_kube_reads_it() {
        let cluster = "server: 'https://a.example:6443', insecure-skip-tls-verify: true, tls-server-name: b, \
            disable-compression: true";
        let exec = "exec: {apiVersion: v1, command: x, interactiveMode: Never, provideClusterInfo: true}";
        for user in ["token: t", exec] {
            let ours = config(kubeconfig(cluster, user), |_| None).unwrap();
            let theirs = futures::executor::block_on(kube::Config::from_custom_kubeconfig(
                kubeconfig(cluster, user),
                &kube::config::KubeConfigOptions::default(),
            ));
            assert_eq!(format!("{ours:?}"), format!("{:?}", theirs.unwrap()));
            assert_eq!(ours.default_namespace, "shop");
        }
    }

    #[test]
    fn the_proxy_of_a_kubeconfig_is_used_before_any_other() {
        let other = |_: &Uri| Some(Uri::from_static("http://other.example"));
        let read = config(kubeconfig("server: 'https://a', proxy-url: 'http://own.example'", ""), other);
        assert_eq!(read.unwrap().proxy_url.unwrap(), Uri::from_static("http://own.example"));
        let read = config(kubeconfig("server: 'https://a'", ""), |server| {
            assert_eq!(server.host(), Some("a"));
            other(server)
        });
        assert_eq!(read.unwrap().proxy_url.unwrap(), Uri::from_static("http://other.example"));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let refused = |kubeconfig: Kubeconfig| config(kubeconfig, |_| None).err().unwrap();
        assert!(refused(Kubeconfig::default()).contains("current"), "{}", refused(Kubeconfig::default()));
        assert!(refused(kubeconfig("", "")).contains("url is missing"), "{}", refused(kubeconfig("", "")));
        for (cluster, part) in [
            ("server: 'https://a b'", "https://a b"),
            ("server: 'https://a', proxy-url: 'http://a b'", "proxy-url"),
            ("server: 'https://a', certificate-authority: /no/such/file", "/no/such/file"),
        ] {
            let error = refused(kubeconfig(cluster, ""));
            assert!(error.contains(part), "{part}: {error}");
        }
    }
}
