import numpy as np
import pytest
from helpers import make_data, make_model, make_trainer

from clue_hf.evaluation import token_statistics


def test_the_summary_is_that_of_the_evaluation(kind, tmp_path):
    trainer = make_trainer(make_model(kind), tmp_path, evaluation=make_data(kind, 7), per_device_eval_batch_size=3)
    found = token_statistics(trainer, trainer.eval_dataset).summary()
    metrics = trainer.evaluate()
    for name in ("error", "uncertainty"):
        assert found[name] == pytest.approx(metrics[f"eval_{name}"], rel=1e-5)
    assert found["gap"] == pytest.approx(found["error"] - found["uncertainty"])
    assert found["tokens"] == sum(token != -100 for row in make_data(kind, 7)["labels"] for token in row)


def test_confidence_is_the_probability_of_the_best_token(kind, tmp_path):
    statistics = token_statistics(make_trainer(make_model(kind), tmp_path), make_data(kind, 4))
    right = statistics.correct == 1
    np.testing.assert_allclose(statistics.confidence[right], np.exp(-statistics.error[right]), rtol=1e-4)
    assert (statistics.confidence[~right] > np.exp(-statistics.error[~right])).all()
