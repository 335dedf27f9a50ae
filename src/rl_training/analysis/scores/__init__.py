"""The scores of groups: from numbers, files and runs, and what makes a comparison of them unfair."""
