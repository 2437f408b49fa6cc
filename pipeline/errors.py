"""Errors of a job in one line: Spark and Java report them in hundreds."""

from __future__ import annotations

import re

_MAX_CHARACTERS = 600
_MOST_RECENT = "most recent failure: "
_RAISED_BY_TASK = re.compile(r"^(?:\w+\.)*TaskError: (.+)$", re.MULTILINE)
_PYTHON_ERROR = re.compile(r"^(?:[a-z_]\w*\.)*([A-Z]\w*(?:: .*)?)$", re.MULTILINE)
_JAVA_CLASS = re.compile(r"^(?:[a-z]\w*\.)+([A-Z]\w*(?:Exception|Error)): ")
_SAYS_NOTHING = "SparkException: "
_LOST_TASK = re.compile(r"^Lost task [\d.]+ in stage [\d.]+ \(TID \d+\) \([^)]*\): ")


class PipelineError(Exception):
    """A job can't do its work; one line that names the thing, the cause and the next step."""


class SparkFailed(PipelineError):
    """The text of an error of Spark or Java, in one line that can be printed when the JVM is gone."""


class TaskError(Exception):
    """The error of a task of an executor, in one line: its text carries it through Java."""


def is_ours(error: BaseException) -> bool:
    """Return whether the error is one of this project's, whose text is written for people and complete."""
    return type(error).__module__.partition(".")[0] in ("pipeline", "proxy") and not isinstance(error, SparkFailed)


def one_line(error: BaseException) -> str:
    """Return the cause of an error for people: without stack traces, in one line of bounded length.

    For an error that Spark brings from an executor, this is the original error.
    """
    text = _java_text(error) or str(error) or type(error).__name__
    if causes := _RAISED_BY_TASK.findall(text):
        text = causes[-1]
    elif "Traceback (most recent call last)" in text:
        python, _, _ = text.rpartition("\n\tat ") if "\n\tat " in text else (text, "", "")
        lines = _PYTHON_ERROR.findall(re.sub(r"\n\tat .*", "", python))
        text = lines[-1] if lines else text
    elif _MOST_RECENT in text:
        text = _LOST_TASK.sub("", text.partition(_MOST_RECENT)[2].partition("\n")[0])
    else:
        text = re.split(r"\n\s*(?:at |Driver stacktrace)|\nCaused by: |\nJVM stacktrace", text)[0]
    text = " ".join(text.split())
    if not causes and not is_ours(error):  # ours may begin with the name of a file, a host or a topic
        text = _JAVA_CLASS.sub(r"\1: ", text).removeprefix(_SAYS_NOTHING)
    return text if len(text) <= _MAX_CHARACTERS else text[:_MAX_CHARACTERS] + "…"


def _java_text(error: BaseException) -> str:
    """Return the text of the Java exception behind the error; empty if there is none, or the JVM is gone."""
    exception = getattr(error, "java_exception", None)
    if exception is None:
        return ""
    try:
        return str(exception.toString())
    except Exception:  # the JVM may have died of this very error
        return ""
