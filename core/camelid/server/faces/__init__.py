"""The endpoints, a module per dialect and endpoint: from fields to a job, from events to the reply."""
