//! `spec.after` across all plugins: an unknown name causes a warning, and a cycle an error that names its plugins.

use std::collections::{BTreeMap, VecDeque};

use podium_config::Problem;
use podium_vocabulary::{PluginId, components};

use super::{ConfigError, Defined};

/// The most plugins of a cycle that a message names.
const MOST_NAMES: usize = 16;

/// Skips the plugins that are part of a cycle.
pub(super) fn check(
    defined: Vec<Defined>,
    errors: &mut Vec<ConfigError>,
    warnings: &mut Vec<ConfigError>,
) -> Vec<Defined> {
    let before = relation(defined.iter().map(|plugin| (plugin.spec.id.clone(), plugin.spec.after.clone())));
    let mut cycles = of_relation(&before);
    let mut kept = Vec::new();
    let mut cut = Vec::new();
    for plugin in defined {
        let field = || "spec.after".to_owned();
        for unknown in before[&plugin.spec.id].iter().filter(|named| !before.contains_key(*named)) {
            let message = format!("names {unknown}, which is not configured; it is not waited for");
            warnings.push(ConfigError {
                file: plugin.file.clone(),
                line: Some(plugin.lines.line("spec.after")),
                field: field(),
                message,
            });
        }
        match cycles.remove(&plugin.spec.id) {
            Some(problem) => cut.push((plugin, problem)),
            None => kept.push(plugin),
        }
    }
    for (plugin, Problem { field, message, .. }) in cut {
        let file = plugin.file;
        let line = Some(plugin.lines.line("spec.after"));
        errors.push(ConfigError { file, line, field, message });
    }
    kept
}

/// Returns the mistake of each plugin that is part of a cycle. The names beside a plugin are its `spec.after`.
pub(crate) fn cycles(plugins: impl IntoIterator<Item = (PluginId, Vec<String>)>) -> BTreeMap<PluginId, Problem> {
    of_relation(&relation(plugins))
}

/// Returns the plugins that each plugin runs after.
fn relation(plugins: impl IntoIterator<Item = (PluginId, Vec<String>)>) -> BTreeMap<PluginId, Vec<PluginId>> {
    let named = |(id, after): (PluginId, Vec<String>)| {
        let named = after.iter().map(|name| PluginId { name: name.as_str().into(), ..id.clone() }).collect();
        (id, named)
    };
    plugins.into_iter().map(named).collect()
}

/// Returns the mistakes, in a time that is linear in plugins and names.
fn of_relation(before: &BTreeMap<PluginId, Vec<PluginId>>) -> BTreeMap<PluginId, Problem> {
    let ids: Vec<&PluginId> = before.keys().collect();
    let places: BTreeMap<&PluginId, usize> = ids.iter().enumerate().map(|(at, id)| (*id, at)).collect();
    let edges = |named: &Vec<PluginId>| named.iter().filter_map(|id| places.get(id).copied()).collect();
    let edges: Vec<Vec<usize>> = before.values().map(edges).collect();
    let mut problems = BTreeMap::new();
    let mut came_from = vec![None; ids.len()];
    let mut is_member = vec![false; ids.len()];
    for mut members in components(ids.len(), |at| &edges[at]) {
        members.sort_unstable();
        if members.len() == 1 && !edges[members[0]].contains(&members[0]) {
            continue;
        }
        members.iter().for_each(|at| is_member[*at] = true);
        let cycle = shortest(members[0], &edges, &is_member, &mut came_from);
        members.iter().for_each(|at| is_member[*at] = false);
        let mut message: BTreeMap<usize, String> =
            (0..cycle.len()).map(|at| (cycle[at], format!("makes a cycle: {}", names(&cycle, at, &ids)))).collect();
        for at in &members {
            let other = || {
                format!(
                    "is part of {} plugins that wait for each other, as in {}",
                    members.len(),
                    names(&cycle, 0, &ids)
                )
            };
            let message = message.remove(at).unwrap_or_else(other) + "; remove one of these";
            problems.insert(ids[*at].clone(), Problem { line: None, field: "spec.after".to_owned(), message });
        }
    }
    problems
}

/// Formats a cycle from a place in it on.
fn names(cycle: &[usize], start: usize, ids: &[&PluginId]) -> String {
    let mut names: Vec<String> =
        cycle.iter().cycle().skip(start).take(cycle.len().min(MOST_NAMES)).map(|at| ids[*at].to_string()).collect();
    if cycle.len() > MOST_NAMES {
        names.push(format!("{} more", cycle.len() - MOST_NAMES));
    }
    names.push(ids[cycle[start]].to_string());
    names.join(" after ")
}

