"""Compare the settings of a running process with those of a file, and change them in place.

Sections are handed to parts of the proxy when it starts, and the parts read them at each use. So a reload writes into
the very objects that the parts hold, although these are frozen. Only this module does that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel

from proxy.config.reference import Setting, all_settings
from proxy.config.settings import Settings

MISSING = object()
"""Value of a setting whose section is missing."""


class Differences(NamedTuple):
    """Differences between the settings of a process and those of a file, with the file's values."""

    reloadable: dict[Setting, Any]
    restart: tuple[Setting, ...]


def value_of(settings: Settings, setting: Setting) -> Any:
    """Return the value, or `MISSING`; for a section that may be missing, return whether it exists."""
    value: Any = settings
    for name in setting.path:
        if value is None:
            return MISSING
        value = getattr(value, name)
    return value is not None if setting.is_section else value


def differences(live: Settings, wanted: Settings) -> Differences:
    """Return the settings whose value in `wanted` differs from `live`."""
    reloadable, restart = dict[Setting, Any](), list[Setting]()
    for setting in all_settings():
        now, then = value_of(live, setting), value_of(wanted, setting)
        if now is MISSING or then is MISSING or now == then:
            continue  # a section that comes or goes is a difference of its own
        if setting.reloadable:
            reloadable[setting] = then
        else:
            restart.append(setting)
    return Differences(reloadable, tuple(restart))


def write(live: Settings, values: Mapping[Setting, Any]) -> dict[Setting, Any]:
    """Write values, and return the values that they replace. The new values were checked when they were read."""
    before = {setting: value_of(live, setting) for setting in values}
    for setting, value in values.items():
        section: BaseModel = live
        for name in setting.path[:-1]:
            section = getattr(section, name)
        section.__dict__[setting.path[-1]] = value
    return before


def names(settings: Iterable[Setting]) -> tuple[str, ...]:
    """Return the names of settings as the file may write them."""
    return tuple(setting.name for setting in settings)
