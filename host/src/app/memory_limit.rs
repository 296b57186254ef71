//! The memory limit of the container that the host runs in, from its control groups. `None` outside of one.

use std::{
    fs,
    path::{Path, PathBuf},
};

const ROOT: &str = "/sys/fs/cgroup";

/// Returns the limit in bytes, or `None` if there is no limit.
pub(super) fn container_limit() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    lowest(&groups, |path| fs::read_to_string(path).ok())
}

/// Returns the bytes of the limit that this process does not use, or `None` if there is no limit. Pages of files do not
/// count: the kernel takes them back when memory is short.
pub(super) fn unused() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    Some(container_limit()?.saturating_sub(anonymous(&status)?))
}

/// Returns the most bytes of the states of all plugins: an eighth of the limit.
pub(super) fn of_states(limit: Option<u64>) -> usize {
    limit.and_then(|limit| usize::try_from(limit / 8).ok()).unwrap_or(super::options::STATE_MEMORY)
}

/// The resident anonymous bytes in the text of /proc/self/status.
fn anonymous(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// The lowest limit of the process's group and of those above it. `groups` is the text of /proc/self/cgroup.
///
/// In a container only the container's own group may be visible, at the root, whatever path the text names.
fn lowest(groups: &str, read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let limits = groups.lines().flat_map(|line| {
        // Hierarchy, controllers, path: `0::/pod/container` of version 2, `4:memory:/pod/container` of version 1.
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next().unwrap_or_default();
        let path = fields.next().unwrap_or_default();
        let (root, file) = match controllers {
            "" => (PathBuf::from(ROOT), "memory.max"),
            _ if controllers.split(',').any(|controller| controller == "memory") => {
                (Path::new(ROOT).join("memory"), "memory.limit_in_bytes")
            }
            _ => return Vec::new(),
        };
        // A path to a group that is not visible has `..`.
        let path = Path::new(path.trim_start_matches('/'));
        path.ancestors().filter_map(|group| read(&root.join(group).join(file))).collect()
    });
    // Without a limit there is "max", or the largest number of pages.
    limits.filter_map(|limit| limit.trim().parse().ok()).filter(|limit| *limit < 1 << 60).min()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn limit(groups: &str, files: &[(&str, &str)]) -> Option<u64> {
        let files: HashMap<_, _> =
            files.iter().map(|(path, text)| (Path::new(ROOT).join(path), (*text).to_owned())).collect();
        lowest(groups, |path| files.get(path).cloned())
    }

    #[test]
    fn the_lowest_limit_of_the_cgroup_and_its_ancestors_applies() {
        let files = [("a/b/memory.max", "max\n"), ("a/memory.max", "2000\n"), ("memory.max", "3000\n")];
        assert_eq!(limit("0::/a/b\n", &files), Some(2_000));
        assert_eq!(limit("0::/\n", &[("memory.max", "134217728\n")]), Some(128 << 20));
        let version_1 = [("memory/memory.limit_in_bytes", "5000\n"), ("memory.max", "1\n")];
        assert_eq!(limit("5:cpu:/a\n4:hugetlb,memory:/pod/container\n", &version_1), Some(5_000));
    }

    #[test]
    fn anonymous_memory_is_read_from_the_status_of_this_process() {
        assert_eq!(anonymous("VmRSS:\t  9000 kB\nRssAnon:\t    1234 kB\n"), Some(1_234 << 10));
        assert_eq!((anonymous(""), anonymous("RssAnon: many kB\n")), (None, None));
        assert!(anonymous(&fs::read_to_string("/proc/self/status").unwrap()).is_some_and(|bytes| bytes > 100 << 10));
    }

    #[test]
    fn without_a_limit_there_is_none() {
        assert_eq!(limit("0::/\n", &[]), None);
        assert_eq!(limit("0::/a\n", &[("a/memory.max", "max\n")]), None);
        assert_eq!(limit("4:memory:/\n", &[("memory/memory.limit_in_bytes", "9223372036854771712\n")]), None);
        for odd in ["", "0", "::", "0::", "0::/../..\n", "\0"] {
            assert_eq!(limit(odd, &[("memory.max", "a")]), None, "{odd:?}");
        }
    }

    #[test]
    fn states_have_an_eighth_of_the_limit() {
        assert_eq!([Some(512 << 20), None].map(of_states), [64 << 20, 256 << 20]);
    }
}
