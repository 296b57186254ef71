//! The code and the configurations of the cookbook's page are those of its plugins.

use std::{fs, path::Path};

#[test]
fn each_plugin_of_the_cookbook_is_in_the_page_as_it_is() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let page = fs::read_to_string(docs.join("cookbook.md")).unwrap();
    let fence = "`".repeat(3);
    let mut sources = Vec::new();
    for folder in fs::read_dir(docs.join("cookbook")).unwrap() {
        let folder = folder.unwrap();
        let name = folder.file_name().into_string().unwrap();
        let link = format!("(cookbook/{name})");
        let section = page.split("\n## ").find(|section| section.contains(&link));
        let section = section.unwrap_or_else(|| panic!("docs/cookbook.md has no section with the link {link}"));
        for (language, file) in [("yaml", "plugin.yaml"), ("rust", "src/lib.rs")] {
            let text = fs::read_to_string(folder.path().join(file)).unwrap();
            let block = format!("{fence}{language}\n{text}{fence}\n");
            assert!(section.contains(&block), "docs/cookbook.md differs from docs/cookbook/{name}/{file}:\n{block}");
            sources.push(text);
        }
    }
    let start = format!("{fence}rust\n");
    for block in page.split(&start).skip(1).map(|block| block.split(&fence).next().unwrap()) {
        assert!(sources.iter().any(|source| source.contains(block)), "of no plugin of docs/cookbook:\n{block}");
    }
}
