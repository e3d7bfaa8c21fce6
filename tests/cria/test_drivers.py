"""Greedy decoding with a KV cache equals running the whole model for every token."""

from random import Random

import pytest

STOP = {3}


@pytest.fixture(scope="module")
def torch():
    """Imported by the tests, not at collection."""
    return pytest.importorskip("torch", reason="no torch: cria is trained and graded elsewhere")


@pytest.fixture(scope="module")
def drivers(torch):
    return pytest.importorskip("cria.drivers")


@pytest.fixture(scope="module")
def small(torch):
    model = pytest.importorskip("cria.model")
    torch.set_num_threads(1)  # small matrices are several times slower on two
    torch.manual_seed(5)
    made = model.Cria(model.Spec(vocab_size=40, hidden_size=32, n_layers=3, head_dim=8, ffn_size=48)).eval()
    with torch.no_grad():
        for weight in made.parameters():
            weight.mul_(6.0 if weight.ndim == 2 else 1.0)
        yield made


def again_for_every_token(small, prompt, torch, drivers):
    ids = list(prompt)
    for _ in range(drivers.MAX_TOKENS):
        ids.append(int(small(torch.tensor([ids]))[0, -1].argmax()))
    return drivers.until(ids[len(prompt) :], STOP)


def test_answers_of_prompts_of_many_lengths(small, torch, drivers):
    rng = Random(1)
    prompts = [[rng.randrange(4, 40) for _ in range(n)] for n in (1, 2, 3, 9, 17, 17, 40)]
    got = drivers.greedy(small, prompts, STOP)
    assert got == [again_for_every_token(small, prompt, torch, drivers) for prompt in prompts]
    assert len({tuple(reply) for reply in got}) > 4


def test_selected_logits_equal_the_full_logits(small, torch):
    ids = torch.randint(0, 40, (3, 11))
    places = torch.tensor([0, 5, 10, 11, 32])
    assert torch.allclose(small(ids, None, places), small(ids).flatten(0, 1)[places], atol=1e-5)


def test_conversations_of_a_batch_are_independent(small, torch):
    ids = torch.randint(0, 40, (1, 12))
    talks = torch.tensor([[1] * 5 + [2] * 7])
    seen = (talks[:, None, :, None] == talks[:, None, None, :]).tril()
    apart = torch.cat((small(ids[:, :5]), small(ids[:, 5:])), 1)
    assert torch.allclose(small(ids, seen), apart, atol=1e-4)
    assert not torch.allclose(small(ids), apart, atol=1e-1)
