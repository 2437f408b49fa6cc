"""The one exception for bytes that are not what the Kafka protocol says."""

from __future__ import annotations


class ProtocolError(Exception):
    """Foreign bytes can't be read as the message that they claim to be; the text names what is wrong.

    Parsers of `proxy.wire` succeed or raise this, and nothing else.
    """


class TooManyElements(ProtocolError):
    """A request is whole, and larger than any client may send: it is for nobody to pass on."""
