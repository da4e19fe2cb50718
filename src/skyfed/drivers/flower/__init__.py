"""The same experiment across machines, on Flower; the only place that knows flwr."""
