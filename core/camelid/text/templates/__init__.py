"""Chat templates: the Jinja subset that models publish, rendered to spans of trusted and untrusted text."""
