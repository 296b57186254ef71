"""app.py against the generated bindings, with a fake of componentize-py's runtime. The tests need the bindings on
PYTHONPATH and are skipped without them; `build.sh` sets the path and fails if they are skipped."""

import importlib.util
import json
import os
import sys
import types as python_types
import unittest
from unittest import mock

if importlib.util.find_spec("wit_world") is None:
    if os.environ.get("PODIUM_REQUIRE_BINDINGS"):
        raise RuntimeError("the generated bindings are not on PYTHONPATH")
    raise unittest.SkipTest("no generated bindings; run build.sh")

sys.modules.setdefault("componentize_py_runtime", mock.MagicMock())

import app
from age import LABEL
from componentize_py_types import Err
from test_age import CONFIG, CREATED_MILLIS, pod
from wit_world.exports.reconciler_json import Request, Subject_Deleted, Subject_Present
from wit_world.imports import types


def reconcile(subject, seconds=0, config=CONFIG, writes=None):
    request = Request(
        key=types.PodKey("shop", "web", "u1"),
        subject=subject,
        now_millis=CREATED_MILLIS + seconds * 1000,
        attempt=1,
        config=json.dumps(config),
        unsettled_writes=[],
    )
    with mock.patch.object(app, "writes", writes or python_types.SimpleNamespace()):
        return app.ReconcilerJson().reconcile(request)


def present(**metadata):
    return Subject_Present(json.dumps(pod(**metadata)))


class Reconcile(unittest.TestCase):
    def test_a_pod_that_entered_a_class_is_labelled_and_looked_at_again(self):
        writes = mock.Mock()
        outcome = reconcile(present(), 100, writes=writes)
        writes.set_label.assert_called_once_with(types.PodKey("shop", "web", "u1"), LABEL, "stale")
        self.assertEqual(outcome, types.Outcome_RequeueAfterMillis(100_000))

    def test_a_label_that_is_wrong_for_a_young_pod_is_removed(self):
        writes = mock.Mock()
        reconcile(present(labels={LABEL: "old"}), writes=writes)
        writes.remove_label.assert_called_once_with(types.PodKey("shop", "web", "u1"), LABEL)

    def test_what_is_right_already_and_what_is_gone_makes_no_host_call(self):
        self.assertEqual(reconcile(present(labels={LABEL: "old"}), 200), types.Outcome_Settled())
        self.assertEqual(reconcile(Subject_Deleted(None)), types.Outcome_Settled())

    def test_failures_say_whether_a_retry_can_help(self):
        cases = [
            (types.CallError_NotGranted(), types.Failure_Terminal),
            (types.CallError_OverBudget(), types.Failure_Retry),
        ]
        for refused, failure in cases:
            writes = mock.Mock()
            writes.set_label.side_effect = Err(refused)
            with self.assertRaises(Err) as raised:
                reconcile(present(), 100, writes=writes)
            self.assertIsInstance(raised.exception.value, failure)
        with self.assertRaises(Err) as raised:
            reconcile(present(), config={"classes": {"old": 0}})
        self.assertIsInstance(raised.exception.value, types.Failure_Terminal)

    def test_an_exception_is_a_failure_with_its_file_and_line(self):
        with self.assertRaises(Err) as raised:
            reconcile(present(creationTimestamp="yesterday"))
        failure = raised.exception.value
        self.assertIsInstance(failure, types.Failure_Retry)
        self.assertRegex(failure.value, r"^ValueError: .*'yesterday'.* \(age.py:[0-9]+\)$")


if __name__ == "__main__":
    unittest.main()
