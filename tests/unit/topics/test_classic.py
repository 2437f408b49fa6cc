"""An ID counts as classic as long as it is cached; a name only while brokers confirm its ID, if the lease is out."""

from __future__ import annotations

import pytest

from proxy.topics.classic import ClassicTopics

OLD, NEW = b"o" * 16, b"n" * 16
MAX_AGE_S = 10.0


class World:
    """Cached topics, a clock, and brokers that have an ID for each name."""

    def __init__(self, **ids: bytes) -> None:
        self.now_s = 100.0
        self.classic = ClassicTopics(lambda: self.now_s, max_age_s=MAX_AGE_S)
        self.ids: dict[str, bytes | None] = {**ids}
        for name in ids:
            self.classic.note(name)
        self.answer(list(ids), is_current=True)

    def answer(self, names: list[str], *, is_current: bool) -> None:
        for name in names:
            self.classic.confirm(name, self.ids.get(name), asked_s=self.now_s, is_current=is_current)

    def ask(self, *, is_current: bool = False) -> list[str]:
        """Ask the brokers for the names whose IDs are due; return the names."""
        due = self.classic.due(100, is_current=is_current)
        self.answer(due, is_current=is_current)
        return due


def test_a_name_counts_while_the_brokers_have_its_id() -> None:
    world = World(orders=OLD)
    for _ in range(5):
        assert world.classic.holds("orders")
        world.now_s += MAX_AGE_S
        assert world.ask() == ["orders"]
    assert world.classic.id_of("orders") == OLD


def test_a_name_counts_only_for_a_limited_time_after_the_lease() -> None:
    world = World(orders=OLD)
    world.now_s += MAX_AGE_S
    assert world.classic.holds("orders")
    world.now_s += 0.1
    assert not world.classic.holds("orders")
    assert world.ask() == ["orders"], "it is in use"
    assert world.classic.holds("orders")


@pytest.mark.parametrize("recreated_as", [NEW, None])
def test_a_name_that_another_topic_got_no_longer_counts(recreated_as: bytes | None) -> None:
    """A broker that does not know the topic may only be the last one to hear of it: that is no confirmation."""
    world = World(orders=OLD)
    assert world.classic.holds("orders")
    world.ids["orders"] = recreated_as
    world.now_s += MAX_AGE_S / 2
    world.ask()
    assert world.classic.holds("orders") is (recreated_as is None)
    world.now_s += MAX_AGE_S
    assert not world.classic.holds("orders")
    world.ids["orders"] = OLD
    world.ask()
    assert world.classic.holds("orders") is (recreated_as is None)


def test_an_id_that_brokers_have_only_after_the_lease_is_not_believed() -> None:
    world = World()
    world.classic.note("orders")
    world.ids["orders"] = NEW
    world.answer(["orders"], is_current=False)
    assert not world.classic.holds("orders")
    assert world.ask() == []


def test_an_id_counts_as_long_as_it_is_cached() -> None:
    world = World()
    world.classic.note(OLD)
    world.now_s += 1_000_000
    assert world.classic.holds(OLD)
    assert not world.classic.holds(NEW)


def test_a_topic_that_was_recreated_while_the_lease_ran_counts_with_its_new_id() -> None:
    world = World(orders=OLD)
    world.ids["orders"] = NEW
    assert world.ask(is_current=True) == ["orders"]
    assert world.classic.id_of("orders") == NEW
    assert world.classic.holds("orders")


def test_all_names_are_read_again_in_turn_and_those_in_use_first_when_the_lease_is_out() -> None:
    world = World(**{f"t{number}": OLD for number in range(5)})
    rounds = [world.classic.due(2, is_current=True) for _ in range(3)]
    assert sorted(name for names in rounds for name in names) == ["t0", "t1", "t2", "t3", "t4"]
    world.classic.holds("t3")
    assert world.ask() == ["t3"]
    assert world.ask() == [], "the answer is fresh"
    world.now_s += MAX_AGE_S / 2
    assert world.ask() == ["t3"]


def test_a_name_that_became_diskless_is_forgotten() -> None:
    world = World(orders=OLD)
    world.classic.forget("orders")
    world.answer(["orders"], is_current=True)
    assert not world.classic.was_noted("orders")
