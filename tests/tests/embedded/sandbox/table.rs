//! Every limit of a run and of a component, the test that obeys it, and the test that breaks it and asserts the exact
//! failure. Without these tests, no one would notice a limit that is not enforced.

use podium_vocabulary::Limits;

struct Row {
    limit: &'static str,
    obeyed: &'static str,
    broken: &'static str,
}

const fn row(limit: &'static str, obeyed: &'static str, broken: &'static str) -> Row {
    Row { limit, obeyed, broken }
}

/// Limits of a plugin's configuration by the field, others by a description.
const TABLE: [Row; 34] = [
    row(
        "class: bytes of the component",
        "a_component_or_memory_beyond_its_limit_is_refused_at_load",
        "a_component_or_memory_beyond_its_limit_is_refused_at_load",
    ),
    row(
        "class: structure of the component",
        "a_component_within_the_caps_passes",
        "compilation_bombs_are_refused_with_the_exceeded_limit",
    ),
    row(
        "class: processor time of the compiler",
        "a_restart_compiles_nothing_and_its_plugins_run",
        "a_small_component_that_compiles_too_long_is_refused",
    ),
    row(
        "class: core instances",
        "more_instances_than_the_class_allows_count_as_memory",
        "more_instances_than_the_class_allows_count_as_memory",
    ),
    row(
        "class: table elements",
        "tables_may_grow_up_to_the_limit_of_the_class_and_no_further",
        "tables_may_grow_up_to_the_limit_of_the_class_and_no_further",
    ),
    row("memoryMiB", "a_guest_is_cut_at_its_limit_of_memory", "a_guest_is_cut_at_its_limit_of_memory"),
    row(
        "memoryMiB: at load",
        "a_component_or_memory_beyond_its_limit_is_refused_at_load",
        "a_component_or_memory_beyond_its_limit_is_refused_at_load",
    ),
    row(
        "cpuMillis: fuel",
        "a_good_guest_reads_stages_and_requeues",
        "fuel_cuts_a_spinning_guest_at_the_same_instruction",
    ),
    row(
        "cpuMillis: time",
        "time_off_the_processor_does_not_count",
        "a_run_beyond_its_processor_time_is_cut_after_a_host_call",
    ),
    row(
        "cpuMillis: fuel of host calls",
        "a_long_search_lets_other_tasks_run_and_is_paid_by_the_pod",
        "bytes_copied_by_refused_calls_count_towards_the_limit",
    ),
    row(
        "wallMillis",
        "the_wall_limit_does_not_cut_a_commit_under_way",
        "a_guest_that_waits_in_a_host_call_is_cut_at_its_deadline",
    ),
    row(
        "hostCalls",
        "host_calls_beyond_the_budget_are_refused_and_end_the_run",
        "host_calls_beyond_the_budget_are_refused_and_end_the_run",
    ),
    row(
        "hostCalls: of WASI",
        "a_wasi_guest_finds_time_seeded_random_and_nothing_else",
        "a_wasi_guests_calls_count_as_host_calls",
    ),
    row(
        "handles of WASI",
        "a_guest_holds_64_handles_of_wasi_and_no_more",
        "a_guest_holds_64_handles_of_wasi_and_no_more",
    ),
    row("random bytes at once", "random_bytes_have_a_bound_at_once", "random_bytes_have_a_bound_at_once"),
    row(
        "writes",
        "writes_beyond_the_budget_are_refused_and_others_staged",
        "writes_beyond_the_budget_are_refused_and_others_staged",
    ),
    row(
        "logKiB",
        "a_reused_wasi_guest_has_the_time_and_log_of_each_request",
        "the_log_ends_at_its_budget_says_so_and_cannot_be_forged",
    ),
    row(
        "reuse",
        "state_carries_over_for_the_configured_number_of_runs",
        "state_carries_over_for_the_configured_number_of_runs",
    ),
    row(
        "memory of instances that are kept",
        "kept_instances_are_bounded_and_hold_nothing_of_the_run",
        "kept_instances_are_bounded_and_hold_nothing_of_the_run",
    ),
    row(
        "bytes of a call",
        "a_plugin_that_applies_objects_may_pass_more_up_to_a_bound",
        "a_call_that_passes_too_much_traps_before_it_is_copied",
    ),
    row(
        "bytes of a call with write.objects",
        "a_plugin_that_applies_objects_may_pass_more_up_to_a_bound",
        "a_plugin_that_applies_objects_may_pass_more_up_to_a_bound",
    ),
    row(
        "depth of the stack",
        "each_end_of_a_run_arrives_as_it_was_meant",
        "a_guest_that_recurses_traps_and_the_host_lives",
    ),
    row("live reads", "live_reads_have_a_budget_of_their_own", "live_reads_have_a_budget_of_their_own"),
    row(
        "Pods that searches examine",
        "searching_ends_at_a_budget_of_pods_looked_at",
        "searching_ends_at_a_budget_of_pods_looked_at",
    ),
    row(
        "labels of a search",
        "a_search_that_compares_much_is_refused_within_the_limit",
        "hostile_arguments_of_reads_are_invalid",
    ),
    row(
        "Pods and bytes of a page",
        "a_page_is_bounded_and_the_next_one_continues",
        "a_page_is_bounded_and_the_next_one_continues",
    ),
    row(
        "bytes of staged writes",
        "staged_text_of_every_kind_shares_one_bound",
        "staged_text_of_every_kind_shares_one_bound",
    ),
    row(
        "bytes of objects",
        "objects_to_apply_are_bounded_before_they_are_parsed",
        "objects_to_apply_are_bounded_before_they_are_parsed",
    ),
    row(
        "values of objects",
        "objects_to_apply_are_bounded_before_they_are_parsed",
        "objects_to_apply_are_bounded_before_they_are_parsed",
    ),
    row(
        "time of sending",
        "the_wall_limit_does_not_cut_a_commit_under_way",
        "a_run_that_has_been_sending_for_long_may_not_commit_again",
    ),
    row(
        "bytes of a key and a value of the state",
        "state_has_bounds_and_distinguishes_a_conflict_from_a_refusal",
        "state_has_bounds_and_distinguishes_a_conflict_from_a_refusal",
    ),
    row(
        "bytes of the state of a plugin",
        "a_key_removed_and_put_again_never_repeats_a_version",
        "values_beyond_the_share_evict_the_oldest",
    ),
    row(
        "memory of all runs and of a tenant's",
        "the_memory_of_a_run_is_released_before_its_writes_are_sent",
        "a_tenant_is_a_namespace_or_one_cluster_plugin",
    ),
    row("rate of the log", "a_flood_costs_no_other_tenant_or_plugin_a_line", "only_tenants_that_log_share_the_rate"),
];

