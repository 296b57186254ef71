//! The watch of the objects that one plugin applies, of one kind: their metadata, as the plugin's account.

use std::{sync::Arc, time::Duration};

use http::{Request, request};
use podium_api::{METADATA, METADATA_OF_LISTS, in_query, plugin_user_agent, resource_path};
use podium_vocabulary::ObjectGrant;
use podium_writeback::{Child, child_selector};

use super::{
    bounds::Trimming,
    watch::{Served, Watchable},
};
use crate::config::Policy;

/// The most objects of a list that are looked at: as many as the host remembers of all plugins.
const MOST: usize = 16_384;
/// The most objects of a page, each with up to 1.5 MiB of metadata.
const PAGE: u32 = 10;
/// The wait after the API server has refused the list or the watch. Rights are added by people.
const REFUSED: Duration = Duration::from_secs(60);

/// A kind of objects, and the plugin that applies them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ChildKind {
    pub(crate) kind: ObjectGrant,
    pub(crate) manager: String,
    /// The account, as which they are listed and watched.
    pub(crate) account: String,
}

impl ChildKind {
    fn plugin(&self) -> &str {
        self.manager.strip_prefix("podium/").unwrap_or(&self.manager)
    }
}

impl Served for Arc<ChildKind> {
    fn resource(&self) -> &str {
        &self.kind.resource
    }

    fn path(&self, namespace: Option<&str>) -> String {
        let ObjectGrant { api_version, resource, .. } = &self.kind;
        let path = resource_path(api_version, namespace, resource);
        format!("{path}?labelSelector={}", in_query(&child_selector(&self.manager)))
    }

    fn request(&self, uri: &str, is_watch: bool) -> request::Builder {
        let accepted = if is_watch { METADATA } else { METADATA_OF_LISTS };
        Request::get(uri)
            .header(http::header::ACCEPT, accepted)
            .header(http::header::USER_AGENT, plugin_user_agent(self.plugin()))
            .header("impersonate-user", &self.account)
    }

    fn page(&self) -> u32 {
        PAGE
    }

    fn refused(&self) -> Option<(Duration, String)> {
        let ChildKind { kind, account, .. } = &**self;
        let plugin = self.plugin();
        let resource = &kind.resource;
        let message = format!(
            "{account} may not list and watch {resource}, so the plugin {plugin} is not run when another client \
             changes one that it applied; `podium inspect` prints the rules"
        );
        Some((REFUSED, message))
    }
}

impl Watchable for Child {
    type Kind = Arc<ChildKind>;
    type Id = Self;

    fn read(kind: &Self::Kind, json: &str) -> Result<Self, String> {
        Self::read(json, &kind.manager)
    }

    fn id(self) -> Self {
        self
    }

    fn end(revision: &str) -> Option<Self> {
        Some(Self::end_of_list(revision))
    }

    fn is_full(_: &Self::Kind, objects: &[Self]) -> bool {
        objects.len() >= MOST
    }

    fn trim(_: &mut Vec<Self>, _: &mut Trimming, _: Option<&Policy>) {}
}
