"""Multi-party secure aggregation: train together without showing each other your data."""

__version__ = "0.1.0"
