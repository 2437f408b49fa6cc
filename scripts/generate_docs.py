"""Write the files that follow from the code: pages of `docs/`, schemas of the settings and of the chart's values.

Run `python scripts/generate_docs.py`. With `--check` it writes nothing, and the exit code is 1 if a file is old.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import configuration_page
import metrics_page

from proxy.config.schema import definitions, schema
from proxy.protocol.apis import API_TABLE, Treatment

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
VALUES_SCHEMA = ROOT / "deploy" / "helm" / "diskless-proxy" / "values.schema.json"

_APIS = """\
# APIs

What the proxy does with each API of Kafka 4.x; generated from `proxy/protocol/apis.py`. *pass*: request and response
stream through. *rewrite*: the broker answers, the answer is changed. *intercept*: answered here, wholly or in part.
*hide*: for brokers among themselves, not served to clients. Versions beyond those named are not offered.

| key | API | versions | treatment | why |
|---|---|---|---|---|
"""


def apis() -> str:
    """Return the page of all APIs."""
    rows = [
        f"| {api.key} | {api.name} | "
        f"{'–' if api.treatment is Treatment.HIDE else f'{api.lowest_version}–{api.highest_version}'} | "
        f"{api.treatment.value} | {api.reason} |\n"
        for api in API_TABLE.values()
    ]
    return _APIS + "".join(rows)


def values_schema() -> str:
    """Return the schema of the chart's values: written by hand, with the settings' own, terse, as its definitions."""
    values = json.loads(VALUES_SCHEMA.read_text())
    return json.dumps(values | {"$defs": _without_text(definitions())}, indent=1) + "\n"


def _without_text(part: Any) -> Any:
    """Return a schema without its descriptions, which are strings; a setting of that name is an object."""
    if isinstance(part, list):
        return [_without_text(one) for one in part]
    if not isinstance(part, dict):
        return part
    kept = {name: _without_text(one) for name, one in part.items()}
    return {name: one for name, one in kept.items() if not (name == "description" and isinstance(one, str))}


def main() -> int:
    """Write the files, or check them."""
    stale = []
    for path, text in (
        (DOCS / "configuration.md", configuration_page.page()),
        (DOCS / "settings.schema.json", json.dumps(schema(), indent=1) + "\n"),
        (DOCS / "apis.md", apis()),
        (DOCS / "metrics.md", metrics_page.page()),
        (VALUES_SCHEMA, values_schema()),
    ):
        if not path.exists() or path.read_text() != text:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(text)
    if stale and "--check" in sys.argv:
        print(f"not current: {', '.join(stale)}; run python scripts/generate_docs.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
