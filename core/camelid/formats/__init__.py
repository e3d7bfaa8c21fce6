"""File formats of models. Parsers do no I/O: they request byte ranges, and a driver reads them."""
