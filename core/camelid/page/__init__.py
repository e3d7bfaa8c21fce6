"""The Python side of the web page."""
