"""Figures, pages and exports: what leaves for people and autopilots."""
