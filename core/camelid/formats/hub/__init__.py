"""A model hub's files: ids and choices (pure), the fetch, the cache, and failures in our words."""
