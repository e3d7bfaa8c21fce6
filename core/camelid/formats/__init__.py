"""File formats. Parsers do no I/O: they ask for byte ranges, and a driver answers."""
