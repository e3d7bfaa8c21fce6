"""The built page: in a checkout, or from the distribution camelid-web."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from camelid.errors import BackendError

PACKAGE = "camelid_web"
WAYS = "pip install camelid-web; in a checkout, run `make web` (or `python web/build.py`)"


def find_site() -> Path:
    """The folder of the built page. Raises BackendError if neither place has one."""
    places = [Path(__file__).parents[3] / "build" / "web", *installed_site()]
    for place in places:
        if (place / "index.html").is_file():
            return place
    raise BackendError(f"no built page at {places[0]} and no package {PACKAGE}: {WAYS}", backend="server")


def installed_site() -> list[Path]:
    """The folder of the distribution camelid-web, if that is installed."""
    try:
        site = files(PACKAGE) / "site"
    except ModuleNotFoundError:
        return []
    return [site] if isinstance(site, Path) else []  # not from a zip: the server reads files
