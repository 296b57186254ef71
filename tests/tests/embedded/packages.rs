//! The crates that are packages, packed by cargo and unpacked outside the checkout.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::{
    fmt::Write,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use podium_tests::process::{cargo, podium_command, target_dir, workspace_dir};

/// Those that a plugin in Rust needs.
const OF_SDK: [&str; 4] = ["podium-sdk", "podium-config", "podium-vocabulary", "podium-wire"];

fn succeed(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The names of the workspace's packages, which have a version.
fn packages() -> Vec<String> {
    let manifest = fs::read_to_string(workspace_dir().join("Cargo.toml")).unwrap();
    let versioned = manifest.lines().filter(|line| line.ends_with("version = \"=0.1.0\" }"));
    versioned.map(|line| line.split_once(' ').unwrap().0.to_owned()).collect()
}

/// Packs all packages and unpacks them there. Returns their directories.
fn unpacked(parent: &Path) -> Vec<PathBuf> {
    let names = packages();
    assert!(OF_SDK.iter().all(|name| names.iter().any(|of| of == name)), "{names:?}");
    let mut pack = cargo();
    pack.args(["package", "--offline", "--no-verify", "--allow-dirty", "--quiet", "--target-dir"]).arg(parent);
    succeed(pack.args(names.iter().map(|name| format!("--package={name}"))));
    let unpack = |name: &String| {
        let archive = parent.join(format!("package/{name}-0.1.0.crate"));
        succeed(Command::new("tar").arg("-xzf").arg(archive).arg("-C").arg(parent));
        parent.join(format!("{name}-0.1.0"))
    };
    names.iter().map(unpack).collect()
}

/// The files that a file of a package includes outside its tests.
fn included(file: &Path) -> Vec<PathBuf> {
    let text = fs::read_to_string(file).unwrap();
    let text = text.split("#[cfg(test)]").next().unwrap();
    let after = ["include_str!(\"", "include_bytes!(\""].map(|name| text.split(name).skip(1));
    let names = after.into_iter().flatten().map(|rest| rest.split('"').next().unwrap());
    names.map(|name| file.with_file_name(name)).collect()
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let is_product = |path: &PathBuf| path.file_stem().is_some_and(|stem| stem != "tests" && stem != "testing");
    let files = files.into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
    files
        .chain(folders.iter().filter(|path| is_product(path)).flat_map(|path| sources(path)))
        .filter(is_product)
        .collect()
}

#[test]
fn packages_include_no_file_of_another_place_and_build_a_plugin() {
    let parent = tempfile::tempdir().unwrap();
    let packed = parent.path().join("packed");
    let mut count = 0;
    for package in unpacked(&packed) {
        for file in sources(&package.join("src")).iter().flat_map(|file| included(file)) {
            assert!(file.is_file() && file.canonicalize().unwrap().starts_with(&package), "{}", file.display());
            count += 1;
        }
    }
    assert!(count >= 20, "{count} files are included");

    let podium = || {
        let mut command = podium_command().unwrap();
        command.current_dir(parent.path());
        command
    };
    succeed(podium().args(["new", "hello"]));
    let hello = parent.path().join("hello");
    let manifest = fs::read_to_string(hello.join("Cargo.toml")).unwrap();
    let (before, rest) = manifest.split_once("podium-sdk = ").unwrap();
    let (_, after) = rest.split_once('\n').unwrap();
    let mut manifest = format!("{before}podium-sdk = \"=0.1.0\"\n{after}\n[patch.crates-io]\n");
    for name in OF_SDK {
        writeln!(manifest, "{name} = {{ path = {:?} }}", packed.join(format!("{name}-0.1.0"))).unwrap();
    }
    fs::write(hello.join("Cargo.toml"), manifest).unwrap();
    // The same versions and target directory as the suites, so that dependencies are not built again.
    fs::copy(workspace_dir().join("Cargo.lock"), hello.join("Cargo.lock")).unwrap();
    let target = target_dir().unwrap().join("guests");
    let mut test = cargo();
    test.args(["test", "--offline", "--quiet", "--manifest-path"]).arg(hello.join("Cargo.toml"));
    succeed(test.arg("--target-dir").arg(&target));
    fs::create_dir(parent.path().join(".cargo")).unwrap();
    fs::write(parent.path().join(".cargo/config.toml"), format!("[build]\ntarget-dir = {target:?}\n")).unwrap();
    succeed(podium().args(["build", "hello"]));
}
