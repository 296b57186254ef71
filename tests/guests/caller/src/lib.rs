//! Makes the host calls of a program of bytes, and logs every byte that it reads. Any bytes are a program.
//!
//! The program is the value of the key `program` of the plugin's state, or else the configuration in hexadecimal
//! digits. It begins with a table of texts: their number, then each with its length in two bytes. The calls follow: the
//! number of a function and its arguments. `podium_tests::programs` writes programs.

use bindings::{
    Failure, Outcome, Request, Subject, events, log, pods, state,
    types::{
        CallError, ConditionStatus, EventType, LabelOperator, LabelRequirement, ObjectOwner, ObjectRef, PodKey,
        PodQuery,
    },
    writes,
};

bindings::guest!(reconcile);

/// The most bytes of a text that the program repeats.
const LONGEST_TEXT: usize = 1 << 20;
/// Bytes of one line of the log.
const LINE: usize = 8 << 10;

struct Program<'a> {
    texts: Vec<String>,
    rest: &'a [u8],
    /// The last page's `next`.
    next: Option<String>,
}

fn reconcile(request: Request) -> Result<Outcome, Failure> {
    let bytes = match state::get("program") {
        Ok(Some(entry)) => entry.value,
        _ => decode(request.config.trim_matches('"')),
    };
    let mut program = Program::new(&bytes);
    while let Some(function) = program.byte() {
        match program.call(function, &request) {
            Ok(answer) => show(answer.as_bytes()),
            Err(end) => return end,
        }
    }
    Ok(Outcome::Settled)
}

