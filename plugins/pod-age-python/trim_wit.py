"""Writes the contract with its world cut down to the interfaces that a plugin is granted.

An interpreted guest imports every function of its world, and the host refuses to load a component that imports more
than its configuration grants. So the world has to be as small as the grants before the component is built.

    python3 trim_wit.py CONTRACT INTERFACE... > OUT

It understands the shape of wit/podium.wit, not WIT: top-level blocks that begin with `interface` or `world` in the
first column and end with a brace in the first column.
"""

import re
import sys

WORLD = "plugin-json"
EXPORT = "reconciler-json"
BLOCK = re.compile(r"^(?P<kind>interface|world) (?P<name>[a-z0-9-]+) \{.*?^\}\n", re.MULTILINE | re.DOTALL)


def trim(contract: str, granted: list[str]) -> str:
    """The package, its types, the granted interfaces in the contract's order, and a world of them."""
    package = re.search(r"^package [^;]+;\n", contract, re.MULTILINE)
    if package is None:
        raise ValueError("the contract names no package")
    blocks = {match["name"]: match for match in BLOCK.finditer(contract)}
    offered = re.findall(r"^  import ([a-z0-9-]+);$", blocks[WORLD].group(), re.MULTILINE)
    unknown = sorted(set(granted) - set(offered))
    if unknown:
        raise ValueError(f"world {WORLD} does not offer {', '.join(unknown)}; it offers {', '.join(offered)}")
    kept = {"types", EXPORT, *granted}
    interfaces = [match.group() for name, match in blocks.items() if match["kind"] == "interface" and name in kept]
    imports = "".join(f"  import {name};\n" for name in offered if name in granted)
    world = f"world {WORLD} {{\n{imports}  export {EXPORT};\n}}\n"
    return "\n".join([package.group(), *interfaces, world])


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        sys.stdout.write(trim(file.read(), sys.argv[2:]))
