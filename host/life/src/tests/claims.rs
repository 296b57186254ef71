//! Claims about the automaton: all states within a number of changes, and single histories.

use super::*;

/// Visits every state that can be reached within a number of changes and with a number of effects under way.
/// Returns their number.
fn explore(begin: Vec<World>, changes: &[Change], most_changes: u32, most_pending: usize) -> usize {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let mut left: VecDeque<(World, u32, Vec<String>)> =
        begin.into_iter().map(|world| (world, most_changes, Vec::new())).collect();
    while let Some((world, changes_left, path)) = left.pop_front() {
        let mut visit = |next: World, changes_left: u32, done: String| {
            let described = next.described();
            let known = seen.get(&described).copied();
            if next.pending.len() <= most_pending && known.is_none_or(|known| known < changes_left) {
                let path = [path.as_slice(), &[done]].concat();
                let checked = std::panic::AssertUnwindSafe(|| {
                    next.check();
                    if known.is_none() {
                        next.check_rest();
                        next.check_comes_back();
                    }
                });
                if let Err(panic) = std::panic::catch_unwind(checked) {
                    eprintln!("after {path:#?} in {described}");
                    std::panic::resume_unwind(panic);
                }
                seen.insert(described, changes_left);
                left.push_back((next, changes_left, path));
            }
        };
        if changes_left > 0 {
            for change in changes {
                let mut next = world.clone();
                next.change(*change);
                visit(next, changes_left - 1, format!("{change:?}"));
                // An effect ends before the plugins are judged.
                let Change::Rules(rules) = change else { continue };
                for at in 0..world.pending.len() {
                    let mut next = world.clone();
                    next.step(Event::Rules(*rules));
                    next.end(at, End::Succeeds);
                    next.judge();
                    visit(next, changes_left - 1, format!("{change:?} beside {:?}", world.pending[at]));
                }
            }
        }
        for (at, pending) in world.pending.iter().enumerate() {
            let ends: &[End] = match pending {
                Pending::Fetch(_) | Pending::Compile(..) => &[End::Succeeds, End::Fails, End::MayPass],
                Pending::Read(_) | Pending::Probe(_) | Pending::Trial(_) => &[End::Succeeds, End::Fails],
                _ => &[End::Succeeds],
            };
            for end in ends {
                let mut next = world.clone();
                next.end(at, *end);
                if world.pended(pending).ends_with("-") {
                    assert_eq!(next.plugins_but_slots(), world.plugins_but_slots(), "too late: {pending:?}");
                }
                visit(next, changes_left, format!("{end:?} {pending:?}"));
            }
        }
        let mut next = world.clone();
        if next.time() {
            visit(next, changes_left, "time".to_owned());
        }
    }
    seen.len()
}

#[test]
fn in_every_state_only_what_is_permitted_runs_and_all_comes_to_a_rest() {
    let objects = ["w", "x", "n", "s", "m"].map(|config| Change::Object("a", "1", config));
    let more = [
        Change::Object("a", "2", "x"),
        Change::ObjectGone("a"),
        Change::Beyond("a"),
        Change::File("a", "w"),
        Change::FileGone("a"),
        Change::Rules(false),
        Change::Rules(true),
        Change::Owned(false),
        Change::Owned(true),
        Change::Restart,
    ];
    let changes = [objects.as_slice(), &more].concat();
    let states = explore(vec![World::new()], &changes, 3, 5);
    assert!(states > 30_000, "{states}");
}

#[test]
fn the_same_holds_of_two_plugins_that_share_their_tenants_slots() {
    let of = |name| ["w", "n"].map(|config| Change::Object(name, "1", config));
    let gone = ["a", "b"].map(Change::ObjectGone);
    let changes = [of("a").as_slice(), &of("b"), &gone].concat();
    let states = explore(vec![World::new()], &changes, 3, 4);
    assert!(states > 3_000, "{states}");
}

/// A plugin whose version `w` is recorded, in a host that was started again.
fn restarted(config: &'static str) -> World {
    let mut world = World::new();
    world.change(Change::Object("a", "1", "w"));
    world.end_all();
    world.change(Change::Restart);
    world.change(Change::Object("a", "1", config));
    world
}

fn running(world: &World) -> Option<&str> {
    let plugin = world.life.plugin(&id("a")).unwrap();
    plugin.running().map(|version| &*version.spec.config)
}

