"""SIGHUP: the settings file is read again, and what may change while clients are served is changed.

Which settings may, the model says (`proxy.config.section.Reloadable`). All of a file's reloadable settings change, or
none does: a file that can't be used leaves everything as it was. Parts that read a setting at each use need no word of
it; those that keep one by themselves are told by `proxy/assembly/reload_parts.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

import structlog

from proxy.config import ConfigError, Settings
from proxy.config.live import differences, names, write
from proxy.telemetry.logs import log_level, set_log_format, set_log_level

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ReloadOutcome:
    """The result of one reload: names of settings as the file writes them, never values."""

    applied: tuple[str, ...] = ()
    """Changed, and in force."""
    needs_restart: tuple[str, ...] = ()
    """Other in the file than in the process, which keeps what it has."""
    error: str | None = None
    """Why nothing was changed."""


class Reloader:
    """Brings new settings into a process. Safe at any time: before its parts are there, and while it drains."""

    def __init__(
        self,
        settings: Settings,
        read: Callable[[], Settings] | None,
        tell: Callable[[Collection[str]], None] = lambda changed: None,
        *,
        pass_on: Callable[[Settings], Awaitable[None]] | None = None,
    ) -> None:
        """`settings`: the process's own, in which values are replaced; nobody else's, see `load_settings`.

        `read`: the settings as file and environment say them now, raises ConfigError; None where another process does
        that. `tell`: is called after a change with the dotted paths of the settings that have changed. `pass_on`: is
        called after each file that could be used, with what the process has by then.
        """
        self._pass_on = pass_on
        self._settings = settings
        self._read = read
        self._tell = tell
        self._wanted = asyncio.Event()

    def want(self) -> None:
        """Reload as soon as `keep_reloading` gets to it; asked for several times meanwhile, it is done once."""
        self._wanted.set()

    async def keep_reloading(self) -> None:
        """Reload whenever it is requested, forever."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            await self.reload()

    async def reload(self) -> ReloadOutcome:
        """Read the file and the environment, and change what may change; the log says what came of it."""
        if self._read is None:
            return _refused("this process has its settings from its parent; send the signal to that")
        try:
            # In a thread: the file may lie on a disk that hangs.
            wanted = await asyncio.to_thread(self._read)
        except ConfigError as error:
            return _refused(str(error))
        except Exception as error:  # whatever is wrong with a file is no reason to stop
            return _refused(f"{type(error).__name__}: {error}")
        outcome = self.apply(wanted)
        if self._pass_on is not None:
            await self._pass_on(self._settings)
        return outcome

    def apply(self, wanted: Settings) -> ReloadOutcome:
        """Change what may change to what `wanted` has; the log says what came of it."""
        found = differences(self._settings, wanted)
        before = write(self._settings, found.reloadable)
        changed = {".".join(setting.path) for setting in found.reloadable}
        try:
            self._tell_logs(changed)
            self._tell(changed)
        except Exception as error:
            write(self._settings, before)
            with suppress(Exception):  # the one that failed may do so again
                self._tell_logs(changed)
                self._tell(changed)
            log.exception("reload_broken", remedy="report it with this trace")
            return _refused(f"a part did not take its new settings: {error!r}")
        outcome = ReloadOutcome(names(found.reloadable), names(found.restart))
        kept = {} if log_level() == self._settings.log_level else {"log_level_stays": log_level()}
        log.info("settings_reloaded", changed=list(outcome.applied), **kept)
        if outcome.needs_restart:
            log.warning(
                "settings_need_restart",
                settings=list(outcome.needs_restart),
                remedy="restart the proxy; until then it goes on with what these were",
            )
        return outcome

    def _tell_logs(self, changed: Collection[str]) -> None:
        # Only where the file says another level: one that somebody set by way of the admin port stays else.
        if "log_level" in changed:
            set_log_level(self._settings.log_level)
        if "log_format" in changed:
            set_log_format(self._settings.log_format)


def _refused(reason: str) -> ReloadOutcome:
    log.error("settings_not_reloaded", reason=reason, remedy="fix that and send SIGHUP again; nothing has changed")
    return ReloadOutcome(error=reason)
