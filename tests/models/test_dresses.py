"""One network, three exporters: as many nodes after graphopt whichever wrote it, and no more than after any peer."""

import pytest

from benchmarks import results
from benchmarks.dresses import CLOSE, OURS, PEERS, architectures, best_peer, nodes_left, spread

SAMPLE = ["ghostnet_100", "gpt2_dyn", "shufflenet_v2_x1_0", "t5_encoder_dyn", "vit_tiny_patch16_224_dyn"]
"""Chunks, masks, sequences, attention in three dimensions: what the exporters write most differently."""

REST = [name for name in architectures() if name not in SAMPLE]


def recorded():
    found = results.load("dresses")
    assert found is not None, "python -m benchmarks dresses"
    return {row["model"]: row for row in found["data"]}


def check(name):
    row = {"nodes": {key: {OURS: nodes_left(key)} for key in architectures()[name]}}
    assert spread(row) <= CLOSE, row
    for key, counts in recorded()[name]["nodes"].items():
        best = best_peer(counts)
        assert best is not None
        assert row["nodes"][key][OURS] <= best[0], (
            f"{key}: {best[1]} leaves {best[0]}, graphopt {row['nodes'][key][OURS]}"
        )


def test_every_network_is_recorded():
    rows = recorded()
    assert set(rows) == set(architectures())
    assert len(rows) >= 20
    counts = [counts for row in rows.values() for counts in row["nodes"].values()]
    assert sum(one[peer] is not None for one in counts for peer in PEERS) > 0.95 * len(counts) * len(PEERS)
    pairs = [(one[OURS], best[0]) for one in counts if (best := best_peer(one)) is not None]
    assert all(ours <= best for ours, best in pairs)
    # The others tie: plain convolution networks, of which every optimizer leaves the same convolutions and activations.
    assert sum(ours < best for ours, best in pairs) > 0.4 * len(counts)


@pytest.mark.parametrize("name", SAMPLE)
def test_sample_is_one_graph(name):
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", REST)
def test_every_network_is_one_graph(name):
    check(name)
