//! Programs of the guest `caller`, and random choices from a seed.

use std::fmt::Write;

/// Random choices; the same seed always leads to the same ones.
#[derive(Debug, Clone)]
pub struct Choices(u64);

impl Choices {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// SplitMix64.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, or zero.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.number() % (end.max(1) as u64)).unwrap_or_default()
    }

    pub fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns one of them, which must not be empty.
    pub fn one<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// Returns one of them, or `None` as often.
    pub fn maybe<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        self.percent(50).then(|| self.one(of))
    }
}

/// The arguments from which a random program chooses.
#[derive(Debug, Clone, Default)]
pub struct Vocabulary {
    pub namespaces: Vec<String>,
    pub names: Vec<String>,
    pub uids: Vec<String>,
    pub nodes: Vec<String>,
    pub owners: Vec<String>,
    pub phases: Vec<String>,
    /// Keys of labels that are searched.
    pub keys: Vec<String>,
    pub values: Vec<String>,
    /// Cursors, valid and forged.
    pub cursors: Vec<String>,
}

/// A search: fields that are `None` are not set.
#[derive(Debug, Clone, Copy, Default)]
pub struct Search<'a> {
    pub namespace: Option<&'a str>,
    pub node: Option<&'a str>,
    pub owner: Option<&'a str>,
    pub phase: Option<&'a str>,
    /// Key, number of the operator, values.
    pub label: Option<(&'a str, u8, &'a [&'a str])>,
}

/// A Pod as the target of a write: namespace, name and uid.
pub type Target<'a> = [&'a str; 3];

/// Keys that the tests' grants permit, and one that they do not.
const WRITTEN: [&str; 3] = ["guests.example/a", "guests.example/b", "app"];

/// Writes a program.
#[derive(Debug, Clone, Default)]
pub struct Program {
    texts: Vec<String>,
    calls: Vec<u8>,
}

