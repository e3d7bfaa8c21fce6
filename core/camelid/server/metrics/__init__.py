"""Counts and times of one server, kept in plain lists, and their names in Prometheus and in JSON."""
