"""The reproduction of the paper: collects a sweep's runs into small tables, fills in docs/reproduction/ from them.

It uses skyfed as a user would and is not part of the package. Run it from the checkout: `python -m reproduce --help`.
"""
