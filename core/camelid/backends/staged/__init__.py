"""The staged backend: several devices as one backend, each with its own layers."""
