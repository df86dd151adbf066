"""Decode the memory of transceivers: one file for each memory map."""