#[test]
fn the_version_before_a_restart_is_not_lost_by_a_change_of_the_spec() {
    // The record is read, its component is fetched, or compiled, when the spec changes.
    for ended in 0..3 {
        let mut world = restarted("x");
        (0..ended).for_each(|_| world.end(0, End::Succeeds));
        world.change(Change::Object("a", "1", "v"));
        while running(&world).is_none() {
            world.end(0, End::Succeeds);
        }
        assert_eq!(running(&world), Some("w"), "{ended}");
        // The new version is not there.
        while !world.pending.is_empty() {
            let is_late = matches!(&world.pending[0], Pending::Fetch(ticket) if world.life.is_present(ticket));
            world.end(0, if is_late { End::MayPass } else { End::Succeeds });
        }
        assert_eq!(running(&world), Some("w"), "{ended}");
    }
    let mut world = restarted("x");
    world.end(0, End::Succeeds);
    world.change(Change::Object("a", "1", "n"));
    world.end_all();
    assert_eq!(running(&world), Some("n"), "it permits less");
}

#[test]
fn a_restart_runs_the_version_of_a_spec_of_which_a_later_code_was_refused() {
    let mut world = World::new();
    world.change(Change::Object("a", "1", "w"));
    world.end_all();
    // The tag of the image moved, and its component failed its probe.
    let refused = Refused { spec: "w".into(), tried: Tried::Before, failure: "it failed".to_owned() };
    world.disk.get_mut(&id("a")).unwrap().refused = Some(refused);
    world.change(Change::Restart);
    world.change(Change::Object("a", "1", "w"));
    world.end_all();
    assert_eq!(running(&world), Some("w"));
    assert!(matches!(world.life.plugin(&id("a")).unwrap().shown(), Shown::Refused(_)));
}

#[test]
fn the_record_of_an_earlier_object_goes_with_the_later_one() {
    for end_of_read in [End::Succeeds, End::Fails] {
        let mut world = World::new();
        world.change(Change::Object("a", "1", "w"));
        world.end_all();
        world.change(Change::Restart);
        world.change(Change::Object("a", "2", "x"));
        while !world.pending.is_empty() {
            let end = match world.pending[0] {
                Pending::Read(_) => end_of_read,
                Pending::Compile(..) => End::Fails,
                _ => End::Succeeds,
            };
            world.end(0, end);
        }
        world.change(Change::ObjectGone("a"));
        world.end_all();
        assert!(world.disk.is_empty(), "{:?}", world.disk);
    }
}

#[test]
fn a_version_that_fails_leaves_the_one_that_runs_unless_it_permits_less() {
    let fails = |fails_at: fn(&Pending) -> bool, config| {
        let mut world = World::new();
        world.change(Change::Object("a", "1", "w"));
        world.end_all();
        world.change(Change::Object("a", "1", config));
        let at_once = running(&world).map(str::to_owned);
        while !world.pending.is_empty() {
            world.end(0, if fails_at(&world.pending[0]) { End::Fails } else { End::Succeeds });
        }
        let plugin = world.life.plugin(&id("a")).unwrap();
        assert!(matches!(plugin.shown(), Shown::Refused(_)));
        let recorded = world.disk.get(&id("a")).and_then(|record| record.ran.as_ref()).map(|ran| &*ran.spec);
        assert_eq!(recorded, running(&world), "a restart runs what runs");
        (at_once, running(&world).map(str::to_owned))
    };
    let runs = (Some("w".to_owned()), Some("w".to_owned()));
    assert_eq!(fails(|pending| matches!(pending, Pending::Fetch(_)), "x"), runs);
    assert_eq!(fails(|pending| matches!(pending, Pending::Compile(..)), "x"), runs);
    assert_eq!(fails(|pending| matches!(pending, Pending::Probe(_)), "x"), runs);
    assert_eq!(fails(|pending| matches!(pending, Pending::Trial(_)), "x"), runs);
    assert_eq!(fails(|pending| matches!(pending, Pending::Fetch(_)), "n"), (None, None));
    assert_eq!(fails(|_| false, "m"), (None, None), "it is refused, and permits less");
}

#[test]
fn a_component_in_a_file_is_read_before_its_turn_to_be_compiled() {
    let mut world = World::new();
    for name in ["a", "b"] {
        let spec = PluginSpec { source: Place::File("/a".into()), ..PluginSpec::clone(&spec(&id(name), "w")) };
        world.step(Event::Seen(id(name), Source::File(true), Want::Run(spec.into())));
    }
    assert!(matches!(world.pending[..], [Pending::Fetch(_), Pending::Fetch(_)]), "{:?}", world.pending);
    world.end(1, End::Succeeds);
    assert!(
        matches!(world.pending[..], [Pending::Fetch(_), Pending::Compile(..)]),
        "a file that hangs delays no other"
    );
}