fn decode(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().filter_map(|digit| digit.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn show(bytes: &[u8]) {
    for line in bytes.chunks(LINE) {
        log::write(log::Level::Info, &String::from_utf8_lossy(line), &[]);
    }
}

/// The bytes of Pods follow the answer.
fn with_bytes(answer: Result<Option<Vec<u8>>, CallError>) -> String {
    match answer {
        Ok(Some(pod)) => format!("{} bytes {}", pod.len(), String::from_utf8_lossy(&pod)),
        other => format!("{other:?}"),
    }
}

impl<'a> Program<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        let mut program = Self { texts: Vec::new(), rest: bytes, next: None };
        for _ in 0..program.byte().unwrap_or_default() {
            let length = usize::from(program.number()) | usize::from(program.number()) << 8;
            let (text, rest) = program.rest.split_at(length.min(program.rest.len()));
            program.texts.push(String::from_utf8_lossy(text).into_owned());
            program.rest = rest;
        }
        program
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    /// The next byte; zero at the end.
    fn number(&mut self) -> u8 {
        self.byte().unwrap_or_default()
    }

    fn word(&mut self) -> u32 {
        u32::from_le_bytes([self.number(), self.number(), self.number(), self.number()])
    }

    fn long(&mut self) -> u64 {
        u64::from(self.word()) | u64::from(self.word()) << 32
    }

    /// A text of the table, repeated 2^n times.
    fn text(&mut self) -> String {
        let (index, times) = (usize::from(self.number()), u32::from(self.number()));
        let Some(text) = index.checked_rem(self.texts.len()).map(|index| &self.texts[index]) else {
            return String::new();
        };
        let times = 1_usize << times.min(20);
        text.repeat(times.min(LONGEST_TEXT / text.len().max(1)).max(1))
    }

    fn maybe<T>(&mut self, some: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.number() & 1 == 1).then(|| some(self))
    }

    fn key(&mut self, request: &Request) -> PodKey {
        match self.number() & 1 {
            0 => request.key.clone(),
            _ => PodKey { namespace: self.text(), name: self.text(), uid: self.text() },
        }
    }

    fn query(&mut self) -> PodQuery {
        let namespace = self.maybe(Self::text);
        let node = self.maybe(Self::text);
        let owner_uid = self.maybe(Self::text);
        let phase = self.maybe(Self::text);
        let labels = (0..self.number()).map(|_| self.requirement()).collect();
        PodQuery { namespace, node, owner_uid, phase, labels }
    }

    fn requirement(&mut self) -> LabelRequirement {
        let key = self.text();
        let operator = match self.number() & 3 {
            0 => LabelOperator::Exists,
            1 => LabelOperator::DoesNotExist,
            2 => LabelOperator::In,
            _ => LabelOperator::NotIn,
        };
        let values = (0..self.number()).map(|_| self.text()).collect();
        LabelRequirement { key, operator, values }
    }

    fn find(&mut self, after: Option<String>) -> String {
        let (query, limit) = (self.query(), self.word());
        match pods::find(&query, limit, after.as_deref()) {
            Ok(page) => {
                self.next.clone_from(&page.next);
                format!("page {:?} {}", page.next, with_bytes(Ok(Some(page.pods))))
            }
            Err(error) => format!("{error:?}"),
        }
    }

    fn put(&mut self) -> String {
        let key = self.text();
        // Not its own program: a later run of the same case would be another one.
        if key == "program" {
            return String::new();
        }
        let (value, expected) = (self.text(), self.maybe(Self::long));
        format!("{:?}", state::put(&key, value.as_bytes(), expected))
    }

    fn fields(&mut self) -> Vec<(String, String)> {
        (0..self.number()).map(|_| (self.text(), self.text())).collect()
    }

    /// Makes a call and returns its answer, or ends the run.
    fn call(&mut self, function: u8, request: &Request) -> Result<String, Result<Outcome, Failure>> {
        Ok(match function {
            0 => with_bytes(pods::get(&self.text(), &self.text())),
            1 => {
                let after = self.maybe(Self::text);
                self.find(after)
            }
            2 => format!("{:?}", pods::count(&self.query())),
            3 => with_bytes(pods::get_live(&self.text(), &self.text())),
            4 => format!("{:?}", writes::set_label(&self.key(request), &self.text(), &self.text())),
            5 => format!("{:?}", writes::remove_label(&self.key(request), &self.text())),
            6 => format!("{:?}", writes::set_annotation(&self.key(request), &self.text(), &self.text())),
            7 => format!("{:?}", writes::remove_annotation(&self.key(request), &self.text())),
            8 => format!("{:?}", writes::add_finalizer(&self.key(request), &self.text())),
            9 => format!("{:?}", writes::remove_finalizer(&self.key(request), &self.text())),
            10 => {
                let status = match self.number() % 3 {
                    0 => ConditionStatus::True,
                    1 => ConditionStatus::False,
                    _ => ConditionStatus::Unknown,
                };
                let (key, of_type, reason) = (self.key(request), self.text(), self.text());
                format!("{:?}", writes::set_condition(&key, &of_type, status, &reason, &self.text()))
            }
            11 => format!("{:?}", writes::remove_condition(&self.key(request), &self.text())),
            12 => format!("{:?}", writes::delete_pod(&self.key(request), self.maybe(Self::word))),
            13 => format!("{:?}", writes::evict_pod(&self.key(request))),
            14 => {
                let (object, owner) = (self.text(), self.number());
                let owner = match owner & 3 {
                    1 => Some(ObjectOwner::Pod(self.key(request))),
                    3 => Some(ObjectOwner::Workload(self.key(request))),
                    _ => None,
                };
                format!("{:?}", writes::apply_object(&object, owner.as_ref()))
            }
            15 => {
                let (api_version, kind) = (self.text(), self.text());
                let (namespace, name) = (self.maybe(Self::text), self.text());
                let object = ObjectRef { api_version, kind, namespace, name };
                format!("{:?}", writes::delete_object(&object, self.maybe(Self::text).as_deref()))
            }
            16 => format!("{:?}", writes::commit()),
            17 => {
                let event_type = if self.number() & 1 == 0 { EventType::Normal } else { EventType::Warning };
                let (key, reason, action) = (self.key(request), self.text(), self.text());
                format!("{:?}", events::emit(&key, event_type, &reason, &action, &self.text()))
            }
            18 => format!("{:?}", state::get(&self.text())),
            19 => self.put(),
            20 => {
                let key = self.text();
                let expected = self.maybe(Self::long);
                if key == "program" { key } else { format!("{:?}", state::remove(&key, expected)) }
            }
            21 => {
                let level = match self.number() & 3 {
                    0 => log::Level::Debug,
                    1 => log::Level::Info,
                    2 => log::Level::Warn,
                    _ => log::Level::Error,
                };
                let (message, fields) = (self.text(), self.fields());
                log::write(level, &message, &fields);
                String::new()
            }
            22 => {
                let next = self.next.take();
                self.find(next)
            }
            23 => format!("{:?} {:?}", request.key, subject(request)),
            24 => format!("{} {} {:?}", request.now_millis, request.attempt, request.unsettled_writes),
            25 => return Err(Ok(Outcome::RequeueAfterMillis(self.long()))),
            26 => return Err(Err(Failure::Retry(self.text()))),
            27 => return Err(Err(Failure::Terminal(self.text()))),
            28 => panic!("{}", self.text()),
            29 => return Err(Ok(Outcome::Stop)),
            // A byte that is no function does nothing.
            _ => return Ok(String::new()),
        })
    }
}

fn subject(request: &Request) -> String {
    match &request.subject {
        Subject::Present(pod) => with_bytes(Ok(Some(pod.clone()))),
        Subject::Deleted(pod) => format!("deleted {}", with_bytes(Ok(pod.clone()))),
    }
}
