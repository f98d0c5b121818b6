"""Credentials for clients, limited to the places of one table: policies, the calls that issue them, and a cache."""
