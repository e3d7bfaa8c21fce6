"""Tool calls and reasoning, parsed from generated text as it arrives; one table row per model family."""
