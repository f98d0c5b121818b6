"""The source catalogs that tables come from, one file per kind; each kind is listed and frozen in its own way."""
