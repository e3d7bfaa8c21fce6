"""Adapters that are trained from feedback: their recipe, their scope, and the requests they act on."""
