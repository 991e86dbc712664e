"""Attacks on server-side perturbation, by a curious client unless said otherwise."""
