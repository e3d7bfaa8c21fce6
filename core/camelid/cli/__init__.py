"""The `camelid` command: one file a verb, imported when the verb is used."""
