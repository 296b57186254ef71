//! Pods in the form that an API server writes: ten of this project in `pods/`, with invented names, and those of a
//! corpus of real clusters if it is beside the checkout.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Returns the name of the file and the JSON of each Pod; at least the ten of this project.
pub fn real_pods() -> Vec<(String, Vec<u8>)> {
    let crate_root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let own = read(&crate_root.join("src/testing/pods"));
    assert_eq!(own.len(), 10, "Pods of this project");
    let corpus = crate_root.join("../../../shared/corpus/pods");
    own.into_iter().chain(read(&corpus)).collect()
}

/// Returns the files of a folder in the order of their names; none if there is no such folder.
fn read(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let pod = |path: PathBuf| {
        let json = fs::read(&path).unwrap().trim_ascii_end().to_vec();
        (path.file_name().unwrap().to_string_lossy().into_owned(), json)
    };
    paths.into_iter().map(pod).collect()
}
