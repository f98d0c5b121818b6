"""Remote signing: clients without credentials have each request to S3 checked and signed by the catalog."""
