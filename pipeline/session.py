"""The Spark session of a job: under spark-submit the one that is given, else one of this machine."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from signal import SIGINT, getsignal, signal
from typing import IO, TYPE_CHECKING, Any

from pipeline.errors import PipelineError, SparkFailed, one_line
from pipeline.java import check_user, launching_home
from pipeline.signals import at_once

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
_END_SECONDS = 10.0
"""For the session to stop, and again for the JVM to end by itself."""
_CANCEL_AGAIN_SECONDS = 0.5
_LAST_BYTES = 20_000
_STANDARD_ERROR = 2

_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.ui.showConsoleProgress": "false",
}
"""Unless the session's own conf says otherwise."""
_LOCAL = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


@contextmanager
def spark_session(
    app_name: str, *, master: str | None = None, conf: Mapping[str, str] | None = None, verbose: bool = False
) -> Iterator[SparkSession]:
    """Yield a session for the duration of the context; its JVM and Python workers end with it.

    Under spark-submit, master and conf are those given there, and none can be given here. Otherwise the master defaults
    to `local[*]`, and Java is looked for (see `java.py`). The output of Spark and Java goes to a file that nobody has
    to read, or with `verbose` to standard error. If a session already runs in this process, it is used and left
    running. Raises PipelineError if Spark can't be started. Errors of Spark or Java that leave the context become
    SparkFailed, because their text would be lost without the JVM.
    """
    try:
        from pyspark import SparkContext
    except ImportError as error:
        raise PipelineError(f"{error.name} is not installed; install the extra: diskless-proxy[pipeline]") from error
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:
        yield SparkSession.builder.getOrCreate()
        return
    with tempfile.TemporaryFile() as log:
        # PySpark's own way of reporting an error a second time, as hundreds of lines of JSON.
        logging.getLogger("SQLQueryContextLogger").disabled = not verbose
        try:
            session = _started(app_name, master, dict(conf or {}), None if verbose else log)
        except PipelineError:
            raise
        except Exception as error:
            _end_java()
            raise PipelineError(f"Spark could not be started: {_reason(error, log)}") from error
        except BaseException:
            _end_java()
            raise
        at_once.append(_let_go)
        try:
            with errors_outlive_java(verbose=verbose):
                yield session
        finally:
            at_once.remove(_let_go)
            _end(session)


@contextmanager
def errors_outlive_java(*, verbose: bool = False) -> Iterator[None]:
    """Turn errors that need the JVM for their text into SparkFailed; with `verbose`, print their traces first."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors.exceptions.captured import CapturedException

    try:
        yield
    except (Py4JJavaError, CapturedException) as error:
        if verbose:
            traceback.print_exception(error)
        raise SparkFailed(one_line(error)) from None


def _started(app_name: str, master: str | None, conf: dict[str, str], log: IO[bytes] | None) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    before = getsignal(SIGINT)
    try:
        if "PYSPARK_GATEWAY_PORT" in os.environ:
            if master or conf:
                raise PipelineError("under spark-submit, give --master and --conf to spark-submit, not to the job")
            given = SparkConf()  # the options of spark-submit
            _set(given, _ALWAYS, over=False)
            given.setAppName(app_name)
            return SparkSession.builder.config(conf=given).getOrCreate()
        check_user()
        chosen = master or LOCAL
        is_local = chosen.startswith("local")
        wanted = SparkConf(loadDefaults=False)
        defaults = _ALWAYS | (_LOCAL if is_local else {}) | {"spark.ui.enabled": "false"}
        _set(wanted, defaults | conf, over=True)
        wanted.setMaster(chosen).setAppName(app_name)
        # Else the workers of this machine run with whatever is called python3 on the path.
        python = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"} if is_local else {}
        given_first = {name: os.environ.get(name, value) for name, value in python.items()}
        with tempfile.TemporaryDirectory() as directory, _environment(given_first, launching_home(Path(directory))):
            output: dict[str, Any] = {"stdout": log or _STANDARD_ERROR, "stderr": log or _STANDARD_ERROR}
            gateway = launch_gateway(conf=wanted, popen_kwargs=output)  # type: ignore[no-untyped-call]
            SparkContext._gateway, SparkContext._jvm = gateway, gateway.jvm
            return SparkSession.builder.config(conf=wanted).getOrCreate()
    finally:
        # Spark puts a handler of its own there, which leaves the JVM running.
        if before is not None and threading.current_thread() is threading.main_thread():
            signal(SIGINT, before)


def _set(conf: SparkConf, values: Mapping[str, str], *, over: bool) -> None:
    for name, value in values.items():
        if over or not conf.contains(name):
            conf.set(name, value)


@contextmanager
def _environment(values: Mapping[str, str], home: Path | None) -> Iterator[None]:
    """Set environment variables for processes that are started meanwhile; JAVA_HOME is set or, if None, unset."""
    names = [*values, "JAVA_HOME"]
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(values)
    os.environ.pop("JAVA_HOME", None)
    if home is not None:
        os.environ["JAVA_HOME"] = str(home)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _let_go() -> None:
    """Let the main thread return from Java, where it waits for a job; otherwise it would call Java again on the way
    out.

    Jobs are cancelled; if that does not help, the JVM is killed.
    """
    from pyspark import SparkContext

    context, gateway = SparkContext._active_spark_context, SparkContext._gateway

    def cancel() -> None:
        while context is not None and SparkContext._active_spark_context is context:
            try:
                context.cancelAllJobs()
            except Exception:  # there is nothing left to cancel
                return
            time.sleep(_CANCEL_AGAIN_SECONDS)

    threading.Thread(target=cancel, daemon=True).start()
    if (process := getattr(gateway, "proc", None)) is not None:
        killing = threading.Timer(_END_SECONDS, process.kill)
        killing.daemon = True
        killing.start()


def _end(session: SparkSession) -> None:
    """End the session and its JVM, whatever the main thread was waiting for when it was interrupted."""

    def stop() -> None:
        try:
            session.sparkContext.cancelAllJobs()
            session.stop()
        except Exception:  # the JVM is gone already, or half of it
            pass

    # A thread has a connection to the JVM of its own: that of the main thread may still wait for an answer.
    stopping = threading.Thread(target=stop, daemon=True)
    stopping.start()
    stopping.join(_END_SECONDS)
    _end_java()


def _end_java() -> None:
    """Let the JVM end that this process has started, and forget it, so that another can be started."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    gateway = SparkContext._gateway
    if gateway is None or getattr(gateway, "proc", None) is None:
        return
    process: subprocess.Popen[bytes] = gateway.proc
    try:
        assert process.stdin is not None
        process.stdin.close()  # the JVM ends when it finds it closed
        process.wait(_END_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        process.kill()
        process.wait()
    try:
        gateway.shutdown()  # the sockets of this side
    except Exception:  # nobody is left to report it to
        pass
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


def _reason(error: Exception, log: IO[bytes]) -> str:
    """Return the error in one line; for a JVM that ended at once, its last output."""
    if "JAVA_GATEWAY_EXITED" not in str(error):
        return one_line(error)
    log.seek(max(0, log.seek(0, os.SEEK_END) - _LAST_BYTES))
    lines = [line.strip() for line in log.read().decode(errors="replace").splitlines() if line.strip()]
    causes = [line for line in lines if "rror" in line or "xception" in line] or lines[-1:]
    return f"its JVM ended: {'; '.join(causes[:2])}" if causes else "its JVM ended; -v shows what it wrote"
