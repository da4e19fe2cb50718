"""Configs that come with the package; the first line of each says what it is."""
