"""
Training steps of one trainer in an environment of its own: a part of `peers.py`.

`steps.py FOLDER TRAINER` loads the model and the batch of the folder and answers requests, see `measure.serve`: so
many steps, with their losses, seconds and, if asked for, peak memory.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer


sys.path.append(str(Path(__file__).resolve().parents[1]))  # last: a file there has the name of a package
from measure import peak_above, serve


def load_model(folder: Path) -> Any:
    kind = AutoModelForSeq2SeqLM if AutoConfig.from_pretrained(folder).is_encoder_decoder else AutoModelForCausalLM
    model = kind.from_pretrained(folder, dtype=torch.float32)
    for weight in model.parameters():
        weight.data = weight.data.clone()  # out of the file: its pages would count when they are first read
    return model


def make_trainer(name: str, model: Any, folder: Path, output: str) -> Any:
    """The trainer of a library, with the same settings everywhere."""
    settings = {"use_cpu": True, "report_to": "none", "learning_rate": 5e-5, "disable_tqdm": True}
    if name == "Seq2SeqTrainer":
        from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments

        return Seq2SeqTrainer(model=model, args=Seq2SeqTrainingArguments(output, **settings))
    if name == "Trainer":
        from transformers import Trainer, TrainingArguments

        return Trainer(model=model, args=TrainingArguments(output, **settings))
    if name == "SFTTrainer":
        from datasets import Dataset
        from trl import SFTConfig, SFTTrainer

        # both are on by default
        args = SFTConfig(output, bf16=False, gradient_checkpointing=False, **settings)
        rows = Dataset.from_list([{"input_ids": [3, 4, 5]}])  # it wants data, though the batch comes from elsewhere
        tokenizer = AutoTokenizer.from_pretrained(folder)
        return SFTTrainer(model=model, args=args, train_dataset=rows, processing_class=tokenizer)
    from clue_hf import CLUEConfig, CLUETrainer

    objective = name.removeprefix("CLUETrainer ")
    return CLUETrainer(model=model, args=CLUEConfig(output, objective=objective, **settings))


def make_step(trainer: Any, batch: dict[str, torch.Tensor]) -> Callable[[], float]:
    """One optimizer step, as the trainer's loop runs it; gives the loss."""
    trainer.create_optimizer()
    prepared, trainer.optimizer = trainer.accelerator.prepare(trainer.model, trainer.optimizer)

    def step() -> float:
        copied = {name: tensor.clone() for name, tensor in batch.items()}
        [inputs], items = trainer.get_batch_samples(iter([copied]), 1, trainer.args.device)
        trainer.current_gradient_accumulation_steps = 1
        loss = trainer.training_step(prepared, inputs, items)
        trainer.optimizer.step()
        prepared.zero_grad()
        return float(loss)

    return step


def main() -> None:
    folder, name = Path(sys.argv[1]), sys.argv[2]
    batch = torch.load(folder / "batch.pt", weights_only=True)
    with tempfile.TemporaryDirectory() as output:
        step = make_step(make_trainer(name, load_model(folder), folder, output), batch)

        def answer(request: dict) -> dict:
            losses: list[float] = []

            def run() -> None:
                losses.extend(step() for _ in range(request.get("steps", 0)))

            start, work = time.perf_counter(), time.process_time()
            peak = peak_above(run) if request["memory"] else run()
            seconds, processor = time.perf_counter() - start, time.process_time() - work
            return {"losses": losses, "seconds": seconds, "processor": processor, "peak": peak}

        serve(answer)


if __name__ == "__main__":
    main()
