"""Moving tables of other catalogs into this one: what there is, how each gets over, and proof that nothing changed."""
