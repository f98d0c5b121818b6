"""The maintenance jobs: what each type does to one table, and what keeps it from doing harm."""
