"""The remote backend: a backend of another process, over ZeroMQ."""
