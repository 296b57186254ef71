//! The rules against themselves: for each rule a text that it refuses, and texts that it does not.

use std::path::Path;

use crate::prose::{
    columns::long_lines,
    files::{Kind as FileKind, kind_of},
    names::long_names,
    words::{BEGINNINGS, REPLACED, SUBJECTS, places},
};

/// Returns the places in a file of this name: line and word.
fn of(name: &str, text: &str) -> Vec<(usize, String)> {
    places(Path::new(name), text)
}

fn place(line: usize, what: &str) -> Vec<(usize, String)> {
    vec![(line, what.to_owned())]
}

#[test]
fn each_phrase_is_refused_in_every_kind_of_text() {
    for words in REPLACED.iter().flat_map(|(forms, _)| *forms) {
        let seeds = [
            ("a.rs", format!("/// The key {words} x.\nfn f() {{}}\n")),
            ("a.rs", format!("//! The key {words} x.\n")),
            ("a.rs", format!("/** The key {words} x. */\nfn f() {{}}\n")),
            ("a.rs", format!("#[doc = \"The key {words} x.\"]\nfn f() {{}}\n")),
            ("a.rs", format!("fn f() {{ tracing::warn!(a, \"the key {words} {{a}}\"); }}\n")),
            ("a.rs", format!("fn f() {{ info!(\"the key {words} x\"); }}\n")),
            ("a.rs", format!("enum E {{ #[error(\"the key {words} x\")] A }}\n")),
            ("a.rs", format!("struct A {{ #[arg(long, help = \"the key {words} x\")] a: u8 }}\n")),
            ("a.rs", format!("#[command(after_help = \"the key {words} x\")] struct A;\n")),
            ("a.rs", format!("fn f() {{ registry.register(\"a\", \"the key {words} x\", a); }}\n")),
            ("a.rs", format!("fn f() {{ g().context(\"the key {words} x\")?; bail!(\"a\"); }}\n")),
            ("a.rs", format!("// The key {words} x.\n")),
            ("a.rs", format!("//// The key {words} x.\n")),
            ("a.rs", format!("fn f() {{ let a = 1; // the key {words} x\n}}\n")),
            ("a.rs", format!("fn f() {{ g(1 /* the key {words} x */); }}\n")),
            ("a.rs", format!("/* The key {words} x. */\n")),
            ("a.rs", format!("fn f() {{ counter(encoder, \"a\", \"The key {words} x\", a)?; }}\n")),
            ("a.rs", format!("fn f() {{ self::gauge(encoder, \"a\", \"The key {words} x\", a)?; }}\n")),
            ("a.rs", format!("fn f() {{ let help = \"The key {words} x\"; }}\n")),
            ("a.rs", format!("fn f() {{ let help: &'static str = \"The key {words} x\"; }}\n")),
            ("a.rs", format!("const HELP: &str = \"The key {words} x\";\n")),
            ("a.rs", format!("fn f() {{ Metric {{ help: \"The key {words} x\" }} }}\n")),
            ("a.rs", format!("fn f() {{ g(format!(\"the key {words} {{a}}\")); }}\n")),
            ("a.rs", format!("fn f() {{ anyhow!(\"the key {words} {{a}}\"); }}\n")),
            ("a.rs", format!("fn f() {{ anyhow::bail!(\"the key {words} {{a}}\"); }}\n")),
            ("a.rs", format!("fn f() {{ panic!(\"the key {words} {{a}}\"); }}\n")),
            ("a.rs", format!("fn f() {{ write!(out, \"the key {words} {{a}}\"); }}\n")),
            ("a.rs", format!("fn f() {{ writeln!(out, \"the key {words} {{a}}\"); }}\n")),
            ("a.rs", format!("fn f() {{ ensure!(a == 1, \"the key {words} {{a}}\"); }}\n")),
            ("a.rs", format!("fn f() {{ assert_eq!(a, 1, \"the key {words} {{a}}\"); }}\n")),
            ("a.rs", format!("fn f() {{ a.expect(\"the key {words} x\"); }}\n")),
            ("a.rs", format!("#[expect(unsafe_code, reason = \"the key {words} x\")]\nfn f() {{}}\n")),
            ("a.rs", format!("#[error(\"the key {words} {{0}}\")]\nstruct A(u8);\n")),
            ("a.rs", format!("fn f() {{ unlabelled(encoder, \"a\", \"The key {words} x\", a)?; }}\n")),
            ("a.rs", format!("fn f() {{ own_helper(b, \"The key {words} x\"); }}\n")),
            ("a.rs", format!("const A: &[(&str, &str)] = &[(\"a\", \"The key {words} x\")];\n")),
            ("a.rs", format!("static A: [Help; 1] = [Help {{ a: 1, b: \"The key {words} x\" }}];\n")),
            ("a.rs", format!("const A: &str = \"The key {words} x\";\n")),
            ("a.rs", format!("fn f() {{ return Err(\"the key {words} x\".into()); }}\n")),
            ("a.rs", format!("fn f() {{ Err(E::A(r#\"the key {words} x\"#)) }}\n")),
            ("a.rs", format!("fn f() {{ let a = \"the key {words} x\"; }}\n")),
            ("a.rs", format!("fn f() {{ json!({{\"description\": \"the key {words} x\"}}); }}\n")),
            ("a.rs", format!("#[schemars(description = \"The key {words} x\")]\nstruct A;\n")),
            ("a.rs", format!("#[serde(expecting = \"the key {words} x\")]\nstruct A;\n")),
            ("a.rs", format!("m! {{ /// The key {words} x.\nA }}\n")),
            ("lib.rs.txt", format!("//! The key {words} x.\n")),
            ("a.md", format!("The key {words} x.\n")),
            ("a.wit", format!("/// The key {words} x.\n")),
            ("a.wit", format!("// The key {words} x.\n")),
            ("a.go", format!("// The key {words} x.\n")),
            ("a.rs", format!("fn f() {{ Err(\"{words}\") }}\n")),
            ("a.py", format!("a = 1  # the key {words} x\n")),
            ("a.py", format!("\"\"\"The key {words} x.\"\"\"\n")),
            ("a.toml", format!("# The key {words} x.\n")),
            ("a.yaml", format!("a: b # the key {words} x\n")),
            ("a.sh", format!("# The key {words} x.\n")),
            ("justfile", format!("# The key {words} x\n")),
        ];
        for (name, text) in seeds {
            assert_eq!(of(name, &text), place(1, words), "{name}: {text}");
        }
    }
}

