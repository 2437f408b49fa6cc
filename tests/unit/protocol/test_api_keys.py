"""The names of API keys are those of the table, and no other module of the product numbers an API."""

import re
from pathlib import Path

import proxy
from proxy.protocol import api_keys
from proxy.protocol.apis import API_TABLE

NAMES = {re.sub(r"(?<=[a-z])(?=[A-Z])", "_", api.name).upper(): key for key, api in API_TABLE.items()}
NUMBERED = re.compile(rf"^_?(?:{'|'.join(NAMES)})(?:,.*)? = \d+\b|frozenset\(\{{\d|^ +\d+: \w+\.\w+,$", re.MULTILINE)
"""A constant with the name of an API, a set of numbers, or a table from numbers to methods."""


def test_every_api_has_its_name_and_every_name_its_api() -> None:
    assert {name: key for name, key in vars(api_keys).items() if name.isupper()} == NAMES


def test_no_other_module_has_the_number_of_an_api() -> None:
    package = Path(proxy.__file__).parent
    assert NUMBERED.search((package / "protocol" / "api_keys.py").read_text())
    assert not [
        f"{path.relative_to(package)}: {found}"
        for path in sorted(package.rglob("*.py"))
        if path.name != "api_keys.py"
        for found in NUMBERED.findall(path.read_text())
    ]
