//! Whether a container's image reference is pinned.

/// `[registry[:port]/]path[:tag][@digest]`, as far as it determines what will run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Image<'a> {
    /// `None` means "latest" to every container runtime.
    pub(crate) tag: Option<&'a str>,
    pub(crate) has_digest: bool,
}

impl<'a> Image<'a> {
    pub(crate) fn parse(reference: &'a str) -> Self {
        let (name, has_digest) = reference.split_once('@').map_or((reference, false), |(name, _)| (name, true));
        // A colon before the last slash belongs to the registry's port.
        let last = name.rsplit_once('/').map_or(name, |(_, last)| last);
        let tag = last.split_once(':').map(|(_, tag)| tag).filter(|tag| !tag.is_empty());
        Self { tag, has_digest }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registrys_port_is_not_a_tag() {
        assert_eq!(Image::parse("registry:5000/team/web").tag, None);
        assert_eq!(Image::parse("registry:5000/team/web:1.2").tag, Some("1.2"));
    }

    #[test]
    fn tag_and_digest_are_distinguished() {
        assert_eq!(Image::parse("nginx"), Image { tag: None, has_digest: false });
        assert_eq!(Image::parse("nginx:1.27@sha256:ab"), Image { tag: Some("1.27"), has_digest: true });
        assert_eq!(Image::parse("nginx@sha256:ab"), Image { tag: None, has_digest: true });
        assert_eq!(Image::parse("nginx:"), Image { tag: None, has_digest: false });
    }
}
