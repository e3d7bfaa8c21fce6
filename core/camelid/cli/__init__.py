"""The `camelid` command line: one module per subcommand, imported on first use."""
