//! The policy and its violations. Does not use the host.

use podium_sdk::{Container, Spec};
use serde::Deserialize;

use crate::image::Image;

/// The longest message in bytes: that of an Event's note.
const LONGEST: usize = 1024;

/// The plugin's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct Policy {
    /// Tags that can be moved to another image. An image without a tag means "latest".
    pub mutable_tags: Vec<String>,
    /// Every image must have a digest, whatever its tag.
    pub require_digest: bool,
    /// Resources for which every container must have a limit; by default none is required.
    pub required_limits: Vec<String>,
    /// Names of containers that are not checked, such as those that a mesh injects.
    pub exempt_containers: Vec<String>,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            mutable_tags: vec!["latest".to_owned()],
            require_digest: false,
            required_limits: vec!["memory".to_owned()],
            exempt_containers: Vec::new(),
        }
    }
}

/// One violation by a container.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// Its image can change under the same name.
    Image(String),
    /// A limit is missing.
    Limits(String),
}

impl Policy {
    /// Returns the violations in the order of the Pod's init containers and containers. Ephemeral containers are for
    /// debugging and cannot have limits, so they are not checked.
    pub(crate) fn violations(&self, spec: &Spec) -> Vec<Violation> {
        let containers = spec.init_containers.iter().chain(&spec.containers);
        let judged = containers.filter(|container| !self.exempt_containers.contains(&container.name));
        judged.flat_map(|container| self.image(container).into_iter().chain(self.limits(container))).collect()
    }

    fn image(&self, container: &Container) -> Option<Violation> {
        let image = Image::parse(&container.image);
        let mutable = |tag: &str| self.mutable_tags.iter().any(|mutable| mutable == tag);
        let why = match image {
            Image { has_digest: true, .. } => return None,
            _ if self.require_digest => "has no digest",
            Image { tag: None, .. } if mutable("latest") => "has no tag",
            Image { tag: Some(tag), .. } if mutable(tag) => "has a tag that can move",
            _ => return None,
        };
        Some(Violation::Image(format!("image {} of container {} {why}", container.image, container.name)))
    }

    fn limits(&self, container: &Container) -> Option<Violation> {
        let missing = self.required_limits.iter().filter(|resource| !container.limits.contains_key(*resource));
        let missing: Vec<_> = missing.map(String::as_str).collect();
        let text = || format!("container {} has no limit of {}", container.name, missing.join(" and "));
        (!missing.is_empty()).then(|| Violation::Limits(text()))
    }
}

/// Returns reason and message; `None` if the Pod follows the policy.
pub(crate) fn summary(violations: &[Violation]) -> Option<(&'static str, String)> {
    let image = violations.iter().any(|violation| matches!(violation, Violation::Image(_)));
    let limits = violations.iter().any(|violation| matches!(violation, Violation::Limits(_)));
    let reason = match (image, limits) {
        (false, false) => return None,
        (true, false) => "MutableImage",
        (false, true) => "MissingLimits",
        (true, true) => "MutableImageAndMissingLimits",
    };
    let texts = violations.iter().map(|(Violation::Image(text) | Violation::Limits(text))| text.as_str());
    let mut message = texts.collect::<Vec<_>>().join("; ");
    if message.len() > LONGEST {
        const ELLIPSIS: &str = "...";
        message.truncate(message.floor_char_boundary(LONGEST - ELLIPSIS.len()));
        message.push_str(ELLIPSIS);
    }
    Some((reason, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(images: &[&str]) -> Spec {
        let container = |image: &&str| Container {
            name: "web".to_owned(),
            image: (*image).to_owned(),
            limits: [("memory".to_owned(), "64Mi".to_owned())].into(),
            ..Container::default()
        };
        Spec { containers: images.iter().map(container).collect(), ..Spec::default() }
    }

    fn breaks(policy: &Policy, image: &str) -> bool {
        !policy.violations(&spec(&[image])).is_empty()
    }

    #[test]
    fn mutable_images_lack_a_tag_or_a_required_digest() {
        let policy = Policy::default();
        assert!(breaks(&policy, "nginx"));
        assert!(breaks(&policy, "nginx:latest"));
        assert!(!breaks(&policy, "nginx:1.27"));
        assert!(!breaks(&policy, "nginx@sha256:ab"));
        let strict = Policy { require_digest: true, ..Policy::default() };
        assert!(breaks(&strict, "nginx:1.27"));
        assert!(!breaks(&strict, "nginx:latest@sha256:ab"));
        let main = Policy { mutable_tags: vec!["main".into()], ..Policy::default() };
        assert!(breaks(&main, "nginx:main"));
        assert!(!breaks(&main, "nginx"));
    }

    #[test]
    fn init_containers_are_judged_and_exempt_ones_are_not() {
        let mut spec = spec(&[]);
        spec.init_containers.push(Container { name: "setup".into(), image: "busybox".into(), ..Container::default() });
        assert_eq!(Policy::default().violations(&spec).len(), 2);
        let exempt = Policy { exempt_containers: vec!["setup".into()], ..Policy::default() };
        assert_eq!(exempt.violations(&spec), []);
    }

    #[test]
    fn a_summary_of_many_violations_still_fits_an_event() {
        let policy = Policy::default();
        let long = format!("registry.example/{}", "ü".repeat(200));
        let (reason, message) = summary(&policy.violations(&spec(&[long.as_str(); 10]))).unwrap();
        assert_eq!(reason, "MutableImage");
        assert!(message.len() <= LONGEST && message.ends_with("..."), "{} bytes", message.len());
    }
}
