#!/bin/sh
# In the image's build: the wheels of /wheels and the project into /opt/diskless-proxy, the same bytes each time.
set -eu
python -m pip wheel --no-deps --no-build-isolation --wheel-dir /wheels .
python -m venv --without-pip /opt/diskless-proxy
python -m pip --python /opt/diskless-proxy/bin/python install --no-index --no-deps --no-compile /wheels/*.whl
# Byte code that names no time of a source, as files of a layer may get any.
/opt/diskless-proxy/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/diskless-proxy/lib
find /opt/diskless-proxy -exec touch --no-dereference --date "@${SOURCE_DATE_EPOCH}" {} +
