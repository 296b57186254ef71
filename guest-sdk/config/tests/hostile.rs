//! Hostile YAML is one error or a few, never a panic, a long wait or much memory.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use podium_config::{Plugin, Problem, plugins};
use proptest::prelude::*;

const HEAD: &str = "apiVersion: podium.dev/v1alpha1\nkind: ClusterReconcilePlugin\nmetadata: { name: a }\nspec:\n";

fn with(spec: &str) -> String {
    format!("{HEAD}  source: {{ file: a.wasm }}\n{spec}")
}

fn only(yaml: &str) -> Result<Plugin, Vec<Problem>> {
    let mut documents = plugins(yaml).map_err(|problem| vec![problem])?;
    assert_eq!(documents.len(), 1, "{yaml}");
    documents.remove(0).content
}

/// The message about the file as a whole.
fn unreadable(yaml: &str) -> Problem {
    let problem = plugins(yaml).unwrap_err();
    assert!(problem.field.is_empty() && problem.line.is_some(), "{problem:?}");
    for jargon in ["udget", "Option<", "policy", "weak", "{ ", "defined at"] {
        assert!(!problem.message.contains(jargon), "{problem:?}");
    }
    problem
}

#[test]
fn deep_nesting_ends_at_a_bound_and_not_at_the_end_of_the_stack() {
    for (open, close) in [("[", "]"), ("{ a: ", " }")] {
        let nested = |depth: usize| with(&format!("  config: {{ a: {}1{} }}", open.repeat(depth), close.repeat(depth)));
        only(&nested(25)).unwrap();
        for depth in [33, 70, 1_000, 100_000] {
            unreadable(&nested(depth));
        }
    }
    let blocks: String = (0..1_000).map(|depth| format!("{}a:\n", " ".repeat(depth + 4))).collect();
    unreadable(&with(&format!("  config:\n{blocks}")));
    unreadable(&"- ".repeat(50_000));
}

#[test]
fn aliases_that_multiply_are_refused() {
    let mut bomb = "  config:\n    a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let list = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("    a{level}: &a{level} [{list}]\n"));
    }
    unreadable(&with(&bomb));
    unreadable(&with("  config: { a: *nowhere }"));
    assert!(plugins(&with("  config: &self { a: *self }")).is_err(), "an alias inside of its own anchor");
}

#[test]
fn numbers_of_any_size_are_a_value_or_an_error_with_its_field() {
    for number in ["18446744073709551615", "-9223372036854775808", "1e300", "0x7fffffffffffffff", "1.5"] {
        only(&with(&format!("  config: {{ a: {number} }}"))).unwrap();
    }
    for number in ["0", "-1", "257", "65537", "4294967297", "18446744073709551615", "1e3", "1.0", "true", "'32'"] {
        let problems = only(&with(&format!("  limits: {{ memoryMiB: {number} }}"))).unwrap_err();
        assert_eq!(problems[0].field, "spec.limits.memoryMiB", "{number}");
        assert_eq!(problems[0].message, "must be a whole number from 1 to 256", "{number}");
    }
    for number in [".inf", "-.Inf", ".nan", "1e999"] {
        // JSON has no infinity, and would have null there.
        unreadable(&with(&format!("  config: {{ a: {number} }}")));
    }
}

/// The path and the line of the key that is reported to be there twice.
fn repeated(yaml: &str) -> (String, Option<u64>) {
    let mut problems = only(yaml).unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:?}");
    let Problem { line, field, message } = problems.remove(0);
    assert_eq!(message, "is there twice; remove one of the two", "{field}");
    (field, line)
}

#[test]
fn a_duplicate_key_is_refused_at_every_level_with_its_place() {
    for (spec, field, line) in [
        ("  phase: main\n  phase: after", "spec.phase", 7),
        ("  limits: { writes: 1, writes: 2 }", "spec.limits.writes", 6),
        ("  config: { a: [1, { b: 1, b: 2 }] }", "spec.config.a[1].b", 6),
    ] {
        assert_eq!(repeated(&with(spec)), (field.to_owned(), Some(line)));
    }
    assert_eq!(repeated(&format!("{}kind: ReconcilePlugin\n", with(""))), ("kind".to_owned(), Some(6)));
}

