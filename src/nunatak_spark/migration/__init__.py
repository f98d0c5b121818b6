"""Migrates tables of other catalogs into this one: inventory, plan, shadow, verification and cut-over."""
