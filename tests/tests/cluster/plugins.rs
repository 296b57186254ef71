//! Plugins of the suite: the project's own with their sample configurations, and scripted ones.

use std::{fs, path::Path};

use anyhow::{Result, ensure};
use podium_tests::{guests, plugins::sample_yaml};

/// The project's five plugins, with shorter times in their configurations.
const FIVE: [(&str, &[(&str, &str)]); 5] = [
    ("workload-label", &[]),
    ("image-policy", &[]),
    ("crashloop-triage", &[]),
    ("pod-ttl", &[("succeededSeconds: 3600", "succeededSeconds: 5")]),
    ("spread-guard", &[("settleSeconds: 30", "settleSeconds: 2"), ("debounceSeconds: 10", "debounceSeconds: 1")]),
];

/// Builds the five plugins and writes their configurations into `directory`.
pub(crate) fn write_five(directory: &Path) -> Result<()> {
    for (name, shorter) in FIVE {
        write_own(directory, name, shorter)?;
    }
    Ok(())
}

/// Builds one of the project's plugins and writes its configuration, with `shorter` times, into `directory`.
pub(crate) fn write_own(directory: &Path, name: &str, shorter: &[(&str, &str)]) -> Result<()> {
    let mut text = sample_yaml(name)?;
    for (long, short) in shorter {
        ensure!(text.contains(long), "{name}'s sample configuration has no {long:?}");
        text = text.replace(long, short);
    }
    Ok(fs::write(directory.join(format!("{name}.yaml")), text)?)
}

/// The label that [`write_labeller`]'s plugin sets.
pub(crate) const SEEN: &str = "guests.example/seen";

/// Writes a plugin of one namespace that sets [`SEEN`], as a ServiceAccount if there is one.
pub(crate) fn write_labeller(directory: &Path, namespace: &str, service_account: Option<&str>) -> Result<()> {
    let component = guests::path("good")?.canonicalize()?;
    let account = service_account.map_or(String::new(), |name| format!("\n  serviceAccountName: {name}"));
    let text = format!(
        "apiVersion: podium.dev/v1alpha1
kind: ReconcilePlugin
metadata: {{ name: labeller, namespace: {namespace} }}
spec:
  source: {{ file: {} }}{account}
  watch: {{ sections: [labels] }}
  grants:
    read: {{ pods: {{ sections: [labels] }} }}
    write: {{ labels: [\"{SEEN}\"] }}
",
        component.display()
    );
    Ok(fs::write(directory.join("labeller.yaml"), text)?)
}
