"""Small tools that know nothing of GPUs: clock, log lines, files, YAML, threads."""