const SUITES: [&str; 14] = [
    include_str!("cpu.rs"),
    include_str!("grants.rs"),
    include_str!("limits.rs"),
    include_str!("reuse.rs"),
    include_str!("runs.rs"),
    include_str!("worlds.rs"),
    include_str!("../compile/bombs.rs"),
    include_str!("../compile/cache.rs"),
    include_str!("../../../../host/runtime/src/caps/tests.rs"),
    include_str!("../../../../host/runtime/src/failure.rs"),
    include_str!("../../../../host/runtime/src/compile/process/tests.rs"),
    include_str!("../../../../host/engine/src/dispatch/state.rs"),
    include_str!("../../../../host/engine/src/dispatch/log_rate.rs"),
    include_str!("../../../../host/engine/src/dispatch/tests/memory.rs"),
];

#[test]
fn every_limit_has_a_test_that_obeys_it_and_one_that_breaks_it() {
    for Row { limit, obeyed, broken } in &TABLE {
        for test in [obeyed, broken] {
            let is_test = SUITES.iter().any(|suite| suite.contains(&format!("fn {test}() {{")));
            assert!(is_test, "{limit}: there is no test {test}");
        }
    }
    // A new limit needs a row.
    let Limits {
        class: _,
        memory_bytes: _,
        cpu: _,
        wall: _,
        host_calls: _,
        writes: _,
        log_bytes: _,
        reuse: _,
        // Of all runs together: tests of the queue and of the host.
        requests: _,
    } = Limits::default();
    for field in ["class", "memoryMiB", "cpuMillis", "wallMillis", "hostCalls", "writes", "logKiB", "reuse"] {
        assert!(TABLE.iter().any(|row| row.limit.split(':').next() == Some(field)), "{field}");
    }
}