#[test]
fn a_key_that_is_there_twice_is_refused_however_it_is_spelled() {
    for key in ["!a memoryMiB", "!!str memoryMiB", "\"memoryMiB\"", "'memoryMiB'", "&a memoryMiB", "\"memory\\x4DiB\""]
    {
        for limits in [format!("memoryMiB: 32, {key}: 65535"), format!("{key}: 65535, memoryMiB: 32")] {
            assert_eq!(repeated(&with(&format!("  limits: {{ {limits} }}"))).0, "spec.limits.memoryMiB", "{limits}");
        }
    }
    assert_eq!(repeated(&with("  limits: { &a memoryMiB: 32, *a : 65535 }")).0, "spec.limits.memoryMiB");
    assert_eq!(repeated(&with("  config: { 1: a, \"1\": b }")).0, "spec.config.1");
    let policy = "apiVersion: podium.dev/v1alpha1\nkind: Policy\nspec:\n  namespaces:\n    \
        shop: { excluded: true }\n    !a shop: { excluded: false }\n";
    let problems = podium_config::policy(policy).unwrap_err();
    assert_eq!(problems[0].field, "spec.namespaces.shop", "{problems:?}");
}

#[test]
fn merge_keys_and_tags_that_change_a_value_are_refused() {
    unreadable(&with("  grants: { write: { <<: { delete: true } } }"));
    for spec in ["  phase: !!int main", "  grants: { write: { delete: !!bool maybe } }"] {
        assert!(only(&with(spec)).is_err(), "{spec}");
    }
}

#[test]
fn tabs_are_refused_with_their_line() {
    let problem = unreadable("apiVersion: podium.dev/v1alpha1\nmetadata:\n\tname: a\n");
    assert!(problem.line.is_some_and(|line| (2..=3).contains(&line)), "{problem:?}");
}

#[test]
fn each_document_is_read_and_an_empty_file_has_no_plugin() {
    for empty in ["", "\n\n", "# nothing\n", "---\n", "---\n---\n...\n", "~", "\u{feff}"] {
        assert_eq!(plugins(empty).unwrap(), [], "{empty:?}");
    }
    let good = with("");
    let bad = with("  phase: late");
    let documents = plugins(&format!("{good}---\n{bad}\n---\n---\n{good}---\njust text\n")).unwrap();
    let fine: Vec<bool> = documents.iter().map(|document| document.content.is_ok()).collect();
    assert_eq!(fine, [true, false, true, false]);
    assert!(documents.windows(2).all(|pair| pair[0].lines.line("") < pair[1].lines.line("")), "{documents:?}");
}

#[test]
fn a_kind_granted_with_two_resources_is_refused() {
    let objects = |other: &str| {
        let one = "{ apiVersion: v1, kind: ConfigMap, resource: configmaps }";
        with(&format!("  grants: {{ write: {{ objects: [{one}, {other}] }} }}\n"))
    };
    for fine in ["configmaps }", "cms, apiVersion: v2 }", "secrets, kind: Secret }"] {
        let all = ["apiVersion: v1", "kind: ConfigMap"].into_iter().filter(|field| !fine.contains(&field[..4]));
        let fields: String = all.map(|field| format!("{field}, ")).collect();
        only(&objects(&format!("{{ {fields}resource: {fine}"))).unwrap();
    }
    let problems = only(&objects("{ apiVersion: v1, kind: ConfigMap, resource: cms }")).unwrap_err();
    let [problem] = &problems[..] else { panic!("{problems:?}") };
    assert_eq!(problem.field, "spec.grants.write.objects[1].resource");
}

#[test]
fn a_resource_granted_with_two_kinds_is_refused() {
    let objects = |other: &str| {
        let one = "{ apiVersion: shop.example/v1, kind: Cart, resource: carts }";
        with(&format!("  grants: {{ write: {{ objects: [{one}, {other}] }} }}\n"))
    };
    only(&objects("{ apiVersion: shop.example/v2, kind: Basket, resource: carts }")).unwrap();
    let problems = only(&objects("{ apiVersion: shop.example/v1, kind: Basket, resource: carts }")).unwrap_err();
    let [problem] = &problems[..] else { panic!("{problems:?}") };
    assert_eq!(problem.field, "spec.grants.write.objects[1].kind");
    assert!(problem.message.starts_with("\"carts\" is granted with the kind \"Cart\" already"), "{problem:?}");
}

#[test]
#[expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "this test measures time")]
fn as_many_grants_as_a_file_can_have_are_refused_in_one_pass() {
    let began = std::time::Instant::now();
    let grants = vec!["{apiVersion: v1,kind: A,resource: a}"; 14_000].join(",");
    let problems = only(&with(&format!("  grants: {{ write: {{ objects: [{grants}] }} }}\n"))).unwrap_err();
    assert_eq!((problems.len(), &*problems[0].message), (1, "has 14000 values; at most 256"));
    // It takes less than 1 s. A comparison of each with each takes a minute.
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
}

