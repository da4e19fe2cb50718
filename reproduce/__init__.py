"""The reproduction of the paper: collects a sweep's runs into small tables and writes docs/reproduction.md from them.

It uses skyfed as a user would and is not part of the package. Run it from the checkout: `python -m reproduce --help`.
"""
