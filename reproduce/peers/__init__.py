"""The same small job in other packages: scripts that run alone, in an environment that has these packages."""
