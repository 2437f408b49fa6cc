"""Write the pages of `docs/` that follow from the code: `configuration.md`, `apis.md` and `metrics.md`.

`python scripts/generate_docs.py`; with `--check` nothing is written, and the exit code is 1 where a page is old.
"""

from __future__ import annotations

import sys
from pathlib import Path

import configuration_page
import metrics_page

from proxy.apis import API_TABLE, Treatment

DOCS = Path(__file__).parent.parent / "docs"

_APIS = """\
# APIs

What the proxy does with each API of Kafka 4.x; generated from `proxy/apis.py`. *pass*: request and response stream
through. *rewrite*: the broker answers, the answer is changed. *intercept*: answered here, wholly or in part. *hide*:
for brokers among themselves, not served to clients. Versions beyond those named are not offered.

| key | API | versions | treatment | why |
|---|---|---|---|---|
"""


def apis() -> str:
    """The page of all APIs."""
    rows = [
        f"| {api.key} | {api.name} | "
        f"{'–' if api.treatment is Treatment.HIDE else f'{api.lowest_version}–{api.highest_version}'} | "
        f"{api.treatment.value} | {api.reason} |\n"
        for api in API_TABLE.values()
    ]
    return _APIS + "".join(rows)


def main() -> int:
    """Write, or check."""
    stale = []
    for name, text in (
        ("configuration.md", configuration_page.page()),
        ("apis.md", apis()),
        ("metrics.md", metrics_page.page()),
    ):
        path = DOCS / name
        if not path.exists() or path.read_text() != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(text)
    if stale and "--check" in sys.argv:
        print(f"not current: {', '.join(stale)}; run python scripts/generate_docs.py")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
