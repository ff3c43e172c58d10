"""Recorded results for people: tables for the terminal, pages for `profiles/`."""