#[test]
fn other_rules_load_only_plugins_that_they_concern() {
    let mut world = World::new();
    world.change(Change::File("a", "w"));
    world.change(Change::Object("b", "1", "n"));
    world.end_all();
    let load = world.life.plugin(&id("a")).unwrap().load();
    world.change(Change::Rules(true));
    assert_eq!(world.pending, [], "no version runs again on all Pods because a rule of others has changed");
    world.change(Change::Rules(false));
    assert_eq!((running(&world), &*world.pending), (None, [Pending::Removed(id("a"))].as_slice()));
    world.end_all();
    world.change(Change::Rules(true));
    assert_eq!(world.pending.len(), 1, "only the plugin that was refused: {:?}", world.pending);
    world.end_all();
    let plugin = world.life.plugin(&id("a")).unwrap();
    assert_eq!((running(&world), plugin.result(load)), (Some("w"), Some(Ok(()))), "its caller waits for no other load");
}

#[test]
fn other_rules_judge_each_plugin_in_a_step_of_its_own() {
    let mut world = World::new();
    const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
    NAMES.iter().for_each(|name| world.change(Change::Object(name, "1", "w")));
    world.end_all();
    let judged = JUDGED.get();
    world.step(Event::Rules(false));
    assert_eq!((JUDGED.get(), world.registry.len()), (judged, NAMES.len()));
    world.judge();
    assert!(world.registry.is_empty());
}

/// Returns a world in which a version runs, and the one after it fails its probe.
fn refused_until(is_reached: impl Fn(&[Pending]) -> bool) -> World {
    let mut world = World::new();
    world.change(Change::Object("a", "1", "w"));
    world.end_all();
    world.change(Change::Object("a", "1", "v"));
    while !is_reached(&world.pending) {
        let end = if matches!(world.pending[0], Pending::Probe(_)) { End::Fails } else { End::Succeeds };
        world.end(0, end);
    }
    world
}

#[test]
fn rules_taken_back_bring_back_the_version_before_a_refused_one() {
    let mut world = refused_until(|pending| pending.is_empty());
    assert_eq!(running(&world), Some("w"));
    world.change(Change::Rules(true));
    assert_eq!(world.pending, [], "a version that was tried is not tried again");
    world.change(Change::Rules(false));
    world.end_all();
    assert_eq!(running(&world), None);
    world.change(Change::Rules(true));
    world.end_all();
    assert_eq!(running(&world), Some("w"));
}

#[test]
fn an_object_beyond_the_bounds_keeps_its_record_until_it_is_gone() {
    let mut world = refused_until(|pending| pending.is_empty());
    let recorded = world.disk.clone();
    assert_eq!(running(&world), Some("w"), "the version before a refused one");
    world.change(Change::Beyond("a"));
    assert!(world.registry.is_empty(), "it does not run");
    world.end_all();
    assert!(world.life.plugins.is_empty() && world.disk == recorded, "{:?}", world.disk);
    let restart = |mut world: World| {
        world.change(Change::Restart);
        world
    };
    for mut world in [world.clone(), restart(world.clone())] {
        world.change(Change::Object("a", "1", "v"));
        world.end_all();
        assert_eq!(running(&world), Some("w"));
    }
    let mut removing = world.clone();
    removing.change(Change::Object("a", "1", "v"));
    removing.end_all();
    removing.change(Change::Beyond("a"));
    for mut world in [removing, world.clone(), restart(world)] {
        world.change(Change::ObjectGone("a"));
        world.end_all();
        assert!(world.disk.is_empty(), "{:?}", world.disk);
    }
}

#[test]
fn a_component_refused_by_itself_is_not_compiled_for_other_rules() {
    let mut world = World::new();
    world.change(Change::Object("a", "1", "w"));
    world.end(0, End::Fails);
    while !world.pending.is_empty() {
        world.end(0, End::Fails);
    }
    world.change(Change::Rules(true));
    assert_eq!(world.pending, []);
    world.change(Change::Rules(false));
    world.change(Change::Rules(true));
    assert_ne!(world.pending, [], "it was refused by rules meanwhile");
}

#[test]
fn what_is_not_owned_is_compiled_and_runs_when_it_is() {
    let mut world = World::new();
    world.change(Change::Owned(false));
    world.change(Change::Object("a", "1", "w"));
    world.end_all();
    assert_eq!(running(&world), None);
    assert!(matches!(world.life.plugin(&id("a")).unwrap().state, State::Standby { .. }));
    assert!(world.life.plugin(&id("a")).unwrap().is_standby());
    world.change(Change::Owned(true));
    assert_eq!(running(&world), Some("w"), "at once");
}