impl Program {
    /// Returns the bytes that the guest reads.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![u8::try_from(self.texts.len()).unwrap_or(u8::MAX)];
        for text in &self.texts {
            bytes.extend(u16::try_from(text.len()).unwrap_or(u16::MAX).to_le_bytes());
            bytes.extend(text.as_bytes());
        }
        bytes.extend(&self.calls);
        bytes
    }

    /// Returns the program as a plugin's configuration.
    #[must_use]
    pub fn config(&self) -> String {
        let mut text = String::from("\"");
        for byte in self.bytes() {
            // Writing to a String does not fail.
            let _ = write!(text, "{byte:02x}");
        }
        text + "\""
    }

    fn text(&mut self, text: &str) {
        let at = self.texts.iter().position(|known| known == text).unwrap_or_else(|| {
            self.texts.push(text.to_owned());
            self.texts.len() - 1
        });
        self.calls.extend([u8::try_from(at).unwrap_or(u8::MAX), 0]);
    }

    fn maybe(&mut self, text: Option<&str>) {
        self.calls.push(text.is_some().into());
        if let Some(text) = text {
            self.text(text);
        }
    }

    /// The Pod of the run, or another one.
    fn target(&mut self, target: Option<Target<'_>>) {
        self.calls.push(target.is_some().into());
        for text in target.into_iter().flatten() {
            self.text(text);
        }
    }

    fn search(&mut self, search: &Search<'_>) {
        let Search { namespace, node, owner, phase, label } = *search;
        for field in [namespace, node, owner, phase] {
            self.maybe(field);
        }
        self.calls.push(label.is_some().into());
        if let Some((key, operator, values)) = label {
            self.text(key);
            self.calls.extend([operator, u8::try_from(values.len()).unwrap_or(u8::MAX)]);
            for value in values {
                self.text(value);
            }
        }
    }

    pub fn get(&mut self, namespace: &str, name: &str) {
        self.calls.push(0);
        self.text(namespace);
        self.text(name);
    }

    pub fn find(&mut self, search: &Search<'_>, limit: u32, after: Option<&str>) {
        self.calls.push(1);
        self.maybe(after);
        self.search(search);
        self.calls.extend(limit.to_le_bytes());
    }

    pub fn count(&mut self, search: &Search<'_>) {
        self.calls.push(2);
        self.search(search);
    }

    pub fn get_live(&mut self, namespace: &str, name: &str) {
        self.calls.push(3);
        self.text(namespace);
        self.text(name);
    }

    pub fn set_label(&mut self, target: Option<Target<'_>>, key: &str, value: &str) {
        self.calls.push(4);
        self.target(target);
        self.text(key);
        self.text(value);
    }

    pub fn delete_pod(&mut self, target: Option<Target<'_>>) {
        self.calls.push(12);
        self.target(target);
        self.calls.push(0);
    }

    pub fn apply_object(&mut self, object: &str, owner: Option<Target<'_>>) {
        self.apply(object, owner, 1);
    }

    /// Applies an object that the Pod's top workload owns.
    pub fn apply_for_workload(&mut self, object: &str, pod: Target<'_>) {
        self.apply(object, Some(pod), 3);
    }

    fn apply(&mut self, object: &str, pod: Option<Target<'_>>, owner: u8) {
        self.calls.push(14);
        self.text(object);
        self.calls.push(if pod.is_some() { owner } else { 0 });
        if pod.is_some() {
            self.target(pod);
        }
    }

    pub fn commit(&mut self) {
        self.calls.push(16);
    }

    pub fn emit(&mut self, target: Option<Target<'_>>, reason: &str, note: &str) {
        self.calls.extend([17, 0]);
        self.target(target);
        for text in [reason, "Call", note] {
            self.text(text);
        }
    }

    pub fn put_state(&mut self, key: &str, value: &str) {
        self.calls.push(19);
        self.text(key);
        self.text(value);
        self.calls.push(0);
    }

    pub fn get_state(&mut self, key: &str) {
        self.calls.push(18);
        self.text(key);
    }

    pub fn log(&mut self, message: &str) {
        self.calls.extend([21, 1]);
        self.text(message);
        self.calls.push(0);
    }

    /// Uses much fuel: passes values to the state that are too long.
    pub fn burn(&mut self) {
        for _ in 0..30 {
            self.calls.push(19);
            self.text("long");
            self.text("x");
            // 2^17 times.
            let times = self.calls.len() - 1;
            self.calls[times] = 17;
            self.calls.push(0);
        }
    }

    /// Logs the whole request.
    pub fn show_request(&mut self) {
        self.calls.extend([23, 24]);
    }

    pub fn requeue(&mut self, millis: u64) {
        self.calls.push(25);
        self.calls.extend(millis.to_le_bytes());
    }

    pub fn retry(&mut self, text: &str) {
        self.calls.push(26);
        self.text(text);
    }

    /// Returns a program of random calls with arguments of the vocabulary.
    #[must_use]
    pub fn random(choices: &mut Choices, words: &Vocabulary) -> Self {
        let mut program = Self::default();
        for _ in 0..=choices.below(12) {
            program.random_call(choices, words);
        }
        program
    }

    fn random_call(&mut self, choices: &mut Choices, words: &Vocabulary) {
        // Half of the calls are reads.
        match choices.below(25) {
            0..=2 => self.get(word(choices, &words.namespaces), word(choices, &words.names)),
            3..=5 => {
                let (limit, after) = (choices.below(4), choices.maybe(&words.cursors).map(String::as_str));
                let values = [word(choices, &words.values), word(choices, &words.values)];
                let search = random_search(choices, words, &values);
                self.find(&search, u32::try_from(limit).unwrap_or(1), after);
            }
            6..=9 => {
                let values = [word(choices, &words.values), word(choices, &words.values)];
                let search = random_search(choices, words, &values);
                self.count(&search);
            }
            10 => self.get_live(word(choices, &words.namespaces), word(choices, &words.names)),
            11 => {
                self.calls.push(22);
                self.search(&Search::default());
                self.calls.extend(1_u32.to_le_bytes());
            }
            12 => self.show_request(),
            13 => self.commit(),
            14 => {
                let target = random_target(choices, words);
                self.emit(as_target(&target), "Called", word(choices, &words.values));
            }
            15 => {
                let names = [word(choices, &words.namespaces), word(choices, &words.names)];
                let object = format!(
                    r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"namespace":"{}","name":"{}"}}}}"#,
                    names[0], names[1]
                );
                let owner = random_target(choices, words);
                let kind = if choices.percent(50) { 3 } else { 1 };
                self.apply(&object, as_target(&owner), kind);
            }
            16 => {
                self.calls.push(15);
                self.text("v1");
                self.text("ConfigMap");
                self.maybe(choices.maybe(&words.namespaces).map(String::as_str));
                self.text(word(choices, &words.names));
                self.maybe(choices.maybe(&words.uids).map(String::as_str));
            }
            17 => self.put_state(word(choices, &words.names), word(choices, &words.values)),
            18 => self.get_state(word(choices, &words.names)),
            19 => {
                let target = random_target(choices, words);
                self.delete_pod(as_target(&target));
            }
            24 if choices.percent(20) => self.burn(),
            function => {
                let target = random_target(choices, words);
                // Labels, annotations, finalizers.
                self.calls.push(match function {
                    20 => 4,
                    21 => 5,
                    22 => 6,
                    _ => 8,
                });
                self.target(as_target(&target));
                self.text(choices.one::<&str>(&WRITTEN));
                if matches!(function, 20 | 22) {
                    self.text(word(choices, &words.values));
                }
            }
        }
    }
}

fn word<'a>(choices: &mut Choices, of: &'a [String]) -> &'a str {
    choices.one::<String>(of)
}

fn random_search<'a>(choices: &mut Choices, words: &'a Vocabulary, values: &'a [&'a str]) -> Search<'a> {
    fn field<'a>(choices: &mut Choices, percent: usize, words: &'a [String]) -> Option<&'a str> {
        choices.percent(percent).then(|| word(choices, words))
    }
    let label = choices.percent(40).then(|| {
        let (key, operator) = (word(choices, &words.keys), u8::try_from(choices.below(4)).unwrap_or_default());
        let values = if operator < 2 { &values[..0] } else { &values[..1 + choices.below(2)] };
        (key, operator, values)
    });
    Search {
        namespace: field(choices, 40, &words.namespaces),
        node: field(choices, 30, &words.nodes),
        owner: field(choices, 25, &words.owners),
        phase: field(choices, 25, &words.phases),
        label,
    }
}

/// A Pod of the vocabulary, which need not exist; half of the time the run's own.
fn random_target(choices: &mut Choices, words: &Vocabulary) -> Option<[String; 3]> {
    choices.percent(50).then(|| {
        // Mostly within the namespace of the plugin, which is the first one.
        let namespace = if choices.percent(70) { &words.namespaces[0] } else { word(choices, &words.namespaces) };
        [namespace, word(choices, &words.names), word(choices, &words.uids)].map(str::to_owned)
    })
}

fn as_target(target: &Option<[String; 3]>) -> Option<Target<'_>> {
    target.as_ref().map(|[namespace, name, uid]| [namespace.as_str(), name, uid])
}
