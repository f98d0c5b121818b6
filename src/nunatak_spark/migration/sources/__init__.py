"""The kinds of catalogs that tables come from, a file each; every kind is asked and frozen in its own way."""
