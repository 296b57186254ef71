//! `spec.after` across all plugins: an unknown name causes a warning, and a cycle an error that names its plugins.

use std::collections::BTreeMap;

use podium_config::Problem;
use podium_pods::model::PluginId;

use super::{ConfigError, Defined};

/// Skips the plugins that are part of a cycle.
pub(super) fn check(
    defined: Vec<Defined>,
    errors: &mut Vec<ConfigError>,
    warnings: &mut Vec<ConfigError>,
) -> Vec<Defined> {
    let before = relation(defined.iter().map(|plugin| (plugin.spec.id.clone(), plugin.spec.after.clone())));
    let (mut kept, mut cut) = (Vec::new(), Vec::new());
    for plugin in defined {
        let field = || "spec.after".to_owned();
        for unknown in before[&plugin.spec.id].iter().filter(|named| !before.contains_key(*named)) {
            let message = format!("names {unknown}, which is not configured; it is not waited for");
            warnings.push(ConfigError {
                file: plugin.file.clone(),
                line: Some(plugin.lines.of("spec.after")),
                field: field(),
                message,
            });
        }
        match cycle(&plugin.spec.id, &before) {
            Some(cycle) => cut.push((plugin, cycle)),
            None => kept.push(plugin),
        }
    }
    for (plugin, cycle) in cut {
        let Problem { field, message, .. } = problem(&cycle);
        let (file, line) = (plugin.file, Some(plugin.lines.of("spec.after")));
        errors.push(ConfigError { file, line, field, message });
    }
    kept
}

/// Returns the mistake of each plugin that is part of a cycle. The names beside a plugin are its `spec.after`.
pub(crate) fn cycles(plugins: impl IntoIterator<Item = (PluginId, Vec<String>)>) -> BTreeMap<PluginId, Problem> {
    let before = relation(plugins);
    before.keys().filter_map(|id| Some((id.clone(), problem(&cycle(id, &before)?)))).collect()
}

/// Returns the plugins that each plugin runs after.
fn relation(plugins: impl IntoIterator<Item = (PluginId, Vec<String>)>) -> BTreeMap<PluginId, Vec<PluginId>> {
    let named = |(id, after): (PluginId, Vec<String>)| {
        let named = after.iter().map(|name| PluginId { name: name.as_str().into(), ..id.clone() }).collect();
        (id, named)
    };
    plugins.into_iter().map(named).collect()
}

fn problem(cycle: &[PluginId]) -> Problem {
    let names: Vec<String> = cycle.iter().map(PluginId::to_string).collect();
    let message = format!("makes a cycle: {}; remove one of these", names.join(" after "));
    Problem { line: None, field: "spec.after".to_owned(), message }
}

/// Returns the shortest path from a plugin back to itself.
fn cycle(start: &PluginId, before: &BTreeMap<PluginId, Vec<PluginId>>) -> Option<Vec<PluginId>> {
    let mut came_from: BTreeMap<&PluginId, &PluginId> = BTreeMap::new();
    let mut frontier = vec![start];
    while !frontier.is_empty() {
        let mut next = Vec::new();
        for at in frontier {
            for named in before.get(at).into_iter().flatten() {
                if named == start {
                    let mut way = vec![start.clone(), at.clone()];
                    let mut step = at;
                    while step != start {
                        step = came_from.get(step)?;
                        way.push(step.clone());
                    }
                    // The path was found from its end.
                    way.reverse();
                    return Some(way);
                }
                if !came_from.contains_key(named) {
                    came_from.insert(named, at);
                    next.push(named);
                }
            }
        }
        frontier = next;
    }
    None
}
