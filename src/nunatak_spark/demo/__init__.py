"""The demo: a shop's pipeline from raw events to revenue on a live catalog, and a page of plots about it."""
