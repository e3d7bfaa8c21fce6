"""A model hub: ids and choices (pure), the fetch, and its failures."""