#[test]
fn other_rules_leave_a_standby_the_code_that_they_permit() {
    let mut world = World::new();
    world.change(Change::Owned(false));
    world.change(Change::Object("a", "1", "w"));
    world.end_all();
    world.change(Change::Rules(true));
    assert_eq!(world.pending, [], "nothing is fetched again");
    world.change(Change::Owned(true));
    assert_eq!(running(&world), Some("w"), "at once");
    world.change(Change::Owned(false));
    world.end_all();
    world.change(Change::Rules(false));
    world.change(Change::Owned(true));
    world.end_all();
    assert_eq!(running(&world), None, "the rules do not permit it");
    world.change(Change::Rules(true));
    world.end_all();
    assert_eq!(running(&world), Some("w"));
}

#[test]
fn only_the_plugins_of_owned_shards_run_and_others_are_not_disturbed() {
    let of = |namespace: Option<&str>| PluginId { namespace: namespace.map(Into::into), name: "a".into() };
    let ids = [of(Some("shop")), of(Some("bank")), of(None)];
    let shards: Vec<_> = ids.iter().map(|id| Shards::of_tenant(&id.tenant())).collect();
    assert!(!shards[0].intersects(shards[1].with(shards[2])) && shards[1] != shards[2]);
    let mut world = World::new();
    for id in &ids {
        world.step(Event::Seen(id.clone(), Source::Object(object("1", "w")), want(id, "w")));
    }
    world.end_all();
    let running = |world: &World| ids.clone().map(|id| world.registry.contains_key(&id));
    assert_eq!(running(&world), [true; 3]);
    world.step(Event::Owned(shards[0].with(shards[2])));
    assert_eq!(running(&world), [true, false, true]);
    let attempt = |world: &World| world.life.plugin(&ids[0]).unwrap().ticket.attempt;
    let before = attempt(&world);
    world.step(Event::Owned(shards[0].with(shards[1])));
    assert_eq!((running(&world), attempt(&world)), ([true, true, false], before), "the first one goes on as it is");
    assert_eq!(world.life.owns(), shards[0].with(shards[1]));
}

#[test]
fn the_version_beside_a_failed_or_tried_spec_comes_back_with_the_lease() {
    let is_in_trial = |pending: &[Pending]| matches!(pending, [Pending::Trial(_)]);
    for (before, config, end, at_last) in [
        ("w", "v", End::Fails, "v"),
        ("w", "v", End::MayPass, "v"),
        ("w", "v", End::Succeeds, "v"),
        ("n", "m", End::Succeeds, "n"),
    ] {
        let mut world = World::new();
        world.change(Change::Object("a", "1", before));
        world.end_all();
        world.change(Change::Object("a", "1", config));
        while !world.pending.is_empty() && !is_in_trial(&world.pending) {
            let is_fetch = matches!(world.pending[0], Pending::Fetch(_));
            world.end(0, if is_fetch { end } else { End::Succeeds });
        }
        assert_eq!(is_in_trial(&world.pending), (config, end) == ("v", End::Succeeds));
        world.change(Change::Owned(false));
        assert_eq!(running(&world), None);
        world.end_all();
        world.change(Change::Owned(true));
        while running(&world).is_none() && !world.pending.is_empty() {
            world.end(0, End::Succeeds);
        }
        assert_eq!(running(&world), Some(before), "{config} {end:?}");
        world.end_all();
        assert_eq!(running(&world), Some(at_last), "the spec is tried again");
    }
}

#[test]
fn a_version_with_revoked_permissions_does_not_come_back_with_the_lease() {
    let mut world = World::new();
    world.change(Change::File("a", "w"));
    world.end_all();
    world.step(Event::Restricted(spec(&id("a"), "n")));
    for is_owned in [false, true] {
        world.change(Change::Owned(is_owned));
        world.end_all();
        assert_eq!(running(&world), None, "{is_owned}");
    }
    world.change(Change::File("a", "n"));
    world.end_all();
    assert_eq!(running(&world), Some("n"));
}

#[test]
fn an_object_that_counts_again_before_its_record_is_written_keeps_it() {
    let mut world = refused_until(|pending| matches!(pending, [Pending::Save(..)]));
    world.change(Change::Beyond("a"));
    world.change(Change::Object("a", "1", "v"));
    world.end_all();
    assert!(matches!(world.life.plugin(&id("a")).unwrap().shown(), Shown::Refused(_)), "it is not run without a trial");
    let recorded = world.disk.get(&id("a")).and_then(|record| record.ran.as_ref()).map(|ran| &*ran.spec);
    assert_eq!(recorded, Some("w"), "a restart runs it");
}
