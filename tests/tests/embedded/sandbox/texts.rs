//! Texts of scripts beyond ASCII: each function of the host has them as the script wrote them, and one that has no form
//! in UTF-8 is an exception, or an escape where it is only shown.

use podium_engine::ports::{FailureKind, LogLevel, Outcome, StateEntry};
use podium_tests::sandbox::*;
use serde_json::json;

use super::languages::each;

/// Compares what the script has from the host, and passes a text to each function that may have it.
const ECHOES: [&str; 2] = [
    r#"
  if (config.text !== TEXT) throw new Error("config");
  state.put("own", { [TEXT]: [TEXT] });
  if (state.get("own")[TEXT][0] !== TEXT) throw new Error("state");
  if (state.get("bytes") !== undefined || state.entry("bytes") !== undefined) throw new Error("bytes");
  writes.setAnnotation(pod, "guests.example/a", TEXT);
  const config_map = { apiVersion: "v1", kind: "ConfigMap", metadata: { namespace: "shop", name: "a" } };
  writes.applyObject({ ...config_map, data: { a: TEXT } }, { pod });
  events.emit(pod, { reason: "A", note: TEXT });
  log.info(TEXT, { [TEXT]: TEXT });
  console.log(TEXT, pods.count({ namespace: TEXT }), pods.get(TEXT, TEXT));
  class Odd extends Error { name = `Odd${TEXT}` }
  try { throw new Odd(TEXT) } catch (error) { console.log(error) }
"#,
    r#"
if request.config["text"] != TEXT: raise Exception("config")
state.put("own", {TEXT: [TEXT]})
if state.get("own")[TEXT][0] != TEXT: raise Exception("state")
if state.get("bytes") is not None or state.entry("bytes") is not None: raise Exception("bytes")
writes.set_annotation(request.pod, "guests.example/a", TEXT)
config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "shop", "name": "a"}}
writes.apply_object({**config_map, "data": {"a": TEXT}}, pod=request.pod)
events.emit(request.pod, "A", TEXT)
log.info(TEXT, **{TEXT: TEXT})
print(TEXT, pods.count(namespace=TEXT), pods.get(TEXT, TEXT))
import logging
logging.info(f"Odd{TEXT}: {TEXT}")
"#,
];

#[tokio::test]
async fn a_text_beyond_ascii_is_the_same_for_script_and_host() {
    let shown = [("ä€\u{2028}", "ä€\\u2028"), ("😀𝄞", "😀𝄞"), ("a\0b", "a\\u0000b"), ("\\ud800\\", "\\ud800\\")];
    for (scripts, body) in each(ECHOES).await {
        for (text, shown) in shown {
            let mut spec = scripts.spec(everything());
            spec.config = json!({ "text": text }).to_string().into();
            let source = scripts.script(&body.replace("TEXT", &json!(text).to_string()));
            let plugin = scripts.prepared(&spec, &source).await.unwrap();
            let mut world = FakeWorld::default();
            // A text in JSON with a byte that no text has.
            world.state.insert("bytes".to_owned(), StateEntry { value: b"\"a\xff\"".to_vec(), version: 1 });
            let (report, notes) = run_in(&plugin, request(), world).await;
            assert_eq!(report.result, Ok(Outcome::Settled), "{text:?}");
            let staged = &report.staged;
            for action in staged.writes.iter().map(|write| format!("{:?}", write.get().action)) {
                assert!(action.contains(&format!("{text:?}")), "{action}");
            }
            assert_eq!((staged.writes.len(), &*staged.events[0].get().note), (2, shown));
            let line = (LogLevel::Info, shown.to_owned(), vec![(shown.to_owned(), shown.to_owned())]);
            assert_eq!(notes.log[0], line);
            assert!(notes.lines()[1].starts_with(&format!("{shown} 0 ")), "{:?}", notes.lines());
            assert_eq!(notes.lines()[2], format!("Odd{shown}: {shown}"));
        }
    }
}

