"""The version of Camelid."""

__version__ = "0.1.0"
