"""`python -m tests.perf.mac_rates`: predicted rates of the backend mlx on Macs, for tests/perf/mlx.md.

A decode step is the longer of its bytes over bandwidth and its instructions over the GPU's lanes, and then
launches. A prompt's token is its fused sums, with the instructions beside them. No Mac has been measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from camelid.model.presets import PRESETS
from camelid.model.sizes import bare_model, bytes_at, count_parameters

LANES = 128  # float32 sums of a GPU core each cycle
BANDWIDTH_SHARE = 0.8  # of the chip's figure; mlx-lm's published decode takes 0.67 (M3 Pro) to 0.93 (M3 Max)
DECODE_INSTRUCTIONS = {"q4_1": 5.5, "q8_0": 3.5}  # a weight, from codec_TYPE.metal
PROMPT_INSTRUCTIONS, PROMPT_SHARE = 1.4, 0.6  # a fused sum of a tile (tile.metal); of the lanes that do work
LAUNCHES_A_LAYER, LAUNCH_S = 11, 3e-6  # seven kernels of metal/, two scatters and their indices
KV_BYTES = 512 * 2 * 8 * 128 * 2  # a layer's keys and values in f16, 512 rows


@dataclass(frozen=True, slots=True)
class Mac:
    """A chip: GB/s of its memory, cores of its GPU, and their GHz."""

    name: str
    gbps: float
    cores: int
    ghz: float

    @property
    def lane_ops(self) -> float:
        return self.cores * LANES * self.ghz * 1e9


MACS = (
    Mac("M1", 68, 8, 1.28), Mac("M1 Pro", 200, 16, 1.30), Mac("M1 Max", 400, 32, 1.30),
    Mac("M1 Ultra", 800, 64, 1.30),
    Mac("M2", 100, 10, 1.40), Mac("M2 Pro", 200, 19, 1.40), Mac("M2 Max", 400, 38, 1.40),
    Mac("M2 Ultra", 800, 76, 1.40),
    Mac("M3", 100, 10, 1.38), Mac("M3 Pro", 150, 18, 1.38), Mac("M3 Max", 400, 40, 1.38),
    Mac("M3 Ultra", 819, 80, 1.38),
    Mac("M4", 120, 10, 1.47), Mac("M4 Pro", 273, 20, 1.58), Mac("M4 Max", 546, 40, 1.58),
    Mac("M5", 153, 10, 1.62),
)  # fmt: skip


def decode_tps(mac: Mac, weight_type: str) -> float:
    """Tokens a second of one sequence of an 8B llama at 512 rows."""
    spec = PRESETS["8b"]
    weights = list(bare_model(spec, weight_type).weights.values())
    read = [weight for weight in weights if weight.name != "token_embd"]
    n_bytes = bytes_at(read, weight_type) + spec.n_layers * KV_BYTES
    instructions = count_parameters(read) * DECODE_INSTRUCTIONS[weight_type]
    seconds = max(n_bytes / (mac.gbps * 1e9 * BANDWIDTH_SHARE), instructions / mac.lane_ops)
    return 1 / (seconds + spec.n_layers * LAUNCHES_A_LAYER * LAUNCH_S)


def prompt_tps(mac: Mac) -> float:
    """Tokens a second of a prompt, in tiles of 32 rows."""
    weights = bare_model(PRESETS["8b"], "q4_1").weights.values()
    n_sums = count_parameters([weight for weight in weights if weight.name not in ("token_embd", "output")])
    return mac.lane_ops * PROMPT_SHARE / (n_sums * PROMPT_INSTRUCTIONS)


def main() -> None:
    print("| chip | GB/s | decode, 4 bits | decode, 8 bits | prompt |\n|---|---|---|---|---|")
    for mac in MACS:
        four, eight = decode_tps(mac, "q4_1"), decode_tps(mac, "q8_0")
        print(f"| {mac.name} | {mac.gbps:g} | {four:.1f} | {eight:.1f} | {prompt_tps(mac):.0f} |")


if __name__ == "__main__":
    main()
