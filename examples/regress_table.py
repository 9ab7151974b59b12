"""Predict numbers from a table, each with an interval that holds the truth nine times out of ten.

python examples/regress_table.py                       # 442 patients that scikit-learn carries
python examples/regress_table.py houses.csv price      # your own table, and the column to predict
"""

import sys

from clue_hf import calibrate, pipeline
from clue_hf.cli.main import main
from clue_hf.data.embedded.diabetes import load_diabetes_splits


own = sys.argv[1:]
data = ["--train_file", own[0], "--target_column", own[1]] if own else ["--dataset_name", "embedded:diabetes"]
folder = "out/examples/table"
target = [] if own else ["--target_column", "progression", "--categorical_columns", "sex"]
network = ["--model_type", "clue_tabular_resnet", "--config_overrides", "hidden_size=64,num_blocks=2"]
training = ["--objective", "crps", "--num_train_epochs", "20", "--per_device_train_batch_size", "32"]
optimizer = ["--learning_rate", "1e-3", "--disable_tqdm", "true", "--report_to", "none", "--save_strategy", "no"]
main(["train", *data, *target, *network, *training, *optimizer, "--output_dir", folder])

source = {"train_file": own[0], "target_column": own[1]} if own else {"dataset_name": "embedded:diabetes"}
calibrate(folder, **source, conformal="scaled", coverage=0.9)
if not own:
    rows = load_diabetes_splits()["test"].to_list()
    answers = pipeline(folder)(rows)
    inside = [low <= row["progression"] <= high for row, (low, high) in zip(rows, (a["interval"] for a in answers))]
    for row, answer in list(zip(rows, answers))[:5]:
        low, high = answer["interval"]
        print(f"{row['progression']:6.0f}   predicted {answer['mean']:6.1f}, between {low:6.1f} and {high:6.1f}")
    print(f"{sum(inside)} of {len(inside)} inside")
