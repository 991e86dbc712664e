"""The same task under every scheme: what it costs beside plain FedAvg, and what the server learns of it."""

from __future__ import annotations

import veilsum

SCHEMES = ("plain", "mpc", "ampc", "masked")


def main() -> None:
    print(f"{'scheme':8} {'accuracy':>8} {'up':>6} {'down':>6}  the server learned")
    for scheme in SCHEMES:
        config = veilsum.FederationConfig(scheme=scheme, task="digits", rounds=2, seed=7)
        result = veilsum.simulate(config)
        figures = result.figures()
        print(
            f"{scheme:8} {result.metrics['accuracy']:8.4f} {figures['bytes_up_over_plain']:6.2f} "
            f"{figures['bytes_down_over_plain']:6.2f}  {figures['saw']['server']}"
        )


if __name__ == "__main__":
    main()
