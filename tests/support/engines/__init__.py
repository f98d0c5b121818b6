"""Query engines that tests start from packages, each in a process of its own; none gets a key to a store."""
