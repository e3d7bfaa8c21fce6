"""The fields of each endpoint's request as tables: kind, request option, refusal."""
