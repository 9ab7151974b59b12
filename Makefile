PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help setup quickstart test test-all test-versions wheel-test lint docs docs-serve examples bench bench-packing bench-upstream bench-peer results-multi30k results-tatoeba results-xsum results-smollm2 \
	results-opus-mt results-opus-mt-tuned results-opus-mt-alphas results-multi30k-calibrated results-tatoeba-learned results-flan-t5 results-conformal \
	results-images results-tables clean

help:  ## show this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort | awk -F'\t' '{printf "  make %-18s %s\n", $$1, $$2}'

setup: $(READY)  ## create .venv with everything the project needs

$(READY): pyproject.toml constraints.txt
	@echo "Setting up .venv (a minute or two, once) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

quickstart: $(READY)  ## train a tiny T5 with and without CLUE, offline, compare how far their outputs can be trusted, calibrate
	$(BIN)/clue-hf quickstart

test: $(READY)  ## run all tests
	$(BIN)/python -m pytest

test-all: $(READY)  ## run all tests, the slow ones too
	$(BIN)/python -m pytest -m 'slow or not slow'

# Trainer, scorers, pipeline, push and commands, where other releases of the dependencies may break something. torch
# is the one of constraints.txt in both: only that release has a CPU build everywhere.
VERSION_TESTS = tests/test_package.py tests/test_functional.py tests/test_trainer.py tests/scorers/test_scorers.py \
	tests/deploy/test_pipeline.py tests/hub/test_push.py tests/cli/test_parser.py tests/cli/test_train.py \
	tests/cli/test_predict.py --deselect tests/test_trainer.py::test_torch_compile
VERSION_TOOLS = pytest pytest-xdist hypothesis tensorboard

test-versions: .venv-floors/.ready .venv-newest/.ready  ## test with the lowest and the newest allowed dependencies
	.venv-floors/bin/python -m pytest $(VERSION_TESTS)
	.venv-newest/bin/python -m pytest $(VERSION_TESTS)

.venv-floors/.ready .venv-newest/.ready: .venv-%/.ready: $(READY) pyproject.toml constraints.txt tests/versions/floors.py
	rm -rf .venv-$*
	$(PYTHON) -m venv .venv-$*
	$(BIN)/python tests/versions/floors.py $* constraints.txt > .venv-$*/constraints.txt
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check --constraint .venv-$*/constraints.txt torch
	.venv-$*/bin/python -m pip install --quiet --disable-pip-version-check --constraint .venv-$*/constraints.txt \
		--editable '.[plots,demo]' $(VERSION_TOOLS)
	touch $@

wheel-test: $(READY)  ## build the package, install it into an empty environment, and run the quickstart from there
	.ci/wheel

lint: $(READY)  ## check style, types, layers and declared dependencies
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry .

.venv/.docs: $(READY)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,docs]'
	@touch $@

docs docs-serve: export NO_MKDOCS_2_WARNING = 1

docs: .venv/.docs  ## build the site of the docs in site/; a warning or a broken link is an error
	$(BIN)/mkdocs build --strict

docs-serve: .venv/.docs  ## show it on http://127.0.0.1:8000
	$(BIN)/mkdocs serve

examples: $(READY)  ## run the scripts and notebooks of examples/, offline, and keep the outputs of the notebooks
	$(BIN)/python examples/run_all.py

bench: $(READY)  ## run the benchmarks: every ratio with its bar in one table, and what has changed
	$(BIN)/python benchmarks/summary.py --run
	-@git --no-pager diff --unified=0 -- benchmarks/results/README.md

bench-packing: $(READY)  ## padding, grouping and packing of short texts (TATOEBA=file)
	$(BIN)/python benchmarks/packing.py --data $(TATOEBA)

bench-upstream: $(READY)  ## transformers' own tests of its trainers with ours in their place: UPSTREAM=<checkout of transformers>
	$(BIN)/python benchmarks/upstream_tests.py --checkout $(UPSTREAM) --stand_ins

bench-peer: $(READY)  ## evaluate beside LM-Polygraph, in an environment of its own (a quarter of an hour and some gigabytes)
	$(BIN)/python benchmarks/evaluate.py --peer_python auto --peer_folder out/lm-polygraph --examples 48 --rounds 1

