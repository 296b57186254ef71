import unittest

from age import LABEL, ConfigError, Decision, decide

CREATED = "2026-01-01T00:00:00Z"
CREATED_MILLIS = 1_767_225_600_000
CONFIG = {"classes": {"old": 200, "stale": 100}}


def pod(**metadata):
    return {"metadata": {"namespace": "shop", "name": "web", "creationTimestamp": CREATED, **metadata}}


def after(seconds, **metadata):
    return decide(pod(**metadata), CREATED_MILLIS + round(seconds * 1000), CONFIG)


class Decide(unittest.TestCase):
    def test_a_young_pod_gets_no_label_and_is_looked_at_when_it_enters_the_first_class(self):
        self.assertEqual(after(40), Decision(None, False, 60_000))

    def test_a_pod_enters_a_class_at_its_boundary_and_not_before(self):
        self.assertEqual(after(99.999), Decision(None, False, 1))
        self.assertEqual(after(100), Decision("stale", True, 100_000))

    def test_the_oldest_class_is_the_last_and_needs_no_further_look(self):
        self.assertEqual(after(200, labels={LABEL: "stale"}), Decision("old", True, None))

    def test_a_label_that_is_right_changes_nothing_and_a_wrong_one_goes(self):
        self.assertEqual(after(150, labels={LABEL: "stale"}), Decision("stale", False, 50_000))
        self.assertEqual(after(1, labels={LABEL: "old"}), Decision(None, True, 99_000))

    def test_pods_that_go_or_have_no_age_are_left_alone(self):
        self.assertIsNone(after(500, deletionTimestamp=CREATED))
        self.assertIsNone(after(500, creationTimestamp=None))

    def test_without_a_configuration_there_are_weeks_and_months(self):
        self.assertEqual(decide(pod(), CREATED_MILLIS + 31 * 86_400_000, {}), Decision("month", True, None))

    def test_a_wrong_configuration_names_its_field(self):
        for config, field in [
            ({"class": {}}, "spec.config.class:"),
            ({"classes": ["old"]}, "spec.config.classes:"),
            ({"classes": {"old": "1d"}}, "spec.config.classes.old:"),
            ({"classes": {"old": True}}, "spec.config.classes.old:"),
            ({"classes": {"old": 0}}, "spec.config.classes.old:"),
        ]:
            with self.assertRaises(ConfigError) as raised:
                decide(pod(), CREATED_MILLIS, config)
            self.assertTrue(str(raised.exception).startswith(field), raised.exception)


if __name__ == "__main__":
    unittest.main()