#[test]
fn a_phrase_over_two_lines_is_refused_where_it_begins() {
    assert_eq!(of("a.rs", "/// The state, and what\n/// is kept of it.\nfn f() {}\n"), place(1, "what is"));
    assert_eq!(of("a.rs", "/// The keys\n/// but\n/// for one.\nfn f() {}\n"), place(2, "but for"));
    assert_eq!(of("a.md", "The keys\nbut\nfor one.\n"), place(2, "but for"));
    assert_eq!(of("a.toml", "a = 1\n# The keys but\n# for one.\n"), place(2, "but for"));
    assert_eq!(of("a.rs", "// The keys but\n// for one.\nfn f() {}\n"), place(1, "but for"));
    assert_eq!(of("a.rs", "f(); // The keys but\ng(); // for one.\n"), []);
    assert_eq!(of("a.md", "The keys but\n\nfor one, and what\n- is kept.\n"), []);
}

#[test]
fn a_possessive_is_refused_like_its_word() {
    assert_eq!(of("a.rs", "// It is nobody's key.\n"), place(1, "nobody"));
    assert_eq!(of("a.rs", "// It is nobody'sx key, and so manyx.\n"), []);
}

#[test]
fn each_beginning_of_a_doc_comment_is_refused() {
    for word in BEGINNINGS {
        let text = format!("{word} x y.");
        let expected = place(1, &format!("{word} ..."));
        let found = |text: String| {
            let found = of("a.rs", &text).into_iter().filter(|(_, what)| what.ends_with(" ..."));
            found.collect::<Vec<_>>()
        };
        assert_eq!(found(format!("/// {text}\nfn f() {{}}\n")), expected);
        assert_eq!(found(format!("//! {text}\n")), expected);
        assert_eq!(found(format!("/** {text} */\nfn f() {{}}\n")), expected);
        assert_eq!(found(format!("#[doc = \"{text}\"]\nfn f() {{}}\n")), expected);
        assert_eq!(found(format!("struct A {{\n    /// A key.\n    a: u8,\n    /// {text}\n    b: u8,\n}}\n"))[0].0, 4);
        // Behind other words it is no beginning.
        assert_eq!(found(format!("/// It has \"{text}\"\nfn f() {{}}\n")), []);
    }
}

#[test]
fn each_vague_subject_of_a_sentence_is_refused() {
    for word in SUBJECTS {
        let expected = |line| place(line, &format!("{word} ..."));
        assert_eq!(of("a.md", &format!("{word} runs once.\n")), expected(1));
        assert_eq!(of("a.md", &format!("A key.\nIt is: {word} runs once.\n")), expected(2));
        assert_eq!(of("a.md", &format!("- **{word} runs once.** A key.\n")), expected(1));
        assert_eq!(of("a.rs", &format!("/// A key. {word} runs once.\nfn f() {{}}\n")), expected(1));
        assert_eq!(of("a.toml", &format!("# {word} runs once.\n")), expected(1));
        assert_eq!(of("a.md", &format!("# {word} runs once\n\nA key. {word} runs?\n")), []);
    }
}

#[test]
fn code_names_and_quotes_are_not_read() {
    for text in [
        "fn gives() {}\n/// Returns one.\nfn f() {}\n",
        "//! ```\n//! gives\n//! ```\n",
        "fn f() { g(\"// gives\"); '\"'; r#\"/* gives */\"#; a / gives / b; }\n// https://gives_it.example\n",
        "/// Forgives; `gives`; `it is\n/// what is`; somewhat isolated; stand-alone.\nfn f() {}\n",
        "fn f() { g(\"gives\"); assert!(a == \"gives\", \"one\"); tracing::info!(a = gives, \"one {gives}\"); }\n",
        "/// The cache has room for one, no room, and makes room.\nfn f() {}\n",
    ] {
        assert_eq!(of("a.rs", text), []);
    }
    assert_eq!(of("a.md", "```\ngives\n```\n~~~\ngives\n~~~\n"), []);
    assert_eq!(of("a.toml", "a = \"gives\"\n"), []);
    assert_eq!(of("a.py", "a = \"gives\"\n"), []);
}

