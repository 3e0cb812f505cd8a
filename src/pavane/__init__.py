"""Pavane: a spatial compiler."""
