"""One SQLite file per user space and base model: feedback, vectors, requests, versions, reports."""