#[test]
fn a_fence_without_an_end_is_refused_and_hides_nothing() {
    let fence = |line| (line, "a code fence without an end".to_owned());
    let gives = |line| (line, "gives".to_owned());
    assert_eq!(of("a.md", "A key.\n```\nIt gives one.\n"), [fence(2), gives(3)]);
    assert_eq!(of("a.md", "```\na\n```\nIt gives one.\n```\nIt gives two.\n"), [gives(4), fence(5), gives(6)]);
    let rust = "/// A key.\n///\n/// ```\n/// It gives one.\nfn f() {}\n\n/// It gives two.\nfn g() {}\n";
    assert_eq!(of("a.rs", rust), [fence(3), gives(4), gives(7)]);
    // Nor does a backtick without a second one.
    assert_eq!(of("a.md", "A `b` key ` gives one.\n"), [gives(1)]);
}

#[test]
fn a_line_of_121_columns_is_too_long() {
    let line = |start: &str, columns: usize, end: &str| {
        format!("{start}{}{end}\n", "x".repeat(columns - start.len() - end.len()))
    };
    let both = |start: &str, end: &str| line(start, 120, end) + &line(start, 121, end);
    let of = |name: &str, text: String| -> Vec<usize> { long_lines(Path::new(name), &text) };
    assert_eq!(of("a.rs", both("// ", "")), [2]);
    assert_eq!(of("a.rs", both("/// ", "")), [2]);
    assert_eq!(of("a.rs", both("const A: u8 = ", ";")), [2]);
    assert_eq!(of("a.rs", both("m! { ", " }")), [2]);
    assert_eq!(of("a.rs", both("const A: &str = \"", "\";")), [2]);
    assert_eq!(of("a.rs", both("    #[error(\"", "\")]")), [2]);
    assert_eq!(of("a.rs", format!("const A: &str = r#\"\n{}\"#;\n", both("a: ", ""))), [3]);
    assert_eq!(of("a.toml", both("a = \"", "\"")), [2]);
    assert_eq!(of("a.wit", both("  f: func(", ");")), [2]);
    assert_eq!(of("a.py", both("a = ", "")), [2]);
    assert_eq!(of("a.sh", both("echo ", "")), [2]);
    assert_eq!(of("justfile", both("    echo ", "")), [2]);
    assert_eq!(of("a.yaml", both("# ", "")), [2]);
    assert_eq!(of("CHANGELOG.md", both("- ", "")), [2]);
    // Umlauts are one column each.
    assert!(of("a.rs", format!("// {}\n", "ü".repeat(117))).is_empty());
}

#[test]
fn tables_markdown_and_values_of_yaml_may_be_longer() {
    let long = "x".repeat(121);
    let of = |name: &str, text: String| -> Vec<usize> { long_lines(Path::new(name), &text) };
    assert!(of("docs/a.md", long.clone()).is_empty());
    assert!(of("a.rs", format!("//! | a | {long} |\n")).is_empty());
    assert!(of("a.yaml", format!("a: {long}\n")).is_empty());
}

#[test]
fn a_name_of_71_letters_is_too_long() {
    let of = |name: &str, text: String| long_names(Path::new(name), &text);
    for letters in [70, 71] {
        let name = "a".repeat(letters);
        let expected = if letters == 70 { Vec::new() } else { place(2, &name) };
        assert_eq!(of("a.rs", format!("#[test]\nfn {name}() {{ {name}b(); }}\n")), expected);
        assert_eq!(of("a.rs", format!("mod a {{\n#[tokio::test] async fn {name}() {{}} }}\n")), expected);
        assert_eq!(of("a.rs", format!("proptest! {{\n#[test] fn {name}(a in 0..1) {{}} }}\n")), expected);
        assert_eq!(of("a.md", format!("\nfn {name}\n")), []);
    }
}

#[test]
fn a_file_of_an_unknown_kind_is_refused() {
    for name in ["a.rs", "a/justfile", "a/lib.rs.txt", "plugin.yaml", ".ci/run", "docs/a.md", "a.go"] {
        assert_eq!(kind_of(Path::new(name)), Some(FileKind::Text), "{name}");
    }
    for name in ["Cargo.lock", "a/LICENSE", "tests/fuzz/regressions/pods/a", "a.json"] {
        assert_eq!(kind_of(Path::new(name)), Some(FileKind::Unread), "{name}");
    }
    for name in ["a.txt", "a", "a.html", "a.rs.bak", "rs", "a.adoc", "tests/fuzz/a", "a.rb"] {
        assert_eq!(kind_of(Path::new(name)), None, "{name}");
    }
}
