"""Pushes what the page shows to servers that cannot scrape the node. Imported only where a push is configured."""
