"""Training on a vehicle, and testing."""
