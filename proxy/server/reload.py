"""Reload of the settings file on SIGHUP: settings that may change while clients are served take effect.

The model says which settings may change (`proxy.config.section.Reloadable`). Either all of a file's reloadable settings
change, or none does: an unusable file leaves everything as it was. Parts that read a setting at each use need no
notice. `take_settings()` in `proxy/assembly/` passes the new value to parts that keep a copy.
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
    """Settings that have changed and are in force."""
    needs_restart: tuple[str, ...] = ()
    """Settings whose value in the file differs from the process, which keeps the old value until a restart."""
    error: str | None = None
    """Reason why nothing has changed."""


class Reloader:
    """Brings new settings into a process. Safe at any time: before its parts are built, and while it drains."""

    def __init__(
        self,
        settings: Settings,
        read: Callable[[], Settings] | None,
        notify: Callable[[Collection[str]], None] = lambda changed: None,
        *,
        pass_on: Callable[[Settings], Awaitable[None]] | None = None,
    ) -> None:
        """`settings`: the settings of this process alone, in which values are replaced; see `load_settings`.

        `read` returns the settings that file and environment have now, and raises ConfigError; None if another process
        reads them. `notify` is called after a change, with the dotted paths of the changed settings. `pass_on` is
        called after each usable file, with the settings that the process has then.
        """
        self._pass_on = pass_on
        self._settings = settings
        self._read = read
        self._notify = notify
        self._wanted = asyncio.Event()

    def want(self) -> None:
        """Request a reload by `keep_reloading`. Several requests before it begins are one reload."""
        self._wanted.set()

    async def keep_reloading(self) -> None:
        """Reload whenever a reload is requested, forever."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            await self.reload()

    async def reload(self) -> ReloadOutcome:
        """Read the file and the environment, and apply what may change; log the outcome."""
        if self._read is None:
            return _refused("this process has its settings from its parent; send the signal to the parent")
        try:
            # In a thread: the file may be on an unresponsive disk.
            wanted = await asyncio.to_thread(self._read)
        except ConfigError as error:
            return _refused(str(error))
        except Exception as error:  # a broken file is not a reason to stop
            return _refused(f"{type(error).__name__}: {error}")
        outcome = self.apply(wanted)
        if self._pass_on is not None:
            await self._pass_on(self._settings)
        return outcome

    def apply(self, wanted: Settings) -> ReloadOutcome:
        """Change the reloadable settings to the values in `wanted`; log the outcome."""
        found = differences(self._settings, wanted)
        before = write(self._settings, found.reloadable)
        changed = {".".join(setting.path) for setting in found.reloadable}
        try:
            self._set_logs(changed)
            self._notify(changed)
        except Exception as error:
            write(self._settings, before)
            with suppress(Exception):  # the part that failed may fail again
                self._set_logs(changed)
                self._notify(changed)
            log.exception("reload_broken", remedy="report it with this trace")
            return _refused(f"a part did not take its new settings: {error!r}")
        outcome = ReloadOutcome(names(found.reloadable), names(found.restart))
        kept = {} if log_level() == self._settings.log_level else {"log_level_stays": log_level()}
        log.info("settings_reloaded", changed=list(outcome.applied), **kept)
        if outcome.needs_restart:
            log.warning(
                "settings_need_restart",
                settings=list(outcome.needs_restart),
                remedy="restart the proxy; until then it uses the old values of these settings",
            )
        return outcome

    def _set_logs(self, changed: Collection[str]) -> None:
        # Only if the level in the file has changed: a level that was set through the admin port stays otherwise.
        if "log_level" in changed:
            set_log_level(self._settings.log_level)
        if "log_format" in changed:
            set_log_format(self._settings.log_format)


def _refused(reason: str) -> ReloadOutcome:
    log.error(
        "settings_not_reloaded", reason=reason, remedy="fix the cause and send SIGHUP again; no setting has changed"
    )
    return ReloadOutcome(error=reason)
