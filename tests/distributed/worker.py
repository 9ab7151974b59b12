"""Cases that run in one process, or in every process of a group, where process 0 writes what it found as JSON."""

import json
from pathlib import Path

import datasets
import torch
from classifiers import NEVER, class_trainer, image_data, make_frozen_resnet, make_vit
from helpers import log_lines, make_batch, make_data, make_model, make_trainer
from reliability.kinds import KINDS, Watch, make_kind, weights_of
from safetensors.torch import save_file
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

from clue_hf import UncertaintyEvaluator
from clue_hf.data.embedded.phrases import phrase_rows
from clue_hf.errors import UserError
from clue_hf.objectives import CLUE
from clue_hf.processes import share_work
from clue_hf.tasks import TextTask
from clue_hf.training.checkpoints import checkpoints, damage
from clue_hf.training.collect import class_log_probabilities


#: The gradients of the first step of each layout, by its name.
GRADIENTS = {}


def train(kind, folder, world, model=None, name=None, **settings):
    """Two steps over 16 rows, as 16/world rows a step and process in some layout; loss, gradient norm and error."""
    trainer = make_trainer(model or make_model(kind), folder, make_data(kind), alpha=0.7, **settings)
    return watched(trainer, name)


def watched(trainer, name=None):
    """The lines of a training; with a name, its first gradients are kept."""
    watch = Watch(trainer)
    trainer.train()
    if name is not None:
        GRADIENTS[name] = watch.gradients[0]
    names = ("loss", "grad_norm", "error", "mean_token_accuracy", "num_tokens")
    return [[line[name] for name in names if name in line] for line in log_lines(trainer)]


def layouts(folder, world):
    found = {}
    for kind in ("t5", "gpt2"):
        for level in ("token", "sequence"):
            for fused in ("on", "off"):
                for batch in (16, 8, 4, 1):
                    accumulation = 16 // batch // world
                    if accumulation:
                        name = f"{kind} {level} {fused} {batch}x{accumulation}"
                        found[name] = train(
                            kind, folder, world, name=name, level=level, fused_head=fused,
                            per_device_train_batch_size=batch, gradient_accumulation_steps=accumulation,
                        )  # fmt: skip
    return found


