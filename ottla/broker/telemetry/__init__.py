"""Figures and levels of logging, as people and their tools ask for them."""
