"""Faces on a socket: the page's static server. They import their libraries at the door."""
