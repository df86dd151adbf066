"""Transceivers by their own memory: one file for each memory map, which decodes bytes, and one that reads in order."""
