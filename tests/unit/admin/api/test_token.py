"""The file with the token: rejections at the start, and later changes of the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.admin.api.token import Token
from proxy.process.ports import StartError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.touch(mode=0o600)
    path.write_text("abc-123\n")
    return path


def test_without_a_file_nothing_is_allowed() -> None:
    token = Token(None)
    assert not token.is_set
    assert not token.allows("Bearer ")
    assert not token.allows("Bearer None")


def test_only_the_token_itself_is_allowed(file: Path) -> None:
    token = Token(file)
    assert token.is_set
    assert token.allows("Bearer abc-123")
    assert token.allows("bearer  abc-123 ")
    for wrong in (
        "",
        "Bearer",
        "Bearer ",
        "abc-123",
        "Basic abc-123",
        "Bearer abc-12",
        "Bearer abc-1234",
        "Bearer é\udcff",
    ):
        assert not token.allows(wrong)


def test_a_file_that_changes_is_read_again(file: Path) -> None:
    token = Token(file)
    replacement = file.with_name("next")
    replacement.touch(mode=0o600)
    replacement.write_text("new-token")
    replacement.rename(file)
    assert token.allows("Bearer new-token")
    assert not token.allows("Bearer abc-123")


def test_while_the_file_is_unusable_nothing_is_allowed(file: Path) -> None:
    token = Token(file)
    file.unlink()
    assert not token.is_set
    assert not token.allows("Bearer abc-123")
    file.touch(mode=0o600)
    file.write_text("abc-456")
    assert token.allows("Bearer abc-456")
    file.chmod(0o644)
    assert not token.allows("Bearer abc-456")


@pytest.mark.parametrize(
    ("content", "mode", "says"),
    [
        (b"", 0o600, "is empty; write a token into it"),
        (b" \n\t\n", 0o600, "is empty; write a token into it"),
        (b"abc", 0o604, "can be read or written by everyone on this machine; chmod o-rw it"),
        (b"abc", 0o602, "can be read or written by everyone on this machine; chmod o-rw it"),
        (b"two words", 0o600, "does not contain a token .up to 1024 printable ASCII characters"),
        (b"\xff\xfe", 0o600, "does not contain a token"),
        (b"a" * 1025, 0o600, "does not contain a token"),
    ],
)
def test_a_file_that_can_not_be_used_ends_the_start_with_one_line(
    file: Path, content: bytes, mode: int, says: str
) -> None:
    file.write_bytes(content)
    file.chmod(mode)
    with pytest.raises(StartError, match=says) as caught:
        Token(file)
    assert str(caught.value).startswith(f"admin.token_file: {file} ")
    assert "\n" not in str(caught.value)


def test_a_missing_file_ends_the_start_with_one_line(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"can't be read: No such file or directory; write a token into it"):
        Token(tmp_path / "nothing")
    with pytest.raises(StartError, match=r"can't be read: Is a directory"):
        Token(tmp_path_with_mode(tmp_path))


def tmp_path_with_mode(path: Path) -> Path:
    path.chmod(0o700)
    return path