#[tokio::test]
async fn a_lone_surrogate_is_an_exception_that_names_the_argument() {
    let javascript = [
        ("writes.setAnnotation(pod, 'guests.example/a', 'T')", "the value of guests.example/a has no form in UTF-8: "),
        ("writes.setLabel(pod, 'T', 'a')", "the label's key has no form in UTF-8: \"\\ud800\""),
        ("writes.setCondition(pod, { type: 'a', status: 'True', message: 'T' })", "message has no form in UTF-8"),
        ("writes.applyObject({ kind: 'T' })", "the value has no form in UTF-8: it has \\ud800"),
        ("writes.deleteObject({ apiVersion: 'v1', kind: 'ConfigMap', name: 'T' })", "name has no form in UTF-8"),
        ("writes.evict({ namespace: 'a', name: 'a', uid: 'T' })", "uid has no form in UTF-8"),
        ("events.emit(pod, { reason: 'A', note: 'T' })", "note has no form in UTF-8"),
        ("pods.count({ node: 'T' })", "node has no form in UTF-8"),
        ("pods.count({ labels: { 'T': true } })", "a label's key has no form in UTF-8"),
        ("pods.count({ labels: { a: { not: ['T'] } } })", "a value of a has no form in UTF-8"),
        ("pods.count({ labels: { a: [5] } })", "a value of a is no string: 5"),
        ("pods.get('shop', 'T')", "name has no form in UTF-8"),
        ("state.get('T')", "the key has no form in UTF-8"),
        ("state.put('a', ['T'])", "the value has no form in UTF-8: it has \\ud800"),
        ("state.put('a', { '\\\\T': 1 })", "the value has no form in UTF-8: it has \\ud800"),
        // Only shown.
        ("throw new Error('aTb')", "a\\ud800b (plugin.js:3:"),
        ("throw 'T'", "\\ud800"),
        ("return 'T'", "reconcile returned \\ud800: return nothing"),
        ("Promise.reject('aT')", "nothing awaited it: \"a\\ud800\""),
    ];
    let python = [
        ("writes.set_annotation(request.pod, 'guests.example/a', 'T')", "the value of guests.example/a has no form in"),
        ("writes.set_label(request.pod, 'T', 'a')", "the label's key has no form in UTF-8: '\\ud800'"),
        ("writes.set_condition(request.pod, 'a', 'True', message='T')", "message has no form in UTF-8"),
        ("writes.apply_object({'kind': 'T'})", "the value has no form in JSON: 'utf-8' codec can't encode"),
        ("writes.evict(PodKey('a', 'a', 'T'))", "uid has no form in UTF-8"),
        ("events.emit(request.pod, 'A', 'T')", "note has no form in UTF-8"),
        ("pods.count(labels={'a': {'not': ['T']}})", "a value of a has no form in UTF-8"),
        ("state.get('T')", "the key has no form in UTF-8"),
        ("state.put('a', ['T'])", "the value has no form in JSON"),
        // Only shown.
        ("raise Exception('aTb')", "a\\ud800b (plugin.py:3:5)"),
        ("return 'T'", "reconcile returned \\ud800: return nothing"),
    ];
    for (scripts, failures) in each([&javascript[..], &python]).await {
        for (body, part) in failures {
            let failure = scripts.failure(&body.replace('T', "\\ud800").replace("\\ud800rue", "True")).await;
            assert_ne!(failure.kind, FailureKind::Trap, "{body}: {}", failure.message);
            assert!(failure.message.contains(part), "{body}: {}", failure.message);
        }
    }
    for (scripts, body) in each(["log.info('aT', { 'bT': 'cT' })", "log.info('aT', **{'bT': 'cT'})"]).await {
        let (_, notes) = scripts.body(&body.replace('T', "\\ud800")).await;
        let field = ["b\\ud800", "c\\ud800"].map(str::to_owned);
        assert_eq!(notes.log, [(LogLevel::Info, "a\\ud800".to_owned(), vec![field.into()])]);
    }
}
