//! Sends the requests of one plan. `http` makes the requests, and `answer` interprets the responses.

use std::{borrow::Cow, collections::BTreeMap, time::Duration};

use podium_api::{Api, ApiError};
use podium_engine::ports::{Expectation, Sender, Sent, Shown};
use podium_pods::pod::CachedPod;
use podium_vocabulary::{ObjectGrant, PodKey, WriteResult};
use tokio::time::Instant;

use super::{
    Writeback,
    answer::{self, ErrorClass},
    children::Origin,
    closings::WriteKind,
    http,
    objects::Way,
    owners::Reference,
    plan::{Owner, Request, Subject},
    scale,
};

/// The longest Retry-After that is followed.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// The requests of one run's plan, and the failures so far.
pub(super) struct Delivery<'a> {
    api: Cow<'a, Api>,
    of: &'a Writeback,
    sender: &'a Sender,
    /// The Pod of the run.
    subject: &'a PodKey,
    /// The kinds of objects whose applies take fields of other managers.
    forced: Vec<ObjectGrant>,
    /// Subjects with the result that later requests on them get without being sent.
    closed: BTreeMap<Subject, WriteResult>,
    cut_off: bool,
}

impl<'a> Delivery<'a> {
    /// Returns a delivery of the writes of a plugin's run on `subject` by `api`, which ends with its deadline.
    pub(super) fn new(
        of: &'a Writeback,
        api: &'a Api,
        sender: &'a Sender,
        subject: &'a PodKey,
        forced: Vec<ObjectGrant>,
    ) -> Self {
        Self { api: Cow::Borrowed(api), of, sender, subject, forced, closed: BTreeMap::new(), cut_off: false }
    }

    /// Returns true if nothing more may be sent.
    pub(super) fn is_cut_off(&self) -> bool {
        self.cut_off
    }

    /// Makes the next requests part of a span.
    pub(super) fn trace(&mut self, parent: &str) {
        self.api = Cow::Owned(self.api.traced(parent));
    }

    pub(super) async fn send(&mut self, mut request: Request, sent: &mut Sent) -> WriteResult {
        if self.cut_off {
            return WriteResult::NotSent;
        }
        let subject = request.subject();
        if let Some(result) = self.closed.get(&subject) {
            return result.clone();
        }
        let (kind, object) = WriteKind::new(&request, self.sender);
        let result = match self.of.closings.admit(kind, object, Instant::now()) {
            Err(refusal) => {
                wait(sent, Some(refusal.wait));
                WriteResult::Forbidden(refusal.message)
            }
            Ok(pass) => {
                let requests = sent.requests;
                let result = self.write(&subject, &mut request, sent).await;
                // A write that needed no request says nothing about the right to it. The read of a Scale does.
                let is_refused_read = matches!((&request, &result), (Request::Scale { .. }, WriteResult::Forbidden(_)));
                if sent.requests > requests || is_refused_read {
                    sent.closings.extend(pass.answered(&result, Instant::now()));
                }
                result
            }
        };
        if !matches!(result, WriteResult::Applied | WriteResult::Unchanged) {
            let is_gone = result == WriteResult::Gone;
            // An apply creates the object that had no replicas to set.
            if !(is_gone && matches!(request, Request::Scale { .. })) {
                self.closed.insert(subject, if is_gone { WriteResult::Gone } else { WriteResult::NotSent });
            }
        }
        result
    }

    async fn write(&mut self, subject: &Subject, request: &mut Request, sent: &mut Sent) -> WriteResult {
        if let Request::Scale { object, replicas } = request {
            let result = scale::send(&self.api, self.sender, &self.of.objects, object, *replicas, sent).await;
            return result.unwrap_or_else(|class| self.failed(class, sent));
        }
        match subject {
            Subject::Pod(key) => self.write_pod(key, request, sent).await,
            Subject::Object(_) => {
                let owner = match self.owner(request, &mut sent.reads).await {
                    Ok(owner) => owner,
                    Err(class) => return self.failed(class, sent),
                };
                let way = Way { owner, origin: self.origin(request), takes: self.takes(request) };
                let result = self.of.objects.send(&self.api, self.sender, way, request, sent).await;
                result.unwrap_or_else(|class| self.failed(class, sent))
            }
        }
    }

    fn origin(&self, request: &Request) -> Origin {
        let owner = if let Request::Apply { owner, .. } = request { owner.as_ref() } else { None };
        let workload = match owner {
            Some(Owner::Workload { workload, .. }) => workload.clone(),
            Some(Owner::Pod(_)) | None => None,
        };
        Origin { pod: Some(self.subject.clone()), workload }
    }

    /// Returns true if the write may take fields of other managers.
    fn takes(&self, request: &Request) -> bool {
        request.object().is_some_and(|object| {
            ObjectGrant::resource(&self.forced, &object.api_version, &object.kind) == Some(&*object.resource)
        })
    }

