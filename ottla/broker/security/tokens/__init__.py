"""Delegation tokens (KIP-48): secrets with which other clients may act as their owner for a while."""
