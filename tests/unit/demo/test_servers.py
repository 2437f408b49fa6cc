"""Places of the demo's servers: next to a clone, in the user's cache for a wheel, or a place from the environment."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from proxy import __version__
from proxy.demo import jars, servers
from proxy.demo.jars import BROKERS, FetchError, JarSet

POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><dependencies><dependency>
<groupId>org.example</groupId><artifactId>thing</artifactId><version>1.0</version>
</dependency></dependencies></project>"""


@pytest.fixture
def from_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the package would be installed into."""
    monkeypatch.delenv("DISKLESS_DEMO_SERVERS", raising=False)
    package = tmp_path / "site-packages" / "proxy" / "demo"
    package.mkdir(parents=True)
    monkeypatch.setattr(servers, "__file__", str(package / "servers.py"))
    return tmp_path


def test_a_clone_keeps_them_in_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISKLESS_DEMO_SERVERS", raising=False)
    assert servers.servers_directory() == Path(servers.__file__).parents[2] / ".servers"


def test_a_wheel_keeps_them_in_the_cache_of_its_version(from_a_wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(from_a_wheel / "caches"))
    assert servers.servers_directory() == from_a_wheel / "caches" / "diskless-proxy" / __version__
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(from_a_wheel / "home"))
    assert servers.servers_directory() == from_a_wheel / "home" / ".cache" / "diskless-proxy" / __version__


def test_the_environment_names_another_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISKLESS_DEMO_SERVERS", "/srv/demo")
    assert servers.servers_directory() == Path("/srv/demo")


def test_processes_of_kafka_map_the_classes_that_were_prepared_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DISKLESS_DEMO_SERVERS", str(tmp_path))
    assert servers.shared_classes() == ()
    servers.shared_classes_file().parent.mkdir()
    servers.shared_classes_file().touch()
    assert f"-XX:SharedArchiveFile={tmp_path}/kafka/classes.jsa" in servers.shared_classes()


def test_the_prepared_classes_fit_the_class_path() -> None:
    """Check the classes: everything works without them, but a broker then costs more than twice as much to start."""
    if not servers.shared_classes():
        pytest.skip("make setup could not prepare them with this Java")
    demanded = [servers.java(), "-Xshare:on", *servers.shared_classes()]
    done = subprocess.run(
        [*demanded, "-cp", f"{servers.kafka_class_path()}:{Path(__file__).parent}", "-version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_the_brokers_jars_are_named_inside_the_package() -> None:
    assert BROKERS.pom.exists()
    assert BROKERS.lock.exists()
    assert BROKERS.directory.is_relative_to(Path(jars.__file__).parent)


@pytest.fixture
def thing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JarSet:
    """Return a set of one jar, whose download is a file with the text `thing`."""
    monkeypatch.setenv("DISKLESS_DEMO_SERVERS", str(tmp_path / "servers"))
    monkeypatch.setattr(jars.shutil, "which", lambda _: None)
    monkeypatch.setattr(
        jars, "by_jgo", lambda wanted, libs: [(libs / jars.file_name(one)).write_text("thing") for one in wanted]
    )
    directory = tmp_path / "set"
    directory.mkdir()
    (directory / "pom.xml").write_text(POM)
    (tmp_path / "jar").write_text("thing")
    (directory / "jars.lock").write_text(f"org.example:thing:1.0 {jars.digest(tmp_path / 'jar')}\n")
    return JarSet(directory)


def test_jars_are_fetched_once(thing: JarSet, tmp_path: Path) -> None:
    said: list[str] = []
    thing.fetch(said.append)
    assert (tmp_path / "servers" / "set" / "libs" / "thing-1.0.jar").read_text() == "thing"
    assert len(said) == 2
    thing.fetch(said.append)
    assert len(said) == 2


def test_a_jar_other_than_the_lock_says_is_not_kept(thing: JarSet, tmp_path: Path) -> None:
    thing.lock.write_text(f"org.example:thing:1.0 {'0' * 64}\n")
    with pytest.raises(FetchError, match=r"thing-1\.0\.jar"):
        thing.fetch(lambda _: None)
    assert not (tmp_path / "servers" / "set").exists()


def test_a_jars_file_name_has_its_classifier() -> None:
    assert jars.file_name("io.netty:epoll:4.1:linux-x86_64") == "epoll-4.1-linux-x86_64.jar"
    assert jars.file_name("io.netty:epoll:4.1") == "epoll-4.1.jar"
