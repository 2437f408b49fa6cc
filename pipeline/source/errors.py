"""Errors that stop a query of the data source, in one line."""

from __future__ import annotations


class SourceError(Exception):
    """The source can't be read as it was asked to be; names the thing, the likely cause and the next step."""


class OptionError(SourceError):
    """An option is unknown, missing, contradicts another one, or can't be read."""


class DataLoss(SourceError):
    """Records that were to be read are not there any more, and `failOnDataLoss` is on."""
