"""Conversations that go on: their ids, their files."""
