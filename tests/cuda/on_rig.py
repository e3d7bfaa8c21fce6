"""`python -m tests.cuda.on_rig ARGUMENTS`: the command line of Camelid, with the rig as backend cuda."""

from __future__ import annotations

from tests.cuda.rig import open_rig

from camelid.cli.main import main
from camelid_native.cuda import backend

if __name__ == "__main__":
    backend.open_backend = open_rig
    main()
