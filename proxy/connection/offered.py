"""The reasons why a request is not for this proxy, by its API key and version."""

from __future__ import annotations

from proxy.protocol import apis
from proxy.protocol.api_keys import API_VERSIONS
from proxy.wire.errors import ProtocolError


def check_unusual(api: apis.Api | None, api_key: int, api_version: int, *, kip1163_api: bool) -> apis.Api:
    """Return the API if it serves a version outside of the table's range. Raises ProtocolError otherwise.

    Brokers answer ApiVersions of every version. `kip1163_api`: so are the versions that the KIP proposes.
    """
    if api is None or api.treatment is apis.Treatment.HIDE:
        name = "unknown" if api is None else f"{api.name}, which brokers use among themselves"
        raise ProtocolError(f"API key {api_key} ({name}) is not served to clients")
    if api_key == API_VERSIONS or (kip1163_api and apis.PROPOSED_VERSIONS.get(api_key) == api_version):
        return api
    raise ProtocolError(
        f"{api.name} v{api_version} was not offered, only v{api.lowest_version} to v{api.highest_version}"
    )
