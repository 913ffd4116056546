"""Training on rows that are divided among workers, without any particular cluster."""
