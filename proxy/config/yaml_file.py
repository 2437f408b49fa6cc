"""YAML of settings: plain types, and no duplicate keys, of which PyYAML would silently take the last."""

from __future__ import annotations

from typing import Any

import yaml

_MERGE = "tag:yaml.org,2002:merge"


class _Loader(yaml.SafeLoader):
    """Loader that rejects duplicate keys while it composes.

    At that time keys that come by `<<` are still separate: those may be repeated.
    """

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        first: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                continue
            line = key.start_mark.line + 1
            if key.value in first:
                problem = f"{key.value} is there already, in line {first[key.value]}, and only one of them would count"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            first[key.value] = line
        return node


def read_yaml(text: str) -> Any:
    """Return the one document of `text`.

    Raises YAMLError, and any error that the constructors of dates and numbers raise.
    """
    return yaml.load(text, _Loader)  # of a SafeLoader
