"""From a prompt and its options to an engine request, and from token ids to text."""