def objectives(folder, world):
    """Objectives of further row statistics: two steps of 16 rows in one layout."""
    found = {}
    for objective in ("brier", "maxsup", "label_smoothing", "eaft", "dft"):
        settings = {"objective": objective, "fused_head": "on", "per_device_train_batch_size": 4}
        found[objective] = train("t5", folder, world, gradient_accumulation_steps=4 // world, **settings)
    return found


def uncertainty(folder, world):
    """A report with samples and dropout, alone and from within a trainer; 29 rows make 10 batches of 3 at most."""
    name = Path(__file__).parents[1] / "fixtures/lm_polygraph/model"
    model = AutoModelForSeq2SeqLM.from_pretrained(name, dtype="float32", dropout_rate=0.1)
    tokenizer = AutoTokenizer.from_pretrained(name)
    rows = phrase_rows("test", 29)
    settings = {"max_new_tokens": 16, "num_samples": 2, "batch_size": 3, "resamples": 20}
    report = UncertaintyEvaluator(model, tokenizer, **settings).evaluate(rows, folder=folder / "report")
    dropped = UncertaintyEvaluator(model, tokenizer, ["msp"], mc_samples=3, **settings).evaluate(rows)
    trainer = make_trainer(
        model, folder, evaluation=datasets.Dataset.from_list(rows), processing_class=tokenizer,
        evaluator=UncertaintyEvaluator(scorers=["perplexity"], **settings),
    )  # fmt: skip
    logged = trainer.evaluate()
    return {
        "metrics": report.metrics,
        "rows": [(example["row"], example["output"], example["scores"]) for example in report.examples],
        "dropped": dropped.metrics["scorers"]["msp"]["prr"]["value"],
        "logged": logged["eval_prr_perplexity"],
    }


def machines(folder, world):
    """Two steps with a checkpoint of each, and a report."""
    settings = {"per_device_train_batch_size": 8 // world, "save_strategy": "steps", "save_steps": 1}
    lines = train("t5", folder / "run", world, fused_head="on", name="first", **settings)
    name = Path(__file__).parents[1] / "fixtures/lm_polygraph/model"
    model = AutoModelForSeq2SeqLM.from_pretrained(name, dtype="float32")
    settings = {"max_new_tokens": 8, "batch_size": 2, "resamples": 20}
    evaluator = UncertaintyEvaluator(model, AutoTokenizer.from_pretrained(name), ["msp", "perplexity"], **settings)
    report = evaluator.evaluate(phrase_rows("test", 7), folder=folder / "report")
    kept = checkpoints(folder / "run")
    return {
        "lines": lines,
        "checkpoints": {path.name: [damage(path), sorted(file.name for file in path.iterdir())] for path in kept},
        "metrics": report.metrics,
        "rows": [(example["row"], example["output"], example["scores"]) for example in report.examples],
    }


def shared_work(folder, world):
    """Each process has one of the first items, since they wait for each other; then all raise, or one does."""
    rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0

    def work(item):
        if world > 1 and item < world:
            torch.distributed.barrier()
        return [item, rank]

    def fail(item):
        work(item)
        if rank == world - 1:
            raise UserError(f"item {item} of {world} cannot be used")
        return item

    found = list(share_work(range(20), work))
    try:
        failed = list(share_work(range(world), fail))
    except UserError as error:
        failed = str(error)
    return {"items": sorted(item for item, _ in found), "ranks": sorted({rank for _, rank in found}), "failed": failed}


def evaluation(folder, world):
    """Seven rows do not divide evenly: none may be counted twice."""
    trainer = make_trainer(
        make_model("t5"), folder, per_device_eval_batch_size=2, predict_with_generate=True, max_target_length=4,
        compute_metrics=lambda prediction: {"rows": len(prediction.label_ids)},
    )  # fmt: skip
    metrics = trainer.predict(make_data("t5", 7)).metrics
    return {name: value for name, value in metrics.items() if not name.endswith(("second", "runtime", "time"))}


def untied(folder, world):
    """An output weight of its own is not seen by DDP's search for unused parameters."""
    model = make_model("llama", tie_word_embeddings=False)
    return train("llama", folder, world, model, per_device_train_batch_size=8 // world, gradient_accumulation_steps=2)


def lora(folder, world):
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    model = get_peft_model(make_model("t5"), LoraConfig(task_type="SEQ_2_SEQ_LM", r=2, target_modules=["q", "v"]))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)
    return train("t5", folder, world, model, fused_head="on", per_device_train_batch_size=16 // world)


def sharded(folder, world):
    """Models under torch's fully_shard: the losses of two passes over all rows, and the gradients of their sum."""
    if world > 1 and not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo")
    tied, untied = make_model("t5"), make_model("llama", tie_word_embeddings=False)
    return {
        "t5": run_sharded("t5", tied, [*tied.encoder.block, *tied.decoder.block], world),
        "t5 at once resharded": run_sharded("t5", make_model("t5"), [], world, reshard_after_forward=True),
        "head of its own": run_sharded("llama", untied, [*untied.model.layers, untied.lm_head], world),
        "adapter on the head": run_sharded("llama", adapted_head(), [], world, reshard_after_forward=True),
    }


def adapted_head():
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    config = LoraConfig(r=2, target_modules=["q_proj", "lm_head"], init_lora_weights=False)
    return get_peft_model(make_model("llama", tie_word_embeddings=False), config)


def run_sharded(kind, model, parts, world, **options):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    batch, objective, rank = make_batch(kind, 8), CLUE(0.7), 0
    if world > 1:
        mesh, rank = init_device_mesh("cpu", (world,)), torch.distributed.get_rank()
        for part in parts:
            fully_shard(part, mesh=mesh)
        fully_shard(model, mesh=mesh, **options)
    task = TextTask(model)
    counts = task.count([batch])
    own = {name: value[rank::world] for name, value in batch.items()}
    losses = []
    for _ in range(2):
        loss, _ = task.predict(model, own, objective).reduce(objective, counts)
        (loss * world).backward()  # fully_shard averages over the processes
        losses.append(loss.detach())
    gradients = {}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            whole = parameter.grad.full_tensor() if world > 1 else parameter.grad
            gradients[name] = [whole.norm().item(), whole.flatten()[0].item()]
    described = task.describe(model, own)[..., :2].nansum()
    totals = torch.stack([*losses, described])
    if world > 1:
        torch.distributed.all_reduce(totals)
    *losses, described = totals.tolist()
    return {"losses": losses, "described": described, "fused": all(task._fusable.values()), "gradients": gradients}


CLASSIFIERS = {"vit": make_vit, "resnet": make_frozen_resnet}


def train_classifier(kind, rate, folder, name=None, **settings):
    trainer = class_trainer(CLASSIFIERS[kind](rate), folder, image_data(32), image_data(7, seed=5), **settings)
    return trainer, watched(trainer, name)


def class_layouts(folder, world):
    """Two steps of 16 images, with one pass and with several that are all the same."""
    found = {}
    for kind in CLASSIFIERS:
        for passes, rate in ((0, 0.0), (1, NEVER), (5, NEVER)):
            for batch in (16, 8, 4, 1):
                accumulation = 16 // batch // world
                if accumulation:
                    name = f"{kind} {passes} {batch}x{accumulation}"
                    _, found[name] = train_classifier(
                        kind, rate, folder, name, alpha=0.7, mc_samples=passes, per_device_train_batch_size=batch,
                        gradient_accumulation_steps=accumulation,
                    )  # fmt: skip
    return found


def class_evaluation(folder, world):
    """Seven rows in batches of two: each counted once, in the order of the data."""
    trainer = class_trainer(make_vit(), folder, evaluation=image_data(7), per_device_eval_batch_size=2)
    predicted = trainer.predict(trainer.eval_dataset)
    found = class_log_probabilities(trainer, trainer.eval_dataset)
    return {
        "metrics": {
            name: predicted.metrics[f"test_{name}"] for name in ("loss", "error", "uncertainty", "calibration")
        },
        "labels": predicted.label_ids.tolist(),
        "logits": predicted.predictions.tolist(),
        "class labels": found.labels.tolist(),
        "log probabilities": found.log_probabilities.tolist(),
    }


def class_objectives(folder, world):
    """Objectives that look at all the data after each epoch; two steps an epoch."""
    found = {}
    for objective in ("euat", "cals"):
        trainer, lines = train_classifier(
            "vit", 0.0, folder, objective=objective, cals_margin=3.0, max_steps=5, optim="sgd", learning_rate=0.01,
            per_device_train_batch_size=16 // world,
        )  # fmt: skip
        state = {name: value.tolist() for name, value in trainer.training_objective.state_dict().items()}
        found[objective] = {"lines": lines, "state": state}
    return found


def number_layouts(folder, world):
    """Two steps of 16 rows of a table."""
    found = {}
    for batch in (16, 8, 4, 1):
        accumulation = 16 // batch // world
        if accumulation:
            trainer = make_kind(
                "number", folder, dropout=False, rows=32, alpha=0.7, per_device_train_batch_size=batch,
                gradient_accumulation_steps=accumulation,
            )  # fmt: skip
            name = f"{batch}x{accumulation}"
            found[name] = watched(trainer, name)
    return found


def number_evaluation(folder, world):
    """Seven rows in batches of two: each counted once, in the order of the data."""
    trainer = make_kind("number", folder, dropout=False, per_device_eval_batch_size=2)
    predicted = trainer.predict(trainer.eval_dataset)
    names = ("loss", "error", "uncertainty", "calibration")
    return {
        "metrics": {name: predicted.metrics[f"test_{name}"] for name in names},
        "labels": predicted.label_ids.flatten().tolist(),
        "predictions": predicted.predictions.tolist(),
    }


def saving(folder, world):
    """Checkpoints of all processes: the newest and the best are kept, and what is trained from one ends the same."""
    found = {}
    for kind in KINDS:
        settings = {
            "max_steps": 4, "save_strategy": "steps", "save_steps": 1, "eval_strategy": "steps", "eval_steps": 1,
            "load_best_model_at_end": True, "metric_for_best_model": "error", "greater_is_better": True,
            "save_total_limit": 2, "learning_rate": 1e-3, "per_device_train_batch_size": 8 // world,
        }  # fmt: skip
        place = folder / kind
        first = make_kind(kind, place, **settings)
        first.train()
        kept = checkpoints(place)
        found[kind] = {
            "kept": [path.name for path in kept],
            "best": Path(first.state.best_model_checkpoint).name,
            "damage": [damage(path) for path in kept],
            "temporary": [str(path) for path in place.rglob("*.tmp")],
        }
        settings = {**settings, "load_best_model_at_end": False, "save_total_limit": None}
        whole = make_kind(kind, folder / f"{kind} whole", **settings)
        whole.train()
        again = make_kind(kind, folder / f"{kind} again", seed=5, **settings)
        again.train(resume_from_checkpoint=str(folder / f"{kind} whole" / "checkpoint-2"))
        weights = weights_of(again)
        found[kind]["same"] = all(torch.equal(value, weights[name]) for name, value in weights_of(whole).items())
    return found


CASES = (layouts, objectives, evaluation, uncertainty, machines, shared_work, untied, lora, sharded, class_layouts,
         class_evaluation, class_objectives, number_layouts, number_evaluation)  # fmt: skip


def run(names, folder, world):
    """The cases of these names one after another, because starting processes takes most of the time."""
    for name in names:
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        GRADIENTS.clear()
        torch.manual_seed(0)
        found = globals()[name](place, world)
        if not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0:
            (place / "found.json").write_text(json.dumps(found))
            save_file(GRADIENTS, place / "gradients.safetensors")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    return 0
