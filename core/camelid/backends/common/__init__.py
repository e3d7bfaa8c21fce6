"""Parts shared by several backends."""
