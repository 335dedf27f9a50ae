"""Data collected from behaviour: what acts, its episodes in order, and mixtures of them."""
