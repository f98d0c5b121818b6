"""The maintenance jobs: what each job type does to one table, and the checks that keep it from doing harm."""
