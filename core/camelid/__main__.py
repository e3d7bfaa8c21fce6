"""`python -m camelid` runs the `camelid` command."""

from __future__ import annotations

from camelid.cli.main import main

if __name__ == "__main__":
    main()
