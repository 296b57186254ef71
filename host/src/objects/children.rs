//! The watch of the objects that one plugin applies, of one kind: their metadata, as the plugin's account.

use std::{sync::Arc, time::Duration};

use http::{Request, request};
use podium_api::{ApiError, METADATA, METADATA_OF_LISTS, in_query};
use podium_engine::ports::Sender;
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

impl Served for Arc<ChildKind> {
    fn resource(&self) -> &str {
        &self.kind.resource
    }

    fn path(&self, namespace: Option<&str>) -> String {
        let ObjectGrant { api_version, resource, .. } = &self.kind;
        let root = if api_version.contains('/') { "apis" } else { "api" };
        let within = namespace.map(|namespace| format!("namespaces/{namespace}/")).unwrap_or_default();
        let selector = in_query(&child_selector(&self.manager)).to_string();
        format!("/{root}/{api_version}/{within}{resource}?labelSelector={selector}")
    }

    fn request(&self, uri: &str, is_watch: bool) -> request::Builder {
        let accepted = if is_watch { METADATA } else { METADATA_OF_LISTS };
        let manager = self.manager.clone();
        let sender = Sender { manager, impersonate: Some(self.account.clone()) };
        Request::get(uri)
            .header(http::header::ACCEPT, accepted)
            .header(http::header::USER_AGENT, podium_api::plugin_user_agent(sender.plugin()))
            .header("impersonate-user", &self.account)
    }

    fn page(&self) -> u32 {
        PAGE
    }

    fn patience(&self, error: &ApiError) -> Option<Duration> {
        let is_refused = matches!(error.code(), Some(401 | 403));
        if is_refused {
            tracing::debug!(
                plugin = self.manager.strip_prefix("podium/"),
                resource = self.kind.resource,
                account = self.account,
                "the account may not list and watch what the plugin applies, so changes of other clients wake nothing"
            );
        }
        is_refused.then_some(REFUSED)
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

    fn trim(objects: &mut Vec<Self>, _: &mut Trimming, _: Option<&Policy>) {
        objects.truncate(MOST);
    }
}
