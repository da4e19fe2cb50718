"""The same experiment across machines, on Flower; the only place that knows flwr."""

from importlib.util import find_spec

from skyfed.errors import BadInputError
from skyfed.files import from_home

if find_spec("flwr") is None:
    raise BadInputError('a fleet needs flwr, which is not installed; allowed: pip install "skyfed[fleet]"')
from_home("~")  # which Flower looks for when it is imported
