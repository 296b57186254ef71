//! The order of imports in every file of the project: std, then other crates, then the file's own crate.

use std::fs;

use crate::architecture::workspace;

/// The group of each import before the first item: 0 for std, 1 for other crates and child modules, 2 for the file's
/// own crate.
fn import_groups(text: &str) -> Vec<u8> {
    const ITEMS: [&str; 10] =
        ["fn ", "struct ", "enum ", "trait ", "impl", "const ", "static ", "type ", "async ", "macro_rules"];
    let is_item = |line: &&str| {
        let line = line.trim_start_matches("pub ").trim_start_matches("pub(crate) ");
        ITEMS.iter().any(|item| line.starts_with(item)) || line.starts_with("mod ") && line.ends_with('{')
    };
    let head = text.lines().take_while(|line| !is_item(line));
    let roots = head.filter_map(|line| line.strip_prefix("use ")).map(|path| path.split([':', ';', ' ']).next());
    roots
        .map(|root| match root {
            Some("std" | "core" | "alloc") => 0,
            Some("crate" | "self" | "super") => 2,
            _ => 1,
        })
        .collect()
}

#[test]
fn imports_are_std_then_other_crates_then_this_crate() {
    let mut wrong = Vec::new();
    let mut folders = vec![workspace()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") && !path.ends_with(".git") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let groups = import_groups(&fs::read_to_string(&path).unwrap());
                let std = groups.iter().filter(|group| **group == 0).count();
                if !groups.is_sorted() || std > 1 {
                    wrong.push(path);
                }
            }
        }
    }
    wrong.sort();
    assert!(wrong.is_empty(), "one `use std::{{..}}`, then other crates, then crate, self and super: {wrong:#?}");
    let flat = "use std::fs;\nuse std::io;\nuse crate::a;\nuse serde::Serialize;\nfn f() {}\nuse std::path;\n";
    assert_eq!(import_groups(flat), [0, 0, 2, 1]);
}
