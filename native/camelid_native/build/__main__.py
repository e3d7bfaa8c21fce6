"""Command `python -m camelid_native.build`: compiles the CPU kernels."""

from __future__ import annotations

from camelid_native.build.library import main

if __name__ == "__main__":
    raise SystemExit(main())
