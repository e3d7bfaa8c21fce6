"""Sessions: conversations that keep their token ids, and session files."""
