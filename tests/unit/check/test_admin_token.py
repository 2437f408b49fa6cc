"""The check of the file with the admin port's token."""

from __future__ import annotations

from pathlib import Path

from proxy.check.files import check_files
from proxy.check.findings import Finding, Kind, Level
from proxy.config import Admin
from tests.unit.process.test_ports import settings_of


async def look(token_file: Path | None) -> list[Finding]:
    return await check_files(settings_of().model_copy(update={"admin": Admin(token_file=token_file)}))


async def test_a_usable_token_passes_and_another_one_gets_the_line_of_the_start(tmp_path: Path) -> None:
    file = tmp_path / "token"
    assert await look(None) == []
    (missing,) = await look(file)
    assert (missing.level, missing.kind, missing.where) == (Level.ERROR, Kind.FILES, "admin.token_file")
    assert missing.remedy == "write a token into it, or remove the setting"
    file.touch(mode=0o600)
    file.write_text("let-me-act")
    (good,) = await look(file)
    assert good.level is Level.OK
    file.chmod(0o644)
    (open_to_all,) = await look(file)
    assert open_to_all.remedy == "chmod o-rw it"