/// Returns the shortest path from a member of a component back to itself, without the end. `came_from` is empty for
/// all members.
fn shortest(start: usize, edges: &[Vec<usize>], is_member: &[bool], came_from: &mut [Option<usize>]) -> Vec<usize> {
    let mut frontier = VecDeque::from([start]);
    while let Some(at) = frontier.pop_front() {
        for next in edges[at].iter().filter(|next| is_member[**next]) {
            #[cfg(test)]
            tests::FOLLOWED.set(tests::FOLLOWED.get() + 1);
            if *next == start {
                // The path is found from its end.
                let mut way: Vec<usize> = std::iter::successors(Some(at), |at| came_from[*at]).collect();
                way.reverse();
                return way;
            }
            if came_from[*next].is_none() {
                came_from[*next] = Some(at);
                frontier.push_back(*next);
            }
        }
    }
    vec![start]
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    thread_local! {
        /// How many names were followed to find the cycles that messages name.
        pub(super) static FOLLOWED: Cell<usize> = const { Cell::new(0) };
    }

    fn id(at: usize) -> PluginId {
        PluginId { namespace: None, name: format!("p{at:04}").into() }
    }

    /// The relation, and the plugins that reach themselves in it.
    fn naive(after: &[Vec<usize>]) -> Vec<PluginId> {
        let reaches_itself = |start: usize| {
            let mut seen = vec![false; after.len()];
            let mut next = after[start].clone();
            while let Some(at) = next.pop() {
                if at == start {
                    return true;
                }
                if at < after.len() && !std::mem::replace(&mut seen[at], true) {
                    next.extend(&after[at]);
                }
            }
            false
        };
        (0..after.len()).filter(|start| reaches_itself(*start)).map(id).collect()
    }

    fn found(after: &[Vec<usize>]) -> BTreeMap<PluginId, Problem> {
        let names = |after: &Vec<usize>| after.iter().map(|at| id(*at).name.to_string()).collect();
        cycles(after.iter().enumerate().map(|(at, after)| (id(at), names(after))))
    }

    proptest! {
        #[test]
        fn the_plugins_of_cycles_are_those_that_run_after_themselves(
            after in prop::collection::vec(prop::collection::vec(0..9_usize, 0..3), 0..8),
        ) {
            let found = found(&after);
            prop_assert_eq!(found.keys().cloned().collect::<Vec<_>>(), naive(&after));
            for (of, problem) in &found {
                // Each step of the named cycle is one of the relation.
                let (_, path) = problem.message.split_once(": ").or(problem.message.split_once(" as in ")).unwrap();
                let path: Vec<&str> = path.split(';').next().unwrap().split(" after ").collect();
                prop_assert_eq!(path.first(), path.last());
                for pair in path.windows(2) {
                    let [one, other] = [pair[0], pair[1]].map(|name| name[1..].parse::<usize>().unwrap());
                    prop_assert!(after[one].contains(&other), "{} of {}", problem.message, of);
                }
            }
        }
    }

    #[test]
    fn the_names_of_each_plugin_are_followed_once_at_most() {
        for plugins in [10, 1_000] {
            // Each after the next 32, and the last one after the first: one component, with very many cycles.
            let mut after: Vec<Vec<usize>> = (0..plugins).map(|at| (at + 1..plugins.min(at + 33)).collect()).collect();
            after[plugins - 1].push(0);
            let names: usize = after.iter().map(Vec::len).sum();
            FOLLOWED.set(0);
            assert_eq!(found(&after).len(), plugins);
            assert!(FOLLOWED.get() <= names, "{} of {names} names", FOLLOWED.get());
            // Many small cycles.
            let pairs: Vec<Vec<usize>> = (0..plugins).map(|at| vec![at ^ 1]).collect();
            FOLLOWED.set(0);
            assert_eq!(found(&pairs).len(), plugins);
            assert!(FOLLOWED.get() <= plugins, "{} of {plugins} names", FOLLOWED.get());
        }
    }

    #[test]
    fn the_messages_of_a_long_cycle_are_bounded() {
        let ring: Vec<Vec<usize>> = (0..1_000).map(|at| vec![(at + 1) % 1_000]).collect();
        let found = found(&ring);
        assert_eq!(found.len(), 1_000);
        let message = &found[&id(7)].message;
        assert!(message.starts_with("makes a cycle: p0007 after p0008 after "), "{message}");
        assert!(message.ends_with("after p0022 after 984 more after p0007; remove one of these"), "{message}");
        let most = found.values().map(|problem| problem.message.len()).max();
        assert!(most < Some(300), "{most:?}");
    }
}
