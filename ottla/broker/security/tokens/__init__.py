"""Delegation tokens (KIP-48): secrets with which others may act as their owner for a while."""
