"""Runs as one page: its document, sections, the numbers of its charts, and pieces of HTML."""
