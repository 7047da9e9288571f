"""Gradient boosting on a table: alone, and with the means of the neighbours' columns beside each row's own.

    python peer.py DATASET NODES.csv EDGES.csv

DATASET tells the columns, the label and the splits, so that both learn from the same rows. Prints one JSON line: the score of each on
the test split, by the metric that `gsplit train` chooses for such labels (accuracy, ROC-AUC, micro-F1, RMSE), and by macro-F1.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import scipy.sparse as sp
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score, root_mean_squared_error

dataset, nodes, edges = Path(sys.argv[1]), pd.read_csv(sys.argv[2]), pd.read_csv(sys.argv[3])
recipe = json.loads((dataset / "dataset.json").read_text())["content"]["recipe"]
ids = dataset / "nodes/original_id.npy"
if ids.exists():
    ids = pd.Index(np.load(ids))
else:
    with pa.memory_map(str(ids.with_suffix(".arrow"))) as file:
        ids = pd.Index(pa.ipc.open_file(file).read_all().column(0).to_pandas())
nodes = nodes.set_index(recipe["id"]).loc[ids]
train, test = (np.load(dataset / f"splits/{split}.npy") for split in ("train", "test"))

own = pd.get_dummies(nodes[[feature["column"] for feature in recipe["features"]]], dtype=float).to_numpy(dtype=float)
u, v = (ids.get_indexer(edges.iloc[:, at]) for at in (0, 1))
pairs = sp.coo_matrix((np.ones(2 * len(u)), (np.r_[u, v], np.r_[v, u])), shape=(len(ids),) * 2).tocsr()
means = (pairs @ own) / np.maximum(np.asarray(pairs.sum(axis=1)), 1)
label = nodes[recipe["label"]].to_numpy()


def scores(rows):
    def fit(model, column):
        return model(random_state=0).fit(rows[train], label[train, column])

    if label.shape[1] > 1:
        found = np.stack([fit(HistGradientBoostingClassifier, c).predict(rows[test]) for c in range(label.shape[1])], 1)
        right = label[test].astype(int)
        return {"micro-f1": f1_score(right, found, average="micro"), "macro-f1": f1_score(right, found, average="macro")}
    right = label[test, 0]
    if label.dtype.kind == "f":
        return {"rmse": root_mean_squared_error(right, fit(HistGradientBoostingRegressor, 0).predict(rows[test]))}
    model = fit(HistGradientBoostingClassifier, 0)
    found = model.predict(rows[test])
    told = {"accuracy": accuracy_score(right, found), "macro-f1": f1_score(right, found, average="macro")}
    if len(model.classes_) == 2:
        told["roc-auc"] = roc_auc_score(right, model.predict_proba(rows[test])[:, 1])
    return told


print(json.dumps({"alone": scores(own), "with neighbours": scores(np.hstack([own, means]))}))
