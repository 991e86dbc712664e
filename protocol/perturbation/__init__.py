"""Server-side perturbation: clients compute on noisy parameters, the server recovers exact gradients."""
