"""Tool calls and reasoning found in generated text while it comes, a row a family of models."""
