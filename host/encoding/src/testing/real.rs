//! Pods in the form that an API server writes: ten of this project in `pods/`, with invented names.

#![expect(
    clippy::disallowed_methods,
    reason = "reads Pods of a real API server that a developer has saved; only tests call it"
)]

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Returns the name of the file and the JSON of each of the ten Pods, in the order of the names.
pub fn real_pods() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/testing/pods");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(paths.len(), 10, "Pods of this project");
    paths.sort();
    let pod = |path: PathBuf| {
        let json = fs::read(&path).unwrap().trim_ascii_end().to_vec();
        (path.file_name().unwrap().to_string_lossy().into_owned(), json)
    };
    paths.into_iter().map(pod).collect()
}
