"""Tests of the module "podium" and of podium.testing without a runner. The suite `embedded` runs them."""

import ast
import unittest
from datetime import datetime, timedelta, timezone
from json import loads
from pathlib import Path

from podium import TerminalError, _json, _show, objects, pods, quantity, state, workload, writes
from testing import pod, run, settle


def names(path):
    """Returns the public names that a module defines at its top level."""
    defined = set()
    for statement in ast.parse(Path(__file__).with_name(path).read_text(encoding="utf-8")).body:
        defined |= {getattr(statement, "name", None)}
        defined |= {target.id for target in getattr(statement, "targets", []) if isinstance(target, ast.Name)}
    return {name for name in defined if name and not name.startswith("_")}


class Module(unittest.TestCase):
    def test_the_stub_has_the_names_of_the_module(self):
        self.assertEqual(names("podium.py"), names("podium.pyi"))

    def test_an_exception_without_a_text_is_shown(self):
        class Odd(Exception):
            def __str__(self):
                raise SystemExit

        self.assertIn("Odd object", _show(Odd()))

    def test_json_is_utf_8_and_a_lone_surrogate_is_named(self):
        self.assertEqual(_json({"ä": "…"}), '{"ä":"…"}')
        with self.assertRaisesRegex(TypeError, r"form in JSON: .*\\ud800"):
            _json(["\ud800"])


    def test_a_quantity_is_a_number_and_no_tuple(self):
        zero, half, one = (quantity(text) for text in ("0", "500m", "1"))
        self.assertEqual([bool(zero), bool(half)], [False, True])
        self.assertEqual((sum([half, half], zero), max(half, one), {one}), (one, one, {quantity("1000m")}))
        self.assertTrue(zero < half <= one and one > half >= half and half != one)
        self.assertEqual((f"{half}", repr(half), half == 500_000_000), ("0.5", "Quantity(nanos=500000000)", False))
        for wrong in (lambda: half * 2, lambda: half + 1, lambda: half < 1, lambda: [*half], lambda: _json([half])):
            self.assertRaises(TypeError, wrong)
        with self.assertRaises(AttributeError):
            half.nanos = 1


