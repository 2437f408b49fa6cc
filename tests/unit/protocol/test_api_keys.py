"""The named API keys are those of the table."""

import re

from proxy.protocol import api_keys
from proxy.protocol.apis import API_TABLE


def test_every_name_is_that_of_the_api_with_the_key():
    named = {name: key for name, key in vars(api_keys).items() if name.isupper()}
    assert len(named) > 5
    for name, key in named.items():
        assert re.sub(r"(?<=[a-z])(?=[A-Z])", "_", API_TABLE[key].name).upper() == name
