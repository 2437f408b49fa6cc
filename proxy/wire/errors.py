"""The exceptions for bytes that violate the Kafka protocol."""

from __future__ import annotations


class ProtocolError(Exception):
    """Foreign bytes can't be read as the message that they claim to be; the text names what is wrong.

    Parsers of `proxy.wire` succeed or raise this, and nothing else.
    """


class TooManyElements(ProtocolError):
    """A request is whole, but larger than any client may send: it must not be passed on."""