class Testing(unittest.TestCase):
    def test_each_commit_returns_the_writes_since_the_one_before(self):
        def reconcile(request):
            for key in "ab":
                writes.set_label(request.pod, key, "1")
                [report] = writes.commit()
                state.put(key, report.id)
            writes.set_label(request.pod, "c", "1")
            raise TerminalError("no")

        kept = {}
        done = run(reconcile, pod("shop", "cart-0"), state=kept)
        self.assertEqual(done.error.partition(" ")[0], "no")
        self.assertEqual([write[2] for write in done.writes], ["a", "b"])
        self.assertEqual(kept, {"a": ("0", 1), "b": ("1", 1)})

    def test_pods_are_found_in_the_order_of_their_names(self):
        others = [pod("web", "a"), pod("shop", "a")]
        found = []
        run(lambda _: found.extend(one["metadata"]["name"] for one in pods.find()), pod("shop", "b"), others=others)
        self.assertEqual(found, ["a", "b", "a"])

    def test_the_pods_of_a_workload_are_those_of_all_its_replica_sets(self):
        def replica(name, hash, kind="ReplicaSet", label="pod-template-hash"):
            made = pod("shop", name, {label: hash})
            owner = {"kind": kind, "name": f"web-{hash}", "uid": hash, "controller": True}
            made["metadata"]["ownerReferences"] = [owner]
            return made

        def reconcile(request):
            names = [one["metadata"]["name"] for one in pods.find(namespace="shop", workload=workload(request.pod))]
            writes.set_label(request.pod, "names", " ".join(names))

        set = replica("d", "3", "StatefulSet")
        others = [replica("b", "2"), replica("c", "1", label="app"), set, pod("shop", "e")]
        done = run(reconcile, replica("a", "1"), others=others)
        self.assertEqual(done.writes[0][3], "a b")
        for of, count in (replica("a", "1"), 2), (pod("shop", "e"), 0):
            counted = run(lambda request: {"after_seconds": len([*pods.siblings(request.pod)])}, of, others=others)
            self.assertEqual(counted.outcome, {"after_seconds": count})
        # None would select every Pod.
        self.assertIn("workload is none of a Pod: None", run(reconcile, pod("shop", "e"), others=others).error)
        self.assertEqual(workload(others[1]), ("ReplicaSet", "web-1", "1"))
        self.assertEqual((workload(set), workload(others[3])), (("StatefulSet", "web-3", "3"), None))

    def test_an_object_is_read_and_scaled_by_its_kind_and_name(self):
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "shop", "name": "a"}, "data": {}}

        def reconcile(_):
            other = {**config, "kind": "Secret"}
            state.put("found", [objects.get(config), objects.get(other)])
            objects.scale(config, 3)

        kept = {}
        done = run(reconcile, pod("shop", "a"), objects=[config], state=kept)
        names = {"apiVersion": "v1", "kind": "ConfigMap", "namespace": "shop", "name": "a"}
        self.assertEqual((done.error, done.writes), (None, [("scale", names, 3)]))
        self.assertEqual(loads(kept["found"][0]), [config, None])

    def test_writes_wake_until_nothing_changes_and_a_deletion_is_run_once(self):
        def reconcile(request):
            if request.deleted:
                return
            if "done" in request.pod["metadata"].get("labels", {}):
                writes.set_condition(request.pod, "a", "True")
                writes.remove_finalizer(request.pod, "a")
                writes.delete(request.pod)
            elif request.key.name == "a":
                for other in pods.find():
                    writes.add_finalizer(other, "a")
                    writes.set_annotation(other, "a", "1")
            else:
                writes.set_label(request.pod, "done", "1")

        done = settle(reconcile, [pod("shop", "a"), pod("shop", "b")])
        self.assertEqual([name for name, _ in done.runs], ["shop/a", "shop/b", "shop/a", "shop/b", "shop/b"])
        [left] = done.pods
        self.assertEqual((left["metadata"]["annotations"], left["metadata"]["finalizers"]), ({"a": "1"}, ["a"]))

        def endless(request):
            writes.set_label(request.pod, "a", str(state.update("a", lambda seen: (seen or 0) + 1)))

        with self.assertRaisesRegex(RuntimeError, "shop/a does not settle"):
            settle(endless, [pod("shop", "a")])

    def test_a_report_emits_one_event_for_each_change_of_its_condition(self):
        def reconcile(request):
            waits = request.pod["status"]["phase"] == "Pending"
            condition = {"type": "example.com/Waits", "status": "True" if waits else "False", "reason": "Phase"}
            writes.report(request.pod, condition, {"type": "Warning", "reason": "Waits", "note": f"waits: {waits}"})
            writes.label_to(request.pod, "state", "waits" if waits else None)
            writes.annotation_to(request.pod, "state", "" if waits else None)

        first = settle(reconcile, [pod("shop", "cart-0", {"state": "waits"})])
        self.assertEqual([len(done.events) for _, done in first.runs], [1, 0])
        [left] = first.pods
        self.assertEqual((left["metadata"]["labels"], left["status"]["conditions"][0]["status"]), ({}, "False"))
        left["status"]["phase"] = "Pending"
        second = settle(reconcile, [left])
        self.assertEqual(second.runs[0][1].events, [("Warning", "shop/cart-0", "Waits", "waits: True")])
        self.assertEqual(second.pods[0]["metadata"]["labels"], {"state": "waits"})
        self.assertEqual(second.pods[0]["metadata"]["annotations"], {"state": ""})

    def test_a_report_without_a_status_is_an_error(self):
        def reconcile(request):
            writes.report(request.pod, {"type": "example.com/Waits"}, {"reason": "Waits", "note": ""})

        self.assertIn("KeyError: 'status'", run(reconcile, pod("shop", "cart-0")).error)

    def test_a_section_that_is_not_granted_is_no_empty_one(self):
        blind = pod("shop", "cart-0")
        del blind["status"]
        error = run(lambda request: print(pods.is_ready(request.pod)), blind).error
        self.assertIn("the Pod has no status: the section status is not granted", error)

    def test_the_script_of_the_cookbook_deletes_a_finished_pod_in_time(self):
        page = Path(__file__).parents[2].joinpath("docs/cookbook.md").read_text(encoding="utf-8")
        script = {}
        exec(page.split("```python\n")[1].partition("```")[0], script)
        cart = pod("shop", "cart-0")
        cart["metadata"]["annotations"] = {"example.com/ttl": "1m30s"}
        start = datetime(2026, 1, 1, tzinfo=timezone.utc)
        ended = {"name": "main", "state": {"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T00:00:00Z"}}}
        for phase, seconds, outcome, written in (
            ("Running", 90, None, []),
            ("Failed", 89, {"after_seconds": 1}, []),
            ("Failed", 90, None, [("delete", "shop/cart-0", None)]),
        ):
            cart["status"] = {"phase": phase, "containerStatuses": [ended]}
            done = run(script["reconcile"], cart, now=start + timedelta(seconds=seconds))
            self.assertEqual((done.error, done.outcome, done.writes), (None, outcome, written))
            self.assertEqual(len(done.events), len(written))

    def test_an_exit_is_a_failure_of_the_run(self):
        self.assertEqual(run(lambda _: exit(3), pod("shop", "a")).error.partition(" ")[0], "SystemExit:")


if __name__ == "__main__":
    unittest.main()
