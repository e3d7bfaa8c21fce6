"""Client libraries of other projects, unchanged, on a real server: `make clients` installs and runs them."""
