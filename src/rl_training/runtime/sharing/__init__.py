"""One run for several processes: the ranks, and the files that one of them writes."""