#[test]
fn a_document_of_mistakes_only_has_a_bounded_number_of_errors() {
    let fields: String = (0..20_000).map(|number| format!("  f{number}: 1\n")).collect();
    let problems = only(&with(&fields)).unwrap_err();
    assert_eq!(problems.len(), 101);
    assert!(problems[100].message.contains("19900 more mistakes"), "{:?}", problems[100]);
}

#[test]
fn every_mistake_of_a_document_is_reported_with_its_line() {
    let problems = only(
        "apiVersion: podium.dev/v1\nkind: ClusterReconcilePlugin\nmetadata:\n  name: A\n  namespace: shop\nspec:\n  \
         source: {}\n  watch: { sections: [status] }\n  limits:\n    memoryMiB: 0\n    cpuMillis: 5000\n  phase: 7\n",
    )
    .unwrap_err();
    let found: Vec<_> = problems.iter().map(|problem| (problem.line.unwrap(), &*problem.field)).collect();
    let mut expected = [
        (1, "apiVersion"),
        (4, "metadata.name"),
        (5, "metadata.namespace"),
        (7, "spec.source.file"),
        (8, "spec.watch.sections"),
        (10, "spec.limits.memoryMiB"),
        (11, "spec.limits.cpuMillis"),
        (12, "spec.phase"),
    ];
    let mut found = found;
    found.sort_unstable();
    expected.sort_unstable();
    assert_eq!(found, expected);
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "[-a-z0-9:{}\\[\\]*&!|>'\"# \t\n\u{0}\u{feff}\u{202e}]{0,200}") {
        let _ = plugins(&text);
        let _ = plugins(&with(&text));
    }
}

#[test]
fn a_policy_among_plugins_is_an_error_that_names_the_flag() {
    let problems = only("apiVersion: podium.dev/v1alpha1\nkind: Policy\nspec: {}\n").unwrap_err();
    let of_kind = problems.iter().find(|problem| problem.field == "kind" && problem.message.contains("--policy"));
    assert!(of_kind.is_some_and(|problem| problem.line == Some(2)), "{problems:?}");
}

#[test]
fn a_file_beyond_a_bound_is_refused_in_words_of_the_file() {
    let many = vec!["1"; 100_001].join(", ");
    for (config, expected) in [
        (format!("  config: {{ a: [{many}] }}"), "has more than 100000 values"),
        (format!("  config: {{ a: {}1{} }}", "[".repeat(40), "]".repeat(40)), "more than 32 deep"),
        ("  config: { a: .nan }".to_owned(), "infinite or no number"),
        ("  config: { ? null : 1 }".to_owned(), "a key that is null"),
        ("  config: &self { a: *self }".to_owned(), "an alias inside of its own anchor"),
        ("  config: { <<: { a: 1 } }".to_owned(), "has a merge key (`<<`)"),
        ("  config: { a: 'x }".to_owned(), "is not valid YAML: "),
    ] {
        let problem = unreadable(&with(&config));
        assert!(problem.message.contains(expected), "{problem:?}");
    }
    let problem = unreadable(&with("  config: { a: 'x }"));
    assert!(
        problem.line.is_some()
            && problem.message.ends_with(
                "; correct the indentation, quotes or brackets on this \
         line or above it"
            ),
        "{problem:?}"
    );
}

#[test]
fn a_mistake_has_the_line_of_its_key_wherever_the_value_is() {
    let yaml = "apiVersion: podium.dev/v1alpha1\nkind: ClusterReconcilePlugin\nmetadata: { name: a }\nspec:\n  source: \
        { file: a.wasm }\n  bogus:\n    # a comment\n\n    - 1\n  limits:\n\n    { writes:\n        -1 }\n  watch: &w \
        { \"nope\":\n 1 }\n";
    let problems = only(yaml).unwrap_err();
    let lines: Vec<_> = problems.iter().map(|problem| (&*problem.field, problem.line.unwrap())).collect();
    assert_eq!(lines, [("spec.bogus", 6), ("spec.limits.writes", 12), ("spec.watch.nope", 14)], "{problems:?}");
    let empty = "apiVersion: podium.dev/v1alpha1\nkind: ClusterReconcilePlugin\nmetadata: { name: a }\nspec:\n";
    let problems = only(empty).unwrap_err();
    assert_eq!((&*problems[0].field, problems[0].line), ("spec", Some(4)), "{problems:?}");
}
