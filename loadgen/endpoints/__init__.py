"""Adapters that turn a planned request into bytes for one kind of endpoint, and its answer into instants and counts."""
