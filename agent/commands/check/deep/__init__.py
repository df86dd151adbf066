"""The active test of `coldplate check --deep`: what measures, in a process of its own, and who watches over it."""
