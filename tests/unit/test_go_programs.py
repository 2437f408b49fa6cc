"""Set-up without programs in Go: no network, or no Go."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
OPTIONAL = {"helm", "compose-project"}


@pytest.fixture(params=["no go", "no network"])
def scripts(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """`go_programs` and `crds`, which find a go that fails, or none, and nothing fetched before."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    go_programs, crds, optional = (import_module(name) for name in ("go_programs", "crds", "optional"))
    go = tmp_path / "go"
    go.write_text("#!/bin/sh\necho no route to host >&2\nexit 1\n")
    go.chmod(0o755)
    monkeypatch.setenv("PATH", "" if request.param == "no go" else str(tmp_path))
    monkeypatch.setattr(go_programs.sys, "executable", str(tmp_path / "nowhere" / "python"))
    for module in (go_programs, optional):
        monkeypatch.setattr(module, "SERVERS", tmp_path / "servers")
    monkeypatch.setattr(go_programs, "BIN", tmp_path / "servers" / "bin")
    return go_programs, crds


def test_a_program_for_single_tests_is_reported_and_left_out(
    scripts: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    go_programs, crds = scripts
    optional = [program for program in go_programs.programs() if program.name in OPTIONAL]
    monkeypatch.setattr(go_programs, "programs", lambda: optional)
    go_programs.build_programs()
    crds.fetch_crds()
    printed = capsys.readouterr().out
    for name in (*OPTIONAL, "schema of the Prometheus operator"):
        assert f"no {name}, so tests that need" in printed
    assert printed.count("there is no go") + printed.count("no route to host") == 3
    assert not list(go_programs.SERVERS.rglob("*"))


def test_a_missing_program_for_whole_suites_ends_the_set_up(scripts: tuple[Any, Any]) -> None:
    go_programs, _ = scripts
    with pytest.raises(
        go_programs.FetchError, match=r"toxiproxy-server could not be built; .*(no go|no route to host)"
    ):
        go_programs.build_programs()