# Comparisons, each resumable: stop one at any time, and start it again to go on. Started twice, it uses two cores.
results-%: export OMP_NUM_THREADS ?= 1
SEEDS ?= 3
MULTI30K ?= multi30k_en_fr.jsonl.gz
TATOEBA ?= tatoeba_en_fr.jsonl.gz
XSUM ?= xsum.jsonl.gz
SMOLLM2 ?= HuggingFaceTB/SmolLM2-135M-Instruct
EN_FR = --source_column en --target_column fr
MULTI30K_SPLITS = --split_column split --validation_split val --test_split test_2016_flickr
ONCE = --eval_strategy no --save_strategy no --disable_tqdm true

results-multi30k: $(READY)  ## compare CE with CLUE over alpha on Multi30k (MULTI30K=file): an hour and a half a seed on one core
	$(BIN)/clue-hf compare configs/t5_from_scratch.yaml $(ONCE) --train_file $(MULTI30K) $(EN_FR) $(MULTI30K_SPLITS) \
		--report_splits validation test --plain_steps 1300 --max_steps 1700 --seeds $(SEEDS) --methods \
		ce,clue:alpha=0.5,clue:alpha=0.9,clue:alpha=0.99,clue:alpha=0.5:clue_gradient=uncertainty \
		clue:alpha=0.9:clue_gradient=uncertainty,clue:alpha=0.99:clue_gradient=uncertainty \
		clue:alpha=0.9:level=sequence,clue:alpha=0.9:alpha_warmup_steps=200 --output_dir out/multi30k

results-tatoeba: $(READY)  ## compare CE with CLUE on Tatoeba (TATOEBA=file): half an hour on two cores
	$(BIN)/clue-hf compare configs/t5_from_scratch.yaml $(ONCE) --train_file $(TATOEBA) $(EN_FR) --seeds $(SEEDS) \
		--validation_fraction 0.01 --test_fraction 0.01 --max_train_samples 64000 --max_eval_samples 1000 \
		--plain_steps 1000 --max_steps 1300 --methods ce,clue --output_dir out/tatoeba

HELD_OUT_TATOEBA = --train_file $(TATOEBA) $(EN_FR) --validation_fraction 0.05 --test_fraction 0.05

results-tatoeba-learned: $(READY)  ## the same with larger held-out splits: calibrated, and a learned score
	$(BIN)/clue-hf compare configs/t5_from_scratch.yaml $(ONCE) $(HELD_OUT_TATOEBA) --seeds 1 --max_train_samples 64000 \
		--max_eval_samples 1000 --plain_steps 1000 --max_steps 1300 --methods ce,auto --output_dir out/tatoeba_held_out
	$(BIN)/clue-hf calibrate out/tatoeba_held_out/cells/ce/seed-42/model $(HELD_OUT_TATOEBA) --max_eval_samples 6000 \
		--split validation --quality chrf --scorer learned --output_dir out/tatoeba_learned
	$(BIN)/clue-hf evaluate out/tatoeba_learned $(HELD_OUT_TATOEBA) --max_eval_samples 6000 --split test --quality chrf \
		--scorers learned,msp --report_dir out/tatoeba_learned_report

results-xsum: $(READY)  ## compare CE with CLUE on a few thousand summaries (XSUM=file): a small model, a small set
	$(BIN)/clue-hf compare configs/t5_from_scratch.yaml $(ONCE) --train_file $(XSUM) --quality rouge2 --seeds $(SEEDS) \
		--max_source_length 256 --max_target_length 48 --per_device_train_batch_size 16 --plain_steps 300 --max_steps 400 \
		--validation_fraction 0.05 --test_fraction 0.08 --methods ce,clue --output_dir out/xsum

FEW = --max_eval_samples 256 --max_target_length 40 --scorers msp perplexity mean_token_entropy pmi cpmi

