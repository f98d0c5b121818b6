"""The demo: a shop's pipeline from raw events to revenue on a live catalog, and an HTML page about it."""
