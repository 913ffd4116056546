"""The paper's experiments: each declares its trials; results are saved first, figures drawn from what was saved."""