results-smollm2: $(READY)  ## SmolLM2-135M with LoRA, CE and CLUE, on Multi30k (SMOLLM2=folder, MULTI30K=file)
	$(BIN)/clue-hf compare configs/smollm2_lora.yaml --model_name_or_path $(SMOLLM2) --train_file $(MULTI30K) $(EN_FR) \
		$(MULTI30K_SPLITS) --max_train_samples 4000 $(FEW) --seeds 1 --methods ce,auto,clue,clue+auto \
		--disable_tqdm true --output_dir out/smollm2
	$(BIN)/clue-hf evaluate $(SMOLLM2) --config configs/smollm2_lora.yaml --train_file $(MULTI30K) $(EN_FR) \
		$(MULTI30K_SPLITS) --max_eval_samples 64 --num_samples 5 --max_target_length 40 \
		--compare out/smollm2/cells/clue/seed-42/model --report_dir out/smollm2/before

NEWS ?= news_en_fr.jsonl.gz
OPUS_MT ?= Helsinki-NLP/opus-mt-en-fr
PAIRS = --train_file out/data/tatoeba.jsonl --split_column split --source_column en --target_column references
TEXTS = --max_target_length 96 --per_device_eval_batch_size 32

out/data/tatoeba.jsonl out/data/multi30k.jsonl &: | $(READY)
	$(BIN)/python benchmarks/result_data.py --tatoeba $(TATOEBA) --multi30k $(MULTI30K) --news $(NEWS) --output out/data

results-opus-mt: out/data/tatoeba.jsonl  ## opus-mt-en-fr as it comes, calibrated (OPUS_MT=folder, TATOEBA=, MULTI30K=, NEWS=)
	test -e out/opus_mt/config.json || $(BIN)/clue-hf calibrate $(OPUS_MT) $(PAIRS) $(TEXTS) --split held_out \
		--scorer learned --density_split train --output_dir out/opus_mt
	for split in test news multi30k; do $(BIN)/clue-hf evaluate out/opus_mt $(PAIRS) $(TEXTS) --split $$split \
		--scorers all --quality bleu,chrf,exact_match --resume true --report_dir out/opus_mt_reports/$$split \
		|| exit 1; done

results-opus-mt-tuned: out/data/tatoeba.jsonl  ## fine-tune opus-mt-en-fr on Tatoeba, CE and CLUE, each calibrated afterwards
	$(BIN)/clue-hf compare configs/opus_mt_tatoeba.yaml --model_name_or_path $(OPUS_MT) --train_file out/data/tatoeba.jsonl \
		--methods ce,clue,clue:clue_gradient=uncertainty,auto,clue+auto,clue:clue_gradient=uncertainty+auto \
		--scorers msp perplexity mean_token_entropy pmi cpmi --seeds $(SEEDS) --disable_tqdm true \
		--output_dir out/opus_mt_tatoeba

results-opus-mt-alphas: out/data/tatoeba.jsonl  ## other weights and gradients of CLUE there, one seed, after results-opus-mt-tuned
	mkdir -p out/opus_mt_tatoeba/cells out/opus_mt_alphas && ln -sfn ../opus_mt_tatoeba/cells out/opus_mt_alphas/cells
	$(BIN)/clue-hf compare configs/opus_mt_tatoeba.yaml --model_name_or_path $(OPUS_MT) --train_file out/data/tatoeba.jsonl \
		--methods ce,clue:alpha=0.5,clue,clue:alpha=0.99,clue:clue_gradient=error \
		--scorers msp perplexity mean_token_entropy pmi cpmi --seeds 1 --disable_tqdm true --output_dir out/opus_mt_alphas

HELD_OUT = --train_file out/data/multi30k.jsonl $(EN_FR) --split_column split

results-multi30k-calibrated: out/data/multi30k.jsonl  ## CE and CLUE on Multi30k, calibrated on 3,914 held-out pairs
	$(BIN)/clue-hf compare configs/t5_from_scratch.yaml $(ONCE) $(HELD_OUT) --plain_steps 1300 --max_steps 1700 \
		--seeds $(SEEDS) --methods ce,clue,temperature,temperature_head,auto,clue+auto --output_dir out/multi30k_calibrated
	for quality in bleu chrf; do \
		$(BIN)/clue-hf calibrate out/multi30k_calibrated/cells/ce/seed-42/model $(HELD_OUT) --split validation \
			--quality $$quality --scorer learned --output_dir out/multi30k_learned/$$quality || exit 1; \
		$(BIN)/clue-hf evaluate out/multi30k_learned/$$quality $(HELD_OUT) --quality $$quality --scorers learned,msp \
			--report_dir out/multi30k_learned/$$quality-report || exit 1; done

