"""What a policy permits, decided apart from the code that makes policies and written from the providers' documents."""
