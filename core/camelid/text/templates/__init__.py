"""Chat templates: the Jinja that models publish, rendered to text that knows who wrote it."""
