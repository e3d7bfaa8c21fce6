"""Models from a hub: ids and the choice of files (pure), the fetch, and its failures."""
