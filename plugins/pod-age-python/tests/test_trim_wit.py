import pathlib
import unittest

from trim_wit import trim

CONTRACT = (pathlib.Path(__file__).parents[3] / "wit" / "podium.wit").read_text(encoding="utf-8")


class Trim(unittest.TestCase):
    def test_a_world_imports_what_was_granted_in_the_contracts_order_and_nothing_else(self):
        world = trim(CONTRACT, ["log", "writes"]).split("world plugin-json ")[1]
        self.assertEqual(world, "{\n  import writes;\n  import log;\n  export reconciler-json;\n}\n")

    def test_the_interfaces_kept_are_the_contracts_own_text(self):
        trimmed = trim(CONTRACT, ["log"])
        end = CONTRACT.index("/// The interface that a plugin exports.")
        self.assertIn(CONTRACT[CONTRACT.index("interface log {") : end], trimmed)
        for gone in ["interface writes", "interface pods", "interface reconciler {", "world plugin {"]:
            self.assertNotIn(gone, trimmed)

    def test_an_interface_that_the_world_does_not_offer_is_refused(self):
        for unknown in ["pods", "types", "network"]:
            with self.assertRaises(ValueError):
                trim(CONTRACT, [unknown])


if __name__ == "__main__":
    unittest.main()
