"""Small tools that know nothing about GPUs: clock, log lines, files, YAML, threads."""
