PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help setup quickstart test lint bench bench-peer results-images results-tables clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | awk -F'\t' '{printf "  make %-12s %s\n", $$1, $$2}'

setup: $(READY)  ## create .venv with everything the project needs

$(READY): pyproject.toml constraints.txt
	@echo "Setting up .venv (a minute or two, once) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

quickstart: $(READY)  ## train a tiny T5 with and without CLUE, offline, and compare how far their outputs can be trusted
	$(BIN)/python train.py configs/quickstart/t5_phrases.yaml
	$(BIN)/python eval_uncertainty.py out/quickstart/clue --config configs/quickstart/t5_phrases.yaml \
		--compare out/quickstart/ce --report_dir out/quickstart/uncertainty

test: $(READY)  ## run all tests
	$(BIN)/python -m pytest

lint: $(READY)  ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(READY)  ## run the speed and memory benchmarks
	$(BIN)/python benchmarks/loss.py
	$(BIN)/python benchmarks/train_step.py
	$(BIN)/python benchmarks/metrics.py
	$(BIN)/python benchmarks/mc_dropout.py
	$(BIN)/python benchmarks/mc_dropout.py --task tabular
	$(BIN)/python benchmarks/abstention.py
	$(BIN)/python benchmarks/pipeline.py

bench-peer: $(READY)  ## evaluate beside LM-Polygraph, in an environment of its own (a quarter of an hour and some gigabytes)
	$(BIN)/python benchmarks/evaluate.py --peer_python auto --peer_folder out/lm-polygraph --examples 48 --rounds 1

CIFAR10 ?= cifar10.npz
SMALL = --model_preset resnet8 --bf16 false --dataloader_num_workers 0 --eval_strategy no --save_strategy no \
	--disable_tqdm true --seeds 3

results-images: $(READY)  ## compare all methods on CIFAR-10 (CIFAR10=file.npz): under an hour, resumable
	$(BIN)/clue-hf compare configs/resnet18_cifar10.yaml $(SMALL) --train_file $(CIFAR10) --max_train_samples 5000 \
		--num_train_epochs 15 --plain_epochs 10 --methods ce,clue,ce_pe,euat,cals,focal,label_smoothing \
		clue:mc_samples=1,clue:mc_samples=10,clue:mc_samples=20 isotonic,temperature,platt,beta,ensemble,deup \
		--corruption gaussian_noise --severity 1,3,5 --output_dir out/cifar10
	$(BIN)/clue-hf compare configs/binary_cat_cifar10.yaml $(SMALL) --train_file $(CIFAR10) --num_train_epochs 30 \
		--plain_epochs 20 --methods ce,clue,ce_pe,euat,cals,isotonic,ensemble,deup --output_dir out/cifar10_binary

BOSTON ?= boston.csv
TAXI ?= nyc_taxi.csv.gz

results-tables: $(READY)  ## compare all methods on Boston Housing and taxi fares (BOSTON=, TAXI=): half an hour, resumable
	$(BIN)/clue-hf compare configs/boston.yaml --train_file $(BOSTON) --methods mse,clue,clue:clue_gradient=uncertainty \
		clue:alpha=0.5,clue:alpha=0.1,mse_pe,nll:plain_epochs=0,clue:mc_samples=5,clue:mc_samples=10,clue:mc_samples=50 \
		quantile,ensemble,deup --seeds 5 --output_dir out/boston --disable_tqdm true
	$(BIN)/clue-hf compare configs/nyc_taxi.yaml --train_file $(TAXI) --config_overrides hidden_size=64,num_blocks=2 \
		--learning_rate 0.01 --num_train_epochs 15 --plain_epochs 10 --methods mse,clue,clue:clue_gradient=uncertainty \
		clue:alpha=0.5,mse_pe,nll:plain_epochs=0,clue:mc_samples=5,clue:mc_samples=10,clue:mc_samples=50 \
		quantile,ensemble,deup --seeds 3 --output_dir out/nyc_taxi --disable_tqdm true

clean:  ## remove everything that was built or written by runs
	rm -rf .venv build dist out runs *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
