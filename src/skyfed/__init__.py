"""Online federated learning on aerial vehicles."""

__version__ = "0.1.0"
