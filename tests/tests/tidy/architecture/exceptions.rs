//! The walls around the crates below the application: clippy refuses the clock, the environment, randomness, the
//! network, files, processes, tasks and threads, by the lists of one file. The exceptions are these.

use std::fs;

use crate::architecture::{BELOW_APP, read, sources, workspace};

/// The lists of clippy that each crate below the application links to.
const LISTS: &str = "clippy-below-app.toml";
/// Files that may do some of it; each says at its beginning what, and why.
const EXCEPTIONS: &[&str] = &[
    "host/api/src/client.rs",
    "host/encoding/src/testing/real.rs",
    "host/engine/src/journal/file.rs",
    "host/engine/src/journal/replay.rs",
    "host/engine/src/private_file.rs",
    "host/registry/src/answer.rs",
    "host/registry/src/client.rs",
    "host/runtime/src/compile/cache.rs",
    "host/runtime/src/compile/child.rs",
    "host/runtime/src/compile/jail.rs",
    "host/runtime/src/compile/process.rs",
    "host/runtime/src/meter.rs",
    "host/runtime/src/ticker.rs",
    "host/writeback/src/events/memories.rs",
    "host/writeback/src/shares.rs",
];

/// Returns the attributes of a text that except code from the lists.
fn exceptions(text: &str) -> Vec<&str> {
    let lists = ["clippy::disallowed_methods", "clippy::disallowed_types", "clippy::disallowed_macros"];
    let attributes = text.split("#").filter(|part| part.starts_with(['[', '!']));
    let attributes = attributes.map(|part| part.split_once(']').map_or(part, |(attribute, _)| attribute));
    attributes.filter(|attribute| lists.iter().any(|list| attribute.contains(list))).collect()
}

#[test]
fn each_crate_below_the_application_has_the_lists() {
    let lists = read(LISTS);
    for of in ["methods", "types", "macros"] {
        assert!(lists.contains(&format!("\ndisallowed-{of} = [\n")), "{of}");
    }
    for folder in BELOW_APP {
        let link = workspace().join(folder).join("clippy.toml");
        assert_eq!(fs::read_link(link).unwrap().to_str(), Some(&*format!("../../{LISTS}")), "{folder}");
    }
}

#[test]
fn the_exceptions_are_the_listed_ones() {
    let mut found = Vec::new();
    for folder in BELOW_APP {
        for file in sources(&workspace().join(folder).join("src")) {
            let text = fs::read_to_string(&file).unwrap();
            let name = file.strip_prefix(workspace()).unwrap().to_str().unwrap().to_owned();
            let attributes = exceptions(&text);
            let of_tests =
                |attribute: &&str| attribute.contains("cfg_attr(\n    test,") || attribute.contains("[cfg_attr(test,");
            let count = attributes.iter().filter(|attribute| !of_tests(attribute)).count();
            assert!(count < 2, "one exception a file, at its beginning: {name}");
            let has_reasons = attributes.iter().all(|attribute| attribute.contains("reason = \""));
            assert!(has_reasons && !attributes.iter().any(|attribute| attribute.starts_with("[allow")), "{name}");
            found.extend((count > 0).then_some(name));
        }
    }
    found.sort();
    assert_eq!(found, EXCEPTIONS);
}

#[test]
fn an_exception_is_found_however_it_is_written() {
    assert_eq!(exceptions("#[expect(clippy::disallowed_types, reason = \"a\")] use a;").len(), 1);
    assert_eq!(exceptions("#![allow(clippy::disallowed_methods)]").len(), 1);
    assert_eq!(exceptions("#[expect(\n    unsafe_code,\n    clippy::disallowed_macros\n)]").len(), 1);
    assert_eq!(exceptions("#[expect(clippy::unwrap_used)]").len(), 0);
}
