"""Models from a hub: ids and the choice of files (pure), the type of a file, the fetch, and its failures."""