FLAN_T5 ?= google/flan-t5-small

results-flan-t5: $(READY)  ## fine-tune flan-t5-small on a few thousand summaries (FLAN_T5=folder, XSUM=file)
	$(BIN)/clue-hf compare configs/flan_t5_xsum.yaml --model_name_or_path $(FLAN_T5) --train_file $(XSUM) --seeds 1 \
		--methods ce,clue,clue:clue_gradient=uncertainty,auto,clue+auto,clue:clue_gradient=uncertainty+auto \
		--scorers msp perplexity mean_token_entropy pmi cpmi --disable_tqdm true --output_dir out/flan_t5_xsum

CIFAR10 ?= cifar10.npz
SMALL = --model_preset resnet8 --bf16 false --dataloader_num_workers 0 --eval_strategy no --save_strategy no \
	--disable_tqdm true --seeds 3

results-images: $(READY)  ## compare all methods on CIFAR-10 (CIFAR10=file.npz): under an hour, resumable
	$(BIN)/clue-hf compare configs/resnet18_cifar10.yaml $(SMALL) --train_file $(CIFAR10) --max_train_samples 5000 \
		--num_train_epochs 15 --plain_epochs 10 --methods ce,clue:alpha=0.5,clue,clue:alpha=0.99 \
		ce_pe,euat,cals,focal,label_smoothing \
		clue:mc_samples=1,clue:mc_samples=10,clue:mc_samples=20 isotonic,temperature,platt,beta,ensemble,deup \
		--corruption gaussian_noise --severity 1,3,5 --output_dir out/cifar10
	$(BIN)/clue-hf compare configs/binary_cat_cifar10.yaml $(SMALL) --train_file $(CIFAR10) --num_train_epochs 30 \
		--plain_epochs 20 --methods ce,clue,ce_pe,euat,cals,isotonic,ensemble,deup --output_dir out/cifar10_binary

BOSTON ?= boston.csv
TAXI ?= nyc_taxi.csv.gz

results-conformal: $(READY)  ## prediction sets on CIFAR-10, as it is and with noise, and intervals on Boston Housing (CIFAR10=, BOSTON=)
	for sets in lac aps; do $(BIN)/clue-hf compare configs/resnet18_cifar10.yaml $(SMALL) --train_file $(CIFAR10) \
		--max_train_samples 5000 --num_train_epochs 15 --plain_epochs 10 --methods ce,clue,isotonic,temperature \
		--corruption gaussian_noise --severity 3 --conformal $$sets --coverage 0.9 --output_dir out/cifar10_conformal \
		&& mkdir -p out/cifar10_$$sets && cp out/cifar10_conformal/*.md out/cifar10_$$sets || exit 1; done
	$(BIN)/clue-hf compare configs/boston.yaml --train_file $(BOSTON) --methods mse,clue,nll:plain_epochs=0,quantile \
		--conformal scaled --coverage 0.9 --seeds 5 --disable_tqdm true --output_dir out/boston_conformal

results-tables: $(READY)  ## compare all methods on Boston Housing and taxi fares (BOSTON=, TAXI=): half an hour, resumable
	$(BIN)/clue-hf compare configs/boston.yaml --train_file $(BOSTON) --methods mse,clue,clue:clue_gradient=uncertainty \
		clue:alpha=0.5,clue:alpha=0.1,mse_pe,nll:plain_epochs=0,clue:mc_samples=5,clue:mc_samples=10,clue:mc_samples=50 \
		quantile,ensemble,deup --seeds 5 --output_dir out/boston --disable_tqdm true
	$(BIN)/clue-hf compare configs/nyc_taxi.yaml --train_file $(TAXI) --config_overrides hidden_size=64,num_blocks=2 \
		--learning_rate 0.01 --num_train_epochs 15 --plain_epochs 10 --methods mse,clue,clue:clue_gradient=uncertainty \
		clue:alpha=0.5,mse_pe,nll:plain_epochs=0,clue:mc_samples=5,clue:mc_samples=10,clue:mc_samples=50 \
		quantile,ensemble,deup --seeds 3 --output_dir out/nyc_taxi --disable_tqdm true

clean:  ## remove everything that was built or written by runs
	rm -rf .venv .venv-floors .venv-newest build dist site out runs *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
