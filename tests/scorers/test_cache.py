import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import DynamicCache, T5Config

from clue_hf.scorers.cache import ROOM, RoomyLayer, roomy_cache


STEP = st.one_of(
    st.integers(1, 2 * ROOM),  # so many tokens more
    st.lists(st.integers(0, 2), min_size=1, max_size=5),  # these rows, modulo those that there are
)


@settings(deadline=None, max_examples=60)
@given(st.lists(STEP, max_size=12))
def test_a_layer_with_room_holds_what_a_plain_one_holds(steps):
    config = T5Config(num_layers=1, num_decoder_layers=1)
    caches = roomy_cache(config), DynamicCache(config=config)
    assert isinstance(caches[0].layers[0], RoomyLayer)
    rows = 3
    for step in (1, *steps):
        if isinstance(step, int):
            states = torch.randn(2, rows, 2, step, 4)
            for cache in caches:
                cache.update(*states, layer_idx=0)
        else:
            chosen = torch.tensor(step) % rows
            rows = len(chosen)
            for cache in caches:
                cache.reorder_cache(chosen)
        mine, plain = (cache.layers[0] for cache in caches)
        assert torch.equal(mine.keys, plain.keys)
        assert torch.equal(mine.values, plain.values)
        assert caches[0].get_seq_length() == caches[1].get_seq_length()


def test_a_token_is_written_without_a_copy_of_the_others():
    cache = roomy_cache(T5Config(num_layers=1, num_decoder_layers=1))
    places = []
    for _ in range(ROOM):
        keys, _ = cache.update(*torch.randn(2, 3, 2, 1, 4), layer_idx=0)
        places.append(keys.data_ptr())
    assert len(set(places)) == 1