    /// Returns the owner of an object that is applied, if it gets one.
    async fn owner(&self, request: &Request, reads: &mut u32) -> Result<Option<Reference>, ErrorClass> {
        let Request::Apply { owner: Some(owner), .. } = request else { return Ok(None) };
        match owner {
            Owner::Pod(key) => Ok(Some(Reference::of_pod(key))),
            Owner::Workload { pod: key, controller, workload: _ } => {
                let owners = &self.of.owners;
                // It may have changed because the owner did.
                let fresh = self.of.objects.is_changed(self.sender, request);
                owners.workload(&self.api, self.sender, key, controller.as_ref(), fresh, reads).await.map(Some)
            }
        }
    }

    fn failed(&mut self, class: ErrorClass, sent: &mut Sent) -> WriteResult {
        match class {
            ErrorClass::Final(result, retry_after) => {
                wait(sent, retry_after);
                result
            }
            ErrorClass::Unreachable => {
                self.cut_off = true;
                WriteResult::NotSent
            }
            ErrorClass::Busy(retry_after) => {
                self.cut_off = true;
                wait(sent, retry_after);
                WriteResult::NotSent
            }
            ErrorClass::Contested => WriteResult::Conflict,
            ErrorClass::Ambiguous => {
                self.cut_off = true;
                WriteResult::Unknown
            }
        }
    }

    async fn write_pod(&mut self, key: &PodKey, request: &Request, sent: &mut Sent) -> WriteResult {
        let wire = match request {
            Request::PatchMeta { patch, .. } => http::patch_meta(key, patch, self.sender),
            Request::PatchStatus { conditions, .. } => http::patch_status(key, conditions, self.sender),
            Request::Delete { grace_seconds, .. } => http::delete(key, *grace_seconds, self.sender),
            Request::Evict { .. } => http::evict(key, self.sender),
            Request::Apply { .. } | Request::DeleteObject { .. } | Request::Scale { .. } => {
                return WriteResult::NotSent;
            }
        };
        let wire = match wire {
            Ok(wire) => wire,
            Err(error) => return WriteResult::Invalid(error.to_string()),
        };
        sent.requests += 1;
        let removal = matches!(request, Request::Delete { .. } | Request::Evict { .. });
        let result = match self.api.bytes(wire).await {
            // The response to a deletion may have the revision of the deletion itself.
            Ok(_) if removal => WriteResult::Applied,
            Ok(answer) => {
                sent.expected.push(answer::expected(&answer, key));
                WriteResult::Applied
            }
            Err(error) => match answer::classify(request, &error) {
                ErrorClass::Ambiguous => self.read_back(key, request, sent).await,
                ErrorClass::Contested => {
                    sent.reads += 1;
                    self.check_uid(key).await
                }
                class @ (ErrorClass::Final(..) | ErrorClass::Unreachable | ErrorClass::Busy(_)) => {
                    self.failed(class, sent)
                }
            },
        };
        let shown = if removal && result == WriteResult::Applied {
            Some(Shown::Deletion)
        } else {
            (result == WriteResult::Unknown).then_some(Shown::Unknown)
        };
        sent.expected.extend(shown.map(|shown| Expectation { key: key.clone(), shown }));
        result
    }

    /// The read after a contested removal. If it fails, the result is the refusal.
    async fn check_uid(&self, key: &PodKey) -> WriteResult {
        let Ok(wire) = http::get_pod(key) else { return WriteResult::Conflict };
        match self.api.json(wire).await {
            Ok(answer) => answer::after_contested_removal(answer["metadata"]["uid"].as_str(), &key.uid),
            Err(ApiError::Status { code: 404, .. }) => WriteResult::Gone,
            Err(_) => WriteResult::Conflict,
        }
    }

    /// The read after a lost response.
    async fn read_back(&mut self, key: &PodKey, request: &Request, sent: &mut Sent) -> WriteResult {
        let Ok(wire) = http::get_pod(key) else { return self.failed(ErrorClass::Ambiguous, sent) };
        sent.reads += 1;
        let result = match self.api.bytes(wire).await {
            Ok(answer) => {
                match CachedPod::unshared(&answer, &self.of.prune).ok().zip(answer::annotations(&answer).ok()) {
                    Some((pod, annotations)) => {
                        let result = answer::resolve(request, Some((&pod, &annotations)));
                        if result == WriteResult::Applied {
                            sent.expected.push(answer::expected(&answer, key));
                        }
                        result
                    }
                    None => WriteResult::Unknown,
                }
            }
            Err(ApiError::Status { code: 404, .. }) => answer::resolve(request, None),
            Err(_) => WriteResult::Unknown,
        };
        if result == WriteResult::Unknown { self.failed(ErrorClass::Ambiguous, sent) } else { result }
    }
}

fn wait(sent: &mut Sent, retry_after: Option<Duration>) {
    sent.retry_after = sent.retry_after.max(retry_after.map(|wait| wait.min(MAX_RETRY_AFTER)));
}
